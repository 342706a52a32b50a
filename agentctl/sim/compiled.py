"""The loop over requests, compiled once for every policy and every scheduler.

Both are handed to the loop as first-class functions: pointers with a fixed signature, so that the loop is
compiled and cached once and not again for each of them. Parameters of a policy travel as an array of floats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numba import config, njit, typeof, types
from numba.extending import is_jitted
from numpy.typing import NDArray

from agentctl.sim.arrivals import Arrivals
from agentctl.sim.bound import bind
from agentctl.sim.handle import Handle, handle_of, keep
from agentctl.sim.jit import IN_PLACE, kernel
from agentctl.sim.loop import advance, place_or_send
from agentctl.sim.router import look
from agentctl.sim.splitting import both_kernel, is_split_kernel, side_kernel
from agentctl.sim.state import ENDED, STOP, State
from agentctl.sim.view import View
from agentctl.workload import Requests


class Rules(NamedTuple):
    """How engines and gateways work, one function (state, engine or request, now) -> int each;
    `agentctl.sim.scheduler` and `agentctl.sim.keeping` have them.

    start   plan the next batch or run and set when it ends
    finish  apply what ends now; returns the number of requests that ended, which stand in `s.ended`
    settle  bring a run in flight to this instant
    ask     fill in what a request's gateway knows by itself
    note    a request was sent or has ended; with -2 - row: engines publish, with pools of different models
    move    apply the transfers that end now
    place   do as a policy answers for a request, where engines have roles
    """

    start: Any
    finish: Any
    settle: Any
    ask: Any
    note: Any
    move: Any
    place: Any


def is_compiled(choose: Callable[..., int]) -> bool:
    return bool(is_jitted(choose))


def replay(  # type: ignore[no-untyped-def]
    state,
    due,
    requests,
    choose,
    my,
    start,
    finish,
    settle,
    ask,
    note,
    move,
    place,
    seed,
    until,
    stop_at,
    held,
    engine,
):
    """Replay until everything has ended (-1), `until` requests have, STOP is set or request `stop_at` has to
    be placed (-2), or a choice is no engine: then (the request, that choice) is returned.

    Who stopped at a request gives it back as `held`, with the engine where it shall go; else -1.
    """
    s, arrivals, logged = handle_of(state), handle_of(due), handle_of(requests)
    if held >= 0:
        place_or_send(s, arrivals, held, engine, finish, settle, ask, note, place)
    while s.counts[ENDED] < until and s.counts[STOP] == 0:
        r = advance(s, arrivals, start, finish, settle, note, move)
        if r < 0:
            return np.int64(-1), np.int64(0)
        if r == stop_at:
            break
        e = answer_of(s, arrivals, logged, r, seed, choose, my, settle, ask)
        if not place_or_send(s, arrivals, r, e, finish, settle, ask, note, place):
            return r, e
    return np.int64(-2), np.int64(0)


@kernel
def answer_of(s, arrivals, logged, r, seed, choose, my, settle, ask):  # type: ignore[no-untyped-def]
    """What the policy answers now."""
    if s.sides[0].is_on:
        return answer_of_both(s, arrivals, logged, r, seed, choose, my, settle, ask)
    return choose(handle_of(look(s, arrivals, logged, r, seed, settle, ask)), logged, r, my)


@kernel
def answer_of_both(s, arrivals, logged, r, seed, choose, my, settle, ask):  # type: ignore[no-untyped-def]
    """The same of a policy that names one engine, asked for both sides."""
    view, sides = look(s, arrivals, logged, r, seed, settle, ask), s.sides[0]
    first, stop = sides.first_decode, sides.stop_decode
    d = choose(handle_of(side_kernel(view, first, stop, view.last_decode, 0)), logged, r, my)
    if 0 <= d < stop - first and not is_split_kernel(sides, s.jobs[r].prompt, view.hit_tokens[first + d]):
        return first + d
    side = side_kernel(view, sides.first_prefill, sides.stop_prefill, view.last_chosen, 1)
    return both_kernel(d, choose(handle_of(side), logged, r, my), sides)


def next_request(s, arrivals, start, finish, settle, note, move):  # type: ignore[no-untyped-def]
    return np.int64(advance(handle_of(s), handle_of(arrivals), start, finish, settle, note, move))


def view_of(s, arrivals, requests, r, seed, settle, ask):  # type: ignore[no-untyped-def]
    view = look(handle_of(s), handle_of(arrivals), handle_of(requests), r, seed, settle, ask)
    keep(view)
    return view


def choice_of(s, arrivals, requests, r, choose, my, seed, settle, ask):  # type: ignore[no-untyped-def]
    logged = handle_of(requests)
    view = handle_of(look(handle_of(s), handle_of(arrivals), logged, r, seed, settle, ask))
    return choose(view, logged, r, my)


def do_answer(s, arrivals, r, answer, finish, settle, ask, note, place):  # type: ignore[no-untyped-def]
    return place_or_send(handle_of(s), handle_of(arrivals), r, answer, finish, settle, ask, note, place)


INTEGER, FLOAT = types.int64, types.float64


KINDS: dict[Any, Any] = {
    int: INTEGER, float: FLOAT, NDArray[np.int64]: INTEGER[:], NDArray[np.float64]: FLOAT[:],
}  # fmt: skip


@cache
def _view_type(state: Any) -> Any:
    """What `look` returns, without compiling it; where it were anything else the loop would not compile."""
    own = {"memory": FLOAT[::1], "over": INTEGER[::1], "path": state.types[state.fields.index("path")]}
    kinds = [own.get(name) or KINDS[kind] for name, kind in get_type_hints(View).items()]
    return types.NamedTuple(kinds, View)


def _rule(state: Any) -> Any:
    return types.FunctionType(INTEGER(Handle(state), INTEGER, FLOAT))


@cache
def _chooser(state: Any, requests: Any) -> Any:
    """The signature of a policy in the loop."""
    return INTEGER(Handle(_view_type(state)), Handle(requests), INTEGER, FLOAT[::1])


@cache
def _loop(state: Any, arrivals: Any, requests: Any) -> Any:
    """The compiled loop for arguments of these types."""
    rule, chooser = _rule(state), types.FunctionType(_chooser(state, requests))
    signature = types.UniTuple(INTEGER, 2)(
        state, arrivals, requests, chooser, FLOAT[::1], *[rule] * 7, *[INTEGER] * 5
    )
    return njit(signature, **IN_PLACE)(replay)


@cache
def _choice(state: Any, arrivals: Any, requests: Any) -> Any:
    rule, chooser = _rule(state), types.FunctionType(_chooser(state, requests))
    signature = INTEGER(state, arrivals, requests, INTEGER, chooser, FLOAT[::1], INTEGER, rule, rule)
    return njit(signature, **IN_PLACE)(choice_of)


@cache
def _look(state: Any, arrivals: Any, requests: Any) -> Any:
    view, rule = _view_type(state), _rule(state)
    return njit(view(state, arrivals, requests, INTEGER, INTEGER, rule, rule), cache=True, nogil=True)(
        view_of
    )


@cache
def _pieces(state: Any, arrivals: Any, requests: Any) -> tuple[Any, Any, Any]:
    rule = _rule(state)
    return (
        njit(INTEGER(state, arrivals, *[rule] * 5), **IN_PLACE)(next_request),
        _look(state, arrivals, requests),
        njit(types.boolean(state, arrivals, INTEGER, INTEGER, *[rule] * 5), **IN_PLACE)(do_answer),
    )


def compile_policy(
    s: State, arrivals: Arrivals, requests: Requests, rules: Rules, policy: Any
) -> Callable[..., Any]:
    """A function (seed, until, stop_at, held, engine) that goes on with the replay; see `replay`. Raises as
    `bind`."""
    state, of_requests = typeof(s), typeof(requests)  # once: numba takes 10 ms to look at the state
    for rule in rules:  # numba would not find in its cache what is compiled where it becomes a pointer
        rule.compile((Handle(state), INTEGER, FLOAT))
    loop = _loop(state, typeof(arrivals), of_requests)
    bound, my = _bound(state, of_requests, policy)
    return lambda *how: loop(s, arrivals, requests, bound, my, *rules, *how)


def compile_choice(
    s: State, arrivals: Arrivals, requests: Requests, rules: Rules, policy: Any
) -> Callable[[int, int], int]:
    """A function (seed, request) that says where the policy would send it now. Raises as `bind`."""
    state, of_requests = typeof(s), typeof(requests)
    choice = _choice(state, typeof(arrivals), of_requests)
    bound, my = _bound(state, of_requests, policy)
    return lambda seed, r: int(choice(s, arrivals, requests, r, bound, my, seed, rules.settle, rules.ask))


def _bound(state: Any, requests: Any, policy: Any) -> tuple[Any, Any]:
    """A policy and its parameters as the loop takes them, for these types."""
    chooser = _chooser(state, requests)
    params: Any = type(policy.my)
    return bind(policy.name, policy.choose, params, chooser), np.array(policy.my, dtype=np.float64)


def pieces(s: State, arrivals: Arrivals, requests: Requests) -> tuple[Any, Any, Any]:
    """(advance, look, place_or_send) of agentctl.sim.loop for a loop in Python."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return advance, look, place_or_send
    return _pieces(typeof(s), typeof(arrivals), typeof(requests))


def eye(s: State, arrivals: Arrivals, requests: Requests) -> Any:
    """`look` of agentctl.sim.router for a caller in Python."""
    if config.DISABLE_JIT:  # type: ignore[attr-defined]
        return look
    return _look(typeof(s), typeof(arrivals), typeof(requests))
