"""Where a request's prompt is computed and where the rest is: rules of placement for reference_pools.

First the products' rules of "prefill remotely only when it pays", as functions of numbers; then placements
that last for a session (ConServe) or a turn. Ties go to the lowest engine number. Tokens and seconds.
(open) marks what the sources leave open.

A session's need for KV counts fresh tokens only, max(0, prompt - the parent's prompt and output), so that in
a session that only appends the sum of fresh tokens and outputs is its final context. What a turn puts in,
fresh + output, counts the output that it will have: the authors force it.
    oracle      all its turns', when the session is admitted
    per_turn    turn 0's when the session is admitted; each later turn's when it arrives, without a check
    quantile    the larger of turn 0's and of the quantile (nearest rank) of the final needs of sessions that
                have ended, when it is admitted; later turns only what exceeds that, without a check (open)
A session whose need is above every budget keeps the largest one for itself: it can be served, with what is
evicted on the way (the authors would wait for ever: open). A request that is above every budget is rejected;
others wait until the decoder with the most free KV has room. The need is given back when the session's last
request has ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from oracles.reference_pools import LATER, Placement, PoolView
from oracles.reference_simulator import Request

NOWHERE = Placement(LATER, LATER)  # is not possible: rejected


# ---------------------------------------------------------------------------------------- products' rules


def llmd_splits(prompt: int, decode_hit: int, non_cached_tokens: int = 0, prompt_tokens: int = 0) -> bool:
    """llm-d's `prefix-based-pd-decider`; non_cached_tokens = 0 never splits."""
    if non_cached_tokens == 0:
        return False
    return prompt >= prompt_tokens and prompt - decode_hit >= non_cached_tokens


def dynamo_splits(prompt: int, decode_hit: int, tokens: int = 2048, share: float = 0.7) -> bool:
    """Dynamo's conditional disaggregation: both limits have to be exceeded."""
    uncached = prompt - decode_hit
    return uncached > tokens and uncached / prompt > share


def vllm_router_pd(costs: dict[str, float]) -> str:
    """vllm-router's `pd`: the cheapest way of its calibration; at a tie the first of WAYS (open).

    How the table is read at a request's size is not in the sources: the costs are given.
    """
    if not costs:
        raise ValueError("local_append is rejected without a calibration")
    return min((way for way in WAYS if way in costs), key=lambda way: costs[way])


WAYS = ("cold-remote", "warm-remote", "local-append", "store-remote")


@dataclass(frozen=True)
class AmpdLimits:
    ttft_slo: float
    tbt_slo: float


def ampd_local(
    own_queue: float,  # prefill waiting on the bound decoder
    queues: dict[int, float],  # prefill waiting on prefill engines
    compute: float,  # of what is appended, on the history
    move_history: float,
    move_appended: float,
    tbt: float,  # of the decoder, over a window
    added: float,  # to a step of it by a chunk
    limits: AmpdLimits,
) -> int:
    """AMPD (reconstruction): LATER for the bound decoder, else the prefill engine of the least time."""
    remote = {e: max(queue, move_history) + compute + move_appended for e, queue in queues.items()}
    best = min(remote, key=lambda e: (remote[e], e))
    local = own_queue + compute
    if tbt + added <= limits.tbt_slo and (local <= limits.ttft_slo or local <= remote[best]):
        return LATER
    return best


# ------------------------------------------------------------------------------------------- needs for KV


@dataclass
class Needs:
    """KV reserved per engine, in tokens, and by whom."""

    requests: list[Request]
    budget: dict[int, int]  # of engines that may be chosen
    kv: str = "oracle"  # oracle | per_turn | quantile
    quantile: float = 0.9
    used: dict[int, int] = field(default_factory=dict)
    held: dict[int, int] = field(default_factory=dict)  # by session
    so_far: dict[int, int] = field(default_factory=dict)  # by session, what its turns have put in
    finals: list[int] = field(default_factory=list)  # of sessions that have ended

    def __post_init__(self) -> None:
        self.used = dict.fromkeys(self.budget, 0)

    def put_in(self, r: int) -> int:
        request = self.requests[r]
        before = self.requests[request.parent] if request.parent >= 0 else None
        known = before.prompt + before.output if before is not None else 0
        return max(0, request.prompt - known) + request.output

    def at_admission(self, r: int) -> int:
        session, first = self.requests[r].session, self.put_in(r)
        if self.kv == "oracle":
            return sum(self.put_in(m) for m, q in enumerate(self.requests) if q.session == session)
        if self.kv == "quantile" and self.finals:
            rank = max(math.ceil(self.quantile * len(self.finals)), 1)
            return max(first, sorted(self.finals)[rank - 1])
        return first

    def most_free(self) -> int:
        return max(self.budget, key=lambda e: (self.budget[e] - self.used[e], -e))

    def admit(self, r: int) -> int | None:
        """The engine that keeps room for r's session; None: not yet."""
        engine = self.most_free()
        need = min(self.at_admission(r), max(self.budget.values()))
        if self.budget[engine] - self.used[engine] < need:
            return None
        session = self.requests[r].session
        self.used[engine] += need
        self.held[session], self.so_far[session] = need, self.put_in(r)
        return engine

    def later_turn(self, r: int, engine: int) -> None:
        session = self.requests[r].session
        self.so_far[session] += self.put_in(r)
        more = max(0, self.so_far[session] - self.held[session]) if self.kv != "oracle" else 0
        self.held[session] += more
        self.used[engine] += more

    def give_back(self, session: int, engine: int) -> None:
        self.used[engine] -= self.held.pop(session)
        self.finals.append(self.so_far.pop(session))

    def is_hopeless(self, r: int) -> bool:
        return self.put_in(r) > max(self.budget.values())


