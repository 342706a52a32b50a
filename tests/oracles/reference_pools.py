"""Pools of prefill and decode engines, and KV that moves between them: the judge's, written to be read.

A request is *placed* on a prefill engine and a decode engine. On one engine that is both it is served
locally, as without pools. On two it is *handed over*: the first computes the prompt and emits the first
token, its KV moves once, the second goes on from there. Here stands who is asked what, when, and what moves;
what an engine does with it in reference_pool_engine, rules of placement in reference_placement. (open) marks
what the design and the papers leave open.

Roles. A role says which steps an engine may be given, first on the left:
    local on both or decode              (a decode engine computes prompts too: appends and deflected ones)
    from prefill to both or decode, from both to decode
Never upstream and never between two of role both: they could hold blocks and wait for each other's (open).

Served. A request is rejected, and its turn ends at its arrival, if no permitted placement has engines on
which it can fit, or if the placement it gets is not permitted or its engines cannot. A decode engine needs
room as one of no pools does; a prefill engine for the prompt and one token, also by max_model_len (open).
A request of one token ends where its prompt was computed; nothing is moved and no decoder hears of it, but
its placement has to be possible like any other (open).

Asking. `placer.place(view, r)` is asked at the arrival and answers with both engines (llm-d and vllm-router
choose the decoder first, Dynamo last: open), or with decode = LATER: then `placer.place_decode(view, r)` is
asked at the hand-over. Either may answer None, not yet: r waits at the router, in the first case before
anything was computed, in the second with its KV held. Those who wait are asked again, like arrivals, at
every instant at which a request ends or is rejected, by request number among that instant's arrivals, and
whoever goes passes those who still wait (ConServe asks each every 50 ms on a phase of its own: open). A
wait counts: arrival is when the request came. Whoever waits at the hand-over holds blocks, so those it
waits for must not need them: that is the placer's to see to, and a run that stands still is an error. A
decoder chosen LATER that cannot serve the request rejects it then; its first token is void.

What routers count. A hand-over's placement is two decisions. The request is in flight on its prefill engine
from the dispatch to the first token, on its decode engine from the decision until it ends; it counts
uncached prompt tokens on the first only. An approximate index learns the prompt for both. `last_chosen` is
the last first engine, `last_decode` the last second one; a local placement is both. (open, but the index:
llm-d's.)

Prefill side. Its job is the request with one token of output. When that is out the blocks stay in use until
the transfer ends, or the request is rejected; they are released like those of any ended request, so that
they go on being found.

Decode side. From the instant of the first token the request is in the queue of its decoder, in order of
hand-overs (by batch, then engine, at one instant), with its own arrival there for `priority`. It is admitted
as others are, head of line, by seats, budget, interval and watermark, when the blocks fit that its prompt
and its first token need, whatever `reserve_full_prompt` says: then it takes them all, and its transfer
starts. So it never gives them back before it runs (open; vLLM's connectors take them at admission, too). It
keeps its place in the queue and is passed while it loads, and needs no seat. It runs as a decode from the
first step after the transfer's end on; those whose KV is here go first, in order (open). Its hit is that of
its whole prompt's blocks, which are not moved; the moved ones can be found from the end of the transfer on.
A request preempted on a decoder is computed anew there.

The link. One for all hand-overs: max-min fair shares, nothing during the latency, which each pays once.
[network] has no limit per engine, neither of what leaves nor of what comes in: there is none (open). Bytes
are those of tokens not found, not of whole blocks (open); a hand-over of which all is found takes the
latency. KV that a decoder has and a prefill engine has not does not go back: it is computed anew (AMPD
would move it: open).

At one instant: transfers that end, batches that end, arrivals and those that wait, engines that start; where
a transfer takes no time, engines once more.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Protocol

from oracles.reference_pool_engine import PoolEngine
from oracles.reference_simulator import Cluster, Job, Limits, Request, Result
from oracles.reference_view import View
from oracles.transfers import Link

LATER = -1  # a decoder that is chosen at the hand-over


# ----------------------------------------------------------------------------------------------- what goes in


@dataclass(frozen=True)
class Network:
    """[network] of cluster.toml, or a link that takes no time."""

    bytes_per_s: float = math.inf
    latency_s: float = 0.0


@dataclass(frozen=True)
class Placement:
    """Where the prompt is computed, and where the rest is."""

    prefill: int
    decode: int


@dataclass
class PoolView(View):
    last_decode: int


class Placer(Protocol):
    def place(self, view: PoolView, r: int) -> Placement | None: ...

    def place_decode(self, view: PoolView, r: int) -> int | None: ...

    def ended(self, r: int) -> None: ...


@dataclass
class PoolResult(Result):
    decode_engine: int = -1
    decode_hit: int = 0  # tokens, when its decoder admitted it
    moved: int = 0  # tokens
    moves: int = 0
    transfer_began: float = math.nan  # when its decoder had blocks for it
    transfer_ended: float = math.nan
    sent: float = math.nan  # when it left the router
    decode_prefilled: int = 0  # of `prefilled`, on its decode engine
    decode_preemptions: int = 0  # of `preemptions`, there


# ---------------------------------------------------------------------------------------------- the cluster


@dataclass(eq=False)
class HandOver:
    first: Job  # on the prefill engine
    prefill: int
    second: Job  # on the decode engine
    decode: int  # LATER until it is known
    moved: int = 0
    began: float = math.nan
    ended: float = math.nan


class PoolCluster(Cluster):
    """`roles`: prefill | decode | both, one per engine."""

    engine_type = PoolEngine
    engines: list[PoolEngine]

    def __init__(
        self,
        requests: list[Request],
        limits: list[Limits],
        roles: list[str],
        placer: Placer,
        network: Network = Network(),
        bytes_per_token: float = 1.0,
        **options,
    ):
        super().__init__(requests, limits, lambda view, r: -1, **options)
        self.roles, self.placer, self.network, self.bytes_per_token = roles, placer, network, bytes_per_token
        self.link = Link()
        self.hand_overs: dict[int, HandOver] = {}  # by request, until it ends
        self.waiting: list[int] = []  # requests that are to be asked again
        self.last_decode: dict[int, int] = {}  # by gateway
        self.now, self.again = 0.0, math.inf
        for engine in self.engines:
            engine.connect(self._move)

    # --- who may serve what

    def is_permitted(self, prefill: int, decode: int) -> bool:
        first, second = self.roles[prefill], self.roles[decode]
        if prefill == decode:
            return first != "prefill"
        return (first, second) in (("prefill", "both"), ("prefill", "decode"), ("both", "decode"))

    def can_serve(self, request: Request, prefill: int, decode: int) -> bool:
        engines = range(len(self.engines))
        if prefill not in engines:
            return False
        if decode == LATER:
            return any(self.can_serve(request, prefill, d) for d in engines if d != prefill)
        if decode not in engines or not self.is_permitted(prefill, decode):
            return False
        first = request if prefill == decode else replace(request, output=1)
        return self.engines[prefill].fits(first) and self.engines[decode].fits(request)

    # --- asking

    def _route(self, r: int, now: float) -> None:
        self.now, request = now, self.requests[r]
        if r not in self.arrived_at:
            self.arrived_at[r] = now
            self._release_followers(r, release_by_start=True)
        if r in self.hand_overs:
            self._place_decode(r, now)
            return
        engines = range(len(self.engines))
        if not any(self.can_serve(request, p, d) for p in engines for d in engines):
            self._reject(r, now)
            return
        view = self._look(r, now)
        placement = self.placer.place(view, r)
        if placement is None:
            self.waiting.append(r)
            return
        prefill, decode = placement.prefill, placement.decode
        self._note(r, prefill, decode if request.output > 1 else LATER, now)
        if not self.can_serve(request, prefill, decode):
            self._reject(r, now)
            return
        hit = view.hit_tokens[prefill]
        if prefill == decode or request.output == 1:
            self._dispatch(Job(r, request, now, hit), prefill)
            return
        first = Job(r, replace(request, output=1), now, hit)
        second = Job(r, request, now, request.prompt, emitted=1)
        self.hand_overs[r] = HandOver(first, prefill, second, decode)
        self.engines[prefill].hands_over.add(r)
        self._dispatch(first, prefill)
        if decode != LATER:
            self.router.send(second, decode)

    def _dispatch(self, job: Job, engine: int) -> None:
        self.on_engine[job.r] = engine
        self.router.send(job, engine)
        self.engines[engine].enqueue(job)

    def _place_decode(self, r: int, now: float) -> None:
        one = self.hand_overs[r]
        decode = self.placer.place_decode(self._look(r, now), r)
        if decode is None:
            self.waiting.append(r)
            return
        self._note(r, LATER, decode, now)
        if (
            decode == one.prefill
            or decode == LATER
            or not self.can_serve(self.requests[r], one.prefill, decode)
        ):
            self.engines[one.prefill].let_go(one.first)
            del self.hand_overs[r], self.on_engine[r]
            self._reject(r, now)
            return
        one.decode = decode
        self.router.send(one.second, decode)
        self._take_over(one)

    def _look(self, r: int, now: float) -> PoolView:
        gateway = self.router.gateways.index(self.router.gateway_of(r))
        return PoolView(**vars(self.router.look(r, now)), last_decode=self.last_decode.get(gateway, -1))

    def _note(self, r: int, prefill: int, decode: int, now: float) -> None:
        gateway = self.router.gateway_of(r)
        last = gateway.last_chosen
        for engine in dict.fromkeys((prefill, decode)):
            if engine in range(len(self.engines)):
                self.router.choose(r, engine, now)
        gateway.last_chosen = last if prefill == LATER else prefill
        if decode != LATER:
            self.last_decode[self.router.gateways.index(gateway)] = decode

    def _reject(self, r: int, now: float) -> None:
        self.results[r] = PoolResult("rejected", -1, self.arrived_at[r])
        self._ended(r, now)

    def _ended(self, r: int, now: float) -> None:
        self.placer.ended(r)
        self.arrivals += [(now, waiting) for waiting in self.waiting]
        self.arrivals.sort()
        self.waiting = []
        super()._ended(r, now)

    # --- handing over

    def _end(self, job: Job, now: float) -> None:
        one = self.hand_overs.get(job.r)
        if one is not None and job is one.first:
            self.router.end(job, one.prefill)
            one.second.arrival = one.second.first_token = now
            one.second.token_times = [now]
            if one.decode == LATER:
                self.arrivals.append((now, job.r))
                self.arrivals.sort()
            else:
                self._take_over(one)
            return
        engine = self.on_engine.pop(job.r)
        self.router.end(job, engine)
        first = one.first if one is not None else job
        result = PoolResult(
            "done", one.prefill if one is not None else engine, self.arrived_at[job.r], first.scheduled,
            job.first_token, now, first.hit, job.prefilled, job.preemptions, job.token_times,
            decode_engine=engine, sent=first.arrival,
        )  # fmt: skip
        if one is not None:
            del self.hand_overs[job.r]
            result.decode_prefilled, result.decode_preemptions = job.prefilled, job.preemptions
            result.prefilled += first.prefilled
            result.preemptions += first.preemptions
            result.decode_hit, result.moved, result.moves = job.hit, one.moved, 1
            result.transfer_began, result.transfer_ended = one.began, one.ended
        self.results[job.r] = result
        self._ended(job.r, now)

    def _take_over(self, one: HandOver) -> None:
        one.second.hit_at_dispatch = one.second.length  # nothing to prefill
        self.on_engine[one.second.r] = one.decode
        self.engines[one.decode].take_over(one.second)

    def _move(self, job: Job, tokens: int) -> None:
        one = self.hand_overs[job.r]
        one.moved, one.began = tokens, job.scheduled
        work = tokens * self.bytes_per_token / self.network.bytes_per_s
        self.link.start(job.r, one.decode, work, self.network.latency_s)
        if self._transfers_end(job.scheduled):
            self.again = job.scheduled  # an engine that has had its turn may have room now

    def _transfers_end(self, now: float) -> bool:
        ended = self.link.advance(now)
        for r in ended:
            one = self.hand_overs[r]
            one.ended = now
            self.engines[one.prefill].let_go(one.first)
            self.engines[one.decode].has_come(one.second, now)
        return bool(ended)

    def _next_event(self) -> float:
        again, self.again = self.again, math.inf
        return min(super()._next_event(), self.link.next_due(), again)
