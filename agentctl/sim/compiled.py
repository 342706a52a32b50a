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


def replay(s, arrivals, requests, choose, my, start, finish, settle, seed, until):  # type: ignore[no-untyped-def]
    """Replay until everything has ended (-1), `until` requests have or STOP is set (-2), or a choice is no
    engine: then (the request, that choice) is returned.
    """
    while s.counts[ENDED] < until and s.counts[STOP] == 0:
        r = advance(s, arrivals, start, finish, settle)
        if r < 0:
            return np.int64(-1), np.int64(0)
        e = choose(look(s, arrivals, requests, r, seed, settle), requests, r, my)
        if e < 0 or e >= s.engines.size:
            return r, e
        send(s, arrivals, r, e, finish, settle)
    return np.int64(-2), np.int64(0)


def next_request(s, arrivals, start, finish, settle):  # type: ignore[no-untyped-def]
    return np.int64(advance(s, arrivals, start, finish, settle))


def view_of(s, arrivals, requests, r, seed, settle):  # type: ignore[no-untyped-def]
    return look(s, arrivals, requests, r, seed, settle)


def send_request(s, arrivals, r, e, finish, settle):  # type: ignore[no-untyped-def]
    send(s, arrivals, r, e, finish, settle)


INTEGER, FLOAT = types.int64, types.float64


@cache
def _view_type(state: Any, arrivals: Any, requests: Any) -> Any:
    arguments = (state, arrivals, requests, INTEGER, INTEGER, _rule(state))
    look.compile(arguments)
    compiled: Any = look.overloads[arguments]
    return compiled.signature.return_type


def _rule(state: Any) -> Any:
    return types.FunctionType(INTEGER(state, INTEGER, FLOAT))


@cache
def _loop(state: Any, arrivals: Any, requests: Any) -> tuple[Any, Any]:
    """(the compiled loop, the signature of a policy in it) for arguments of these types."""
    rule, floats = _rule(state), FLOAT[::1]
    chooser = INTEGER(_view_type(state, arrivals, requests), requests, INTEGER, floats)
    policy = (types.FunctionType(chooser), floats)
    signature = types.UniTuple(INTEGER, 2)(
        state, arrivals, requests, *policy, rule, rule, rule, INTEGER, INTEGER
    )
    return njit(signature, cache=True, nogil=True)(replay), chooser


@cache
def _pieces(state: Any, arrivals: Any, requests: Any) -> tuple[Any, Any, Any]:
    rule, view = _rule(state), _view_type(state, arrivals, requests)
    return (
        njit(INTEGER(state, arrivals, rule, rule, rule), cache=True, nogil=True)(next_request),
        njit(view(state, arrivals, requests, INTEGER, INTEGER, rule), cache=True, nogil=True)(view_of),
        njit(types.void(state, arrivals, INTEGER, INTEGER, rule, rule), cache=True, nogil=True)(send_request),
    )


def compile_policy(
    s: State, arrivals: Arrivals, requests: Requests, rules: Rules, policy: Any
) -> Callable[..., Any]:
    """A function (seed, until) that goes on with the replay; see `replay`. Raises as `bind`."""
    loop, chooser = _loop(typeof(s), typeof(arrivals), typeof(requests))
    params: Any = type(policy.my)
    bound = bind(policy.name, policy.choose, params, chooser)
    parameters = np.array(policy.my, dtype=np.float64)
    return lambda seed, until: loop(s, arrivals, requests, bound, parameters, *rules, seed, until)


def pieces(s: State, arrivals: Arrivals, requests: Requests) -> tuple[Any, Any, Any]:
    """(advance, look, send) of agentctl.sim.loop for a loop in Python."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return advance, look, send
    return _pieces(typeof(s), typeof(arrivals), typeof(requests))