# ----------------------------------------------------------------------------------------- placements


class Pinned:
    """Sessions that stay on one engine, chosen by free KV when their first request arrives.

    Without prefill engines this is the collocated baseline, with them ConServe: a session's requests are
    handed over from the prefill engine with the least uncached tokens in flight over its rate, until one of
    them has more than one token of output and thereby moves the KV; all after that are local. A request that
    overlaps that one is local, too (open).
    """

    def __init__(self, needs: Needs, rates: dict[int, float] | None = None):
        self.needs, self.rates = needs, rates or {}
        self.requests = needs.requests
        self.bound: dict[int, int] = {}  # by session
        self.is_moved: set[int] = set()  # sessions
        self.is_over: set[int] = set()  # requests

    def place(self, view: PoolView, r: int) -> Placement | None:
        request = self.requests[r]
        session = request.session
        if session in self.bound:
            self.needs.later_turn(r, self.bound[session])
        elif self.needs.is_hopeless(r):
            return NOWHERE
        else:
            engine = self.needs.admit(r)
            if engine is None:
                return None
            self.bound[session] = engine
        if self.rates and session not in self.is_moved:
            if request.output > 1:
                self.is_moved.add(session)
            return Placement(least_outstanding(view, self.rates), self.bound[session])
        return self.later(view, r, self.bound[session])

    def later(self, view: PoolView, r: int, decode: int) -> Placement:
        return Placement(decode, decode)

    def place_decode(self, view: PoolView, r: int) -> int | None:
        raise AssertionError("all is decided at the arrival")

    def ended(self, r: int) -> None:
        self.is_over.add(r)
        session = self.requests[r].session
        members = {m for m, request in enumerate(self.requests) if request.session == session}
        if members <= self.is_over and session in self.bound:
            self.needs.give_back(session, self.bound[session])


class Deciding(Pinned):
    """ConServe whose later turns are decided one by one: `is_remote(view, r, decoder)` (AMPD, products)."""

    def __init__(
        self, needs: Needs, rates: dict[int, float], is_remote: Callable[[PoolView, int, int], bool]
    ):
        super().__init__(needs, rates)
        self.is_remote = is_remote

    def later(self, view: PoolView, r: int, decode: int) -> Placement:
        prefill = least_outstanding(view, self.rates) if self.is_remote(view, r, decode) else decode
        return Placement(prefill, decode)


class Disaggregated:
    """Every turn prefilled remotely; KV for its whole context reserved and given back per turn.

    `at_hand_over`: the decoder is chosen then, and not at the arrival.
    """

    def __init__(self, needs: Needs, rates: dict[int, float], at_hand_over: bool = False):
        self.needs, self.rates, self.at_hand_over = needs, rates, at_hand_over
        self.on: dict[int, int] = {}  # by request

    def place(self, view: PoolView, r: int) -> Placement | None:
        if self._need(r) > max(self.needs.budget.values()):
            return NOWHERE
        decode = LATER if self.at_hand_over else self.place_decode(view, r)
        return None if decode is None else Placement(least_outstanding(view, self.rates), decode)

    def place_decode(self, view: PoolView, r: int) -> int | None:
        engine = self.needs.most_free()
        if self.needs.budget[engine] - self.needs.used[engine] < self._need(r):
            return None
        self.needs.used[engine] += self._need(r)
        self.on[r] = engine
        return engine

    def _need(self, r: int) -> int:
        return self.needs.requests[r].prompt + self.needs.requests[r].output

    def ended(self, r: int) -> None:
        if r in self.on:
            self.needs.used[self.on.pop(r)] -= self._need(r)


def least_outstanding(view: PoolView, rates: dict[int, float]) -> int:
    """Of prefill engines: the time that what is in flight takes; the request's own tokens do not count."""
    return min(rates, key=lambda e: (view.inflight_prefill_tokens[e] / rates[e], e))
