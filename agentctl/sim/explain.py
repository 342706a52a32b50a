"""What the router saw when it placed a request, and what every other engine would have given it.

A counterfactual is a copy of the whole cluster at that instant: the request goes to another engine, and the
replay goes on until it has its first token or its end. Whatever comes after is as in a run: the same policy
decides, logged arrivals come when they came, turns that wait for an end come when it ends in that world. The
policy's own memory is as it left it when it chose: it believes that it was obeyed; the router's counters
(requests in flight, last choice) know where the request went.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster
from agentctl.errors import ConfigError
from agentctl.sim.arrivals import Arrivals
from agentctl.sim.bound import blame
from agentctl.sim.compiled import compile_choice, eye, is_compiled
from agentctl.sim.driver import Policy, Replay, ask, begin, driven
from agentctl.sim.make_state import make_limits
from agentctl.sim.outcome import Outcome
from agentctl.sim.state import ENDED, LOST_HOLDS, N_HOLDS, OUT_OF_KV, State
from agentctl.sim.view import View
from agentctl.workload import Requests, Workload

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Choose = Callable[[View, int], int]
CONSTANT = ("limits", "path", "power", "sizes", "uses")  # of a State
TIER_SLOTS = ("stretches", "moves", "transfers", "spans")
STEPS = 64  # requests that end before a branch is looked at: a call costs as much as some hundred
NOT_SHOWN = ("memory", "path")  # of a View: not per engine, and long


class Branches(NamedTuple):
    """What each engine gives one request; NaN and -1 where it would be rejected, or was not followed."""

    hit_tokens: Ints
    scheduled_s: Floats
    first_token_s: Floats
    finish_s: Floats


class Decision(NamedTuple):
    """The router places a request.

    seen      the view before the policy chose, copied but for NOT_SHOWN
    costs     what the policy minimises, per engine; None when it has no such function
    branches  the chosen engine's are those of the run
    """

    request: int
    chosen: int
    seen: View
    costs: Floats | None
    branches: Branches


def decisions(
    workload: Workload,
    cluster: Cluster,
    policy: Policy,
    outcome: Outcome,
    wanted: Iterable[int],
    *,
    seed: int = 0,
    concurrency: int | None = None,
    to_end: bool = True,
) -> Iterator[Decision]:
    """Replay the run that had this outcome and stop at the requests `wanted`: their decisions, by arrival.

    A request that no engine can ever serve is never placed and left out. `to_end`: follow the branches until
    the request has ended, else until its first token (the other times are NaN).
    """
    base, n = begin(workload, cluster, policy, seed, concurrency), workload.n_requests
    other, ask_policy = Fork(base), chooser(base)
    look = eye(base.s, base.arrivals, base.requests)
    fits = can_serve(cluster, workload.requests)
    held, chosen = -1, 0
    for r in sorted(set(wanted), key=lambda r: (outcome.arrival_s[r], r)):
        if not fits[r].any():
            continue
        all_ended = base.go_on(n + 1, r, held, chosen)
        assert not all_ended, "a request that some engine can serve is placed once, in the order of arrivals"
        view = look(base.s, base.arrivals, base.requests, r, seed, base.rules.settle, base.rules.ask)
        seen, costs = _copy(view), _costs(base, view, r)
        held, chosen = r, ask_policy(view, r)
        branches = _branches(other, outcome, r, chosen, fits[r], to_end)
        yield Decision(r, chosen, seen, costs, branches)


def can_serve(cluster: Cluster, requests: Requests) -> NDArray[np.bool_]:
    """[request, engine]: whether the request can ever be served there."""
    limits, prompt = make_limits(cluster), requests.prompt_tokens[:, None]
    fits: NDArray[np.bool_] = (prompt <= limits["most_prompt"]) & (
        prompt + requests.output_tokens[:, None] <= limits["most_tokens"]
    )
    return fits


def _copy(view: View) -> View:
    fields: dict[str, Any] = view._asdict()
    for name, field in fields.items():
        if isinstance(field, np.ndarray) and name not in NOT_SHOWN:
            fields[name] = field.copy()
    return View(**fields)


def _branches(
    other: Fork, outcome: Outcome, r: int, chosen: int, fits: NDArray[np.bool_], to_end: bool
) -> Branches:
    """Follow every engine but the chosen one, whose end is known."""
    n = fits.size
    branches = Branches(np.full(n, -1), *(np.full(n, np.nan) for _ in range(3)))
    if outcome.done[r]:
        branches.hit_tokens[chosen], branches.scheduled_s[chosen] = (
            outcome.hit_tokens[r],
            outcome.scheduled_s[r],
        )
        branches.first_token_s[chosen], branches.finish_s[chosen] = (
            outcome.first_token_s[r],
            outcome.finish_s[r],
        )
    for e in np.flatnonzero(fits).tolist():
        if e != chosen:
            _note(branches, e, other.follow(r, e, to_end))
    return branches


def _note(branches: Branches, e: int, job: Any) -> None:
    """A job that lacks something has NaN there."""
    if job is not None and not np.isnan(job["first_token"]):
        branches.hit_tokens[e] = job["hit"]
        branches.scheduled_s[e], branches.first_token_s[e] = job["scheduled"], job["first_token"]
        branches.finish_s[e] = job["finish"]


def chooser(replay: Replay) -> Choose:
    """Where the policy sends a request at which this replay has stopped. It may note that in its memory."""
    s, arrivals, requests, policy = replay.s, replay.arrivals, replay.requests, replay.policy
    if is_compiled(policy.choose):
        choice = compile_choice(s, arrivals, requests, replay.rules, policy)
        return lambda view, r: choice(replay.seed, r)
    return lambda view, r: ask(policy, view, requests, r)


def _costs(replay: Replay, view: View, r: int) -> Floats | None:
    policy: Any = replay.policy
    cost, my = getattr(policy, "cost", None), policy.my
    if cost is None:
        return None
    if is_compiled(cost):
        my = type(my)(*(float(value) for value in my))  # as the loop passes them
    memory = view.memory.copy()
    try:
        costs = np.asarray(cost(view, replay.requests, r, my), dtype=np.float64)
    except Exception as error:  # whatever a user's function raises
        raise blame(cost, error, r) from error
    view.memory[:] = memory
    if costs.shape != view.hit_tokens.shape:
        raise ConfigError(
            f"cost has the shape {costs.shape}",
            place=f"policy {policy.name}",
            expected="one number per engine",
        )
    return costs


class Fork:
    """A second cluster that is set to where another replay stands, as often as wanted."""

    def __init__(self, base: Replay) -> None:
        unwritten = ("holds", "nodes", "late", "segments", *TIER_SLOTS)  # `set_to` copies what is in use
        arrays = base.s._asdict()
        s = State(**{
            name: array if name in CONSTANT else np.empty_like(array) if name in unwritten else array.copy()
            for name, array in arrays.items()
        })  # fmt: skip
        copies: list[Any] = [array.copy() for array in base.arrivals]
        arrivals = Arrivals(*copies)
        self.base = base
        go_on = driven(s, arrivals, base.requests, base.rules, base.policy, base.seed)
        self.replay = replace(base, s=s, arrivals=arrivals, go_on=go_on)
        in_parts = (*unwritten, "runs", "with_count")
        partly = (*CONSTANT, *in_parts)
        self._whole = [(_raw(getattr(s, name)), _raw(arrays[name])) for name in arrays if name not in partly]
        self._whole += [
            (_raw(mine), _raw(theirs)) for mine, theirs in zip(arrivals, base.arrivals, strict=True)
        ]
        self._parts = {name: (_raw(getattr(s, name)), _raw(arrays[name])) for name in in_parts}

    def set_to_base(self) -> None:
        """Copy what may differ: all but places of long arrays that neither of the two has used yet."""
        s, now = self.replay.s, self.base.s
        for mine, theirs in self._whole:
            np.copyto(mine, theirs)
        first, n_late = int(now.router["first_late"][0]), int(now.router["n_late"][0])
        in_use: dict[str, Any] = {
            "runs": (slice(None), slice(max(_runs_used(s), _runs_used(now)))),
            "nodes": (slice(None), slice(int(now.engines["n_slots"].max()))),
            "holds": slice(int(now.counts[N_HOLDS])),
            "segments": slice(int(now.router["n_segments"][0])),
            "late": (first + np.arange(n_late)) % now.late.size,
            "spans": slice(int(now.free_span[0]) + 1),
        }
        stretches, moves = (
            max(int(one.stores[name].max()) for one in (s, now)) + 1 for name in ("n_stretches", "n_moves")
        )
        in_use |= {"stretches": (slice(None), slice(stretches))}
        in_use |= dict.fromkeys(("moves", "transfers", "with_count"), (slice(None), slice(moves)))
        for name, (mine, theirs) in self._parts.items():
            mine[in_use[name]] = theirs[in_use[name]]

    def follow(self, r: int, e: int, to_end: bool = True) -> Any:
        """What becomes of request r, at which the base has stopped, on engine e: its record of State.jobs, or
        None where that cannot be simulated."""
        self.set_to_base()
        s = self.replay.s
        job, steps = s.jobs[r], STEPS
        all_ended = self.replay.go_on(int(s.counts[ENDED]) + steps, held=r, engine=e)
        while not (all_ended or not np.isnan(job["finish"]) or not (to_end or np.isnan(job["first_token"]))):
            steps *= 2
            all_ended = self.replay.go_on(int(s.counts[ENDED]) + steps)
        is_void = s.counts[LOST_HOLDS] or s.counts[OUT_OF_KV] or s.router["lost_late"][0]
        return None if is_void else job


def _raw(array: NDArray[Any]) -> NDArray[Any]:
    """The same memory without its fields: records are then copied as a whole, ten times as fast."""
    return np.asarray(array).view(np.ndarray).view(f"V{array.itemsize}")


def _runs_used(s: State) -> int:
    """How many slots for runs some engine has ever used: they are taken in order, and dated when taken."""
    born = s.runs["born"]
    n_engines, n_slots = born.shape
    used = [bisect_left(range(1, n_slots), 1, key=lambda x: int(born[e, x] == 0)) for e in range(n_engines)]
    return min(max(used, default=0) + 1, n_slots)
