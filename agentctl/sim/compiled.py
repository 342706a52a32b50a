"""The loop over requests, compiled once for every policy.

A policy is handed to the loop as a first-class function: a pointer with a fixed signature, so that the loop
is compiled and cached once and not again for each policy. Parameters travel as an array of floats.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit, typeof, types
from numba.extending import is_jitted
from numba.np.unsafe.ndarray import to_fixed_tuple

from agentctl.sim.arrivals import Arrivals
from agentctl.sim.loop import advance, look, send
from agentctl.sim.state import ENDED, State
from agentctl.workload import Requests


def is_compiled(choose: Callable[..., int]) -> bool:
    return bool(is_jitted(choose))


def replay(s, arrivals, requests, choose, my, seed, until):  # type: ignore[no-untyped-def]
    """Replay until everything has ended (-1), `until` requests have (-2), or a choice is no engine.

    Then (the request, that choice) is returned.
    """
    while s.counts[ENDED] < until:
        r = advance(s, arrivals)
        if r < 0:
            return np.int64(-1), np.int64(0)
        e = choose(look(s, arrivals, requests, r, seed), requests, r, my)
        if e < 0 or e >= s.engines.size:
            return r, e
        send(s, arrivals, r, e)
    return np.int64(-2), np.int64(0)


@cache
def _loop(state_type: Any, arrivals_type: Any, requests_type: Any) -> tuple[Any, Any]:
    """(the compiled loop, the signature of a policy in it) for arguments of these types."""
    integer, floats = types.int64, types.float64[::1]
    arguments = (state_type, arrivals_type, requests_type, integer, integer)
    look.compile(arguments)
    compiled: Any = look.overloads[arguments]
    view_type = compiled.signature.return_type
    chooser = integer(view_type, requests_type, integer, floats)
    result = types.UniTuple(integer, 2)
    signature = result(
        state_type, arrivals_type, requests_type, types.FunctionType(chooser), floats, integer, integer
    )
    return njit(signature, cache=True, nogil=True)(replay), chooser


@cache
def _bound(choose: Any, params: Any, chooser: Any) -> Any:
    """`choose` with its parameters taken from an array."""
    n = len(params._fields)
    if n == 0:

        def bound(view, requests, r, my):  # type: ignore[no-untyped-def]
            return np.int64(choose(view, requests, r, params()))
    else:

        def bound(view, requests, r, my):  # type: ignore[no-untyped-def]
            return np.int64(choose(view, requests, r, params(*to_fixed_tuple(my, n))))  # type: ignore[call-arg]

    compiled = njit(nogil=True)(bound)
    compiled.compile(chooser.args)
    return compiled


def compile_policy(
    s: State, arrivals: Arrivals, requests: Requests, choose: Any, my: Any
) -> Callable[..., Any]:
    """A function (seed, until) that goes on with the replay; see `replay`."""
    loop, chooser = _loop(typeof(s), typeof(arrivals), typeof(requests))
    params: Any = type(my)
    bound = _bound(choose, params, chooser)
    parameters = np.array(my, dtype=np.float64)
    return lambda seed, until: loop(s, arrivals, requests, bound, parameters, seed, until)
