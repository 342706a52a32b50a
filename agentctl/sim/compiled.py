"""The loop over requests, compiled once for every policy and every scheduler.

Both are handed to the loop as first-class functions: pointers with a fixed signature, so that the loop is
compiled and cached once and not again for each of them. Parameters of a policy travel as an array of floats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numba import config, njit, typeof, types
from numba.extending import is_jitted

from agentctl.sim.arrivals import Arrivals
from agentctl.sim.bound import bind
from agentctl.sim.handle import Handle, handle_of, keep
from agentctl.sim.jit import IN_PLACE
from agentctl.sim.loop import advance, send
from agentctl.sim.router import look
from agentctl.sim.state import ENDED, STOP, State
from agentctl.workload import Requests


class Rules(NamedTuple):
    """How an engine works, one function (state, engine, now) -> int each; `agentctl.sim.scheduler` has them.

    start   plan the next batch or run and set when it ends
    finish  apply what ends now; returns the number of requests that ended, which stand in `s.ended`
    settle  bring a run in flight to this instant
    """

    start: Any
    finish: Any
    settle: Any


def is_compiled(choose: Callable[..., int]) -> bool:
    return bool(is_jitted(choose))


def replay(  # type: ignore[no-untyped-def]
    state, due, requests, choose, my, start, finish, settle, seed, until, stop_at, held, engine
):
    """Replay until everything has ended (-1), `until` requests have, STOP is set or request `stop_at` has to
    be placed (-2), or a choice is no engine: then (the request, that choice) is returned.

    Who stopped at a request gives it back as `held`, with the engine where it shall go; else -1.
    """
    s, arrivals, logged = handle_of(state), handle_of(due), handle_of(requests)
    if held >= 0:
        send(s, arrivals, held, engine, finish, settle)
    while s.counts[ENDED] < until and s.counts[STOP] == 0:
        r = advance(s, arrivals, start, finish, settle)
        if r < 0:
            return np.int64(-1), np.int64(0)
        if r == stop_at:
            break
        e = choose(handle_of(look(s, arrivals, logged, r, seed, settle)), logged, r, my)
        if e < 0 or e >= s.engines.size:
            return r, e
        send(s, arrivals, r, e, finish, settle)
    return np.int64(-2), np.int64(0)


def next_request(s, arrivals, start, finish, settle):  # type: ignore[no-untyped-def]
    return np.int64(advance(handle_of(s), handle_of(arrivals), start, finish, settle))


def view_of(s, arrivals, requests, r, seed, settle):  # type: ignore[no-untyped-def]
    view = look(handle_of(s), handle_of(arrivals), handle_of(requests), r, seed, settle)
    keep(view)
    return view


def choice_of(s, arrivals, requests, r, choose, my, seed, settle):  # type: ignore[no-untyped-def]
    logged = handle_of(requests)
    view = handle_of(look(handle_of(s), handle_of(arrivals), logged, r, seed, settle))
    return choose(view, logged, r, my)


def send_request(s, arrivals, r, e, finish, settle):  # type: ignore[no-untyped-def]
    send(handle_of(s), handle_of(arrivals), r, e, finish, settle)


INTEGER, FLOAT = types.int64, types.float64


@cache
def _view_type(state: Any, arrivals: Any, requests: Any) -> Any:
    arguments = (Handle(state), Handle(arrivals), Handle(requests), INTEGER, INTEGER, _rule(state))
    look.compile(arguments)
    compiled: Any = look.overloads[arguments]
    return compiled.signature.return_type


def _rule(state: Any) -> Any:
    return types.FunctionType(INTEGER(Handle(state), INTEGER, FLOAT))


@cache
def _chooser(state: Any, arrivals: Any, requests: Any) -> Any:
    """The signature of a policy in the loop."""
    view = _view_type(state, arrivals, requests)
    return INTEGER(Handle(view), Handle(requests), INTEGER, FLOAT[::1])


@cache
def _loop(state: Any, arrivals: Any, requests: Any) -> Any:
    """The compiled loop for arguments of these types."""
    rule, chooser = _rule(state), types.FunctionType(_chooser(state, arrivals, requests))
    signature = types.UniTuple(INTEGER, 2)(
        state, arrivals, requests, chooser, FLOAT[::1], rule, rule, rule, *[INTEGER] * 5
    )
    return njit(signature, **IN_PLACE)(replay)


@cache
def _choice(state: Any, arrivals: Any, requests: Any) -> Any:
    rule, chooser = _rule(state), types.FunctionType(_chooser(state, arrivals, requests))
    signature = INTEGER(state, arrivals, requests, INTEGER, chooser, FLOAT[::1], INTEGER, rule)
    return njit(signature, **IN_PLACE)(choice_of)


@cache
def _look(state: Any, arrivals: Any, requests: Any) -> Any:
    view, rule = _view_type(state, arrivals, requests), _rule(state)
    return njit(view(state, arrivals, requests, INTEGER, INTEGER, rule), cache=True, nogil=True)(view_of)


@cache
def _pieces(state: Any, arrivals: Any, requests: Any) -> tuple[Any, Any, Any]:
    rule = _rule(state)
    return (
        njit(INTEGER(state, arrivals, rule, rule, rule), **IN_PLACE)(next_request),
        _look(state, arrivals, requests),
        njit(types.void(state, arrivals, INTEGER, INTEGER, rule, rule), **IN_PLACE)(send_request),
    )


def compile_policy(
    s: State, arrivals: Arrivals, requests: Requests, rules: Rules, policy: Any
) -> Callable[..., Any]:
    """A function (seed, until, stop_at, held, engine) that goes on with the replay; see `replay`. Raises as
    `bind`."""
    loop = _loop(typeof(s), typeof(arrivals), typeof(requests))
    bound, my = _bound(s, arrivals, requests, policy)
    return lambda *how: loop(s, arrivals, requests, bound, my, *rules, *how)


def compile_choice(
    s: State, arrivals: Arrivals, requests: Requests, rules: Rules, policy: Any
) -> Callable[[int, int], int]:
    """A function (seed, request) that says where the policy would send it now. Raises as `bind`."""
    choice = _choice(typeof(s), typeof(arrivals), typeof(requests))
    bound, my = _bound(s, arrivals, requests, policy)
    return lambda seed, r: int(choice(s, arrivals, requests, r, bound, my, seed, rules.settle))


def _bound(s: State, arrivals: Arrivals, requests: Requests, policy: Any) -> tuple[Any, Any]:
    """A policy and its parameters as the loop takes them."""
    chooser = _chooser(typeof(s), typeof(arrivals), typeof(requests))
    params: Any = type(policy.my)
    return bind(policy.name, policy.choose, params, chooser), np.array(policy.my, dtype=np.float64)


def pieces(s: State, arrivals: Arrivals, requests: Requests) -> tuple[Any, Any, Any]:
    """(advance, look, send) of agentctl.sim.loop for a loop in Python."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return advance, look, send
    return _pieces(typeof(s), typeof(arrivals), typeof(requests))


def eye(s: State, arrivals: Arrivals, requests: Requests) -> Any:
    """`look` of agentctl.sim.router for a caller in Python."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return look
    return _look(typeof(s), typeof(arrivals), typeof(requests))
