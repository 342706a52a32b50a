"""ConServe and its baselines as their authors ran them, each conversation followed like their own client.

Source: github.com/eicchen/conserve @ 4ab277d (Apache-2.0), `conserve/src`, and the figures' `s5_metrics.py`.
Every turn of a conversation is sent when the one before has ended; outputs have the length of the trace.
Engines are vLLM's as far as times go: one line per engine, served in order within the budget of a batch, a
turn finds all whole blocks of what its conversation has computed there. No engine ever runs out of blocks
(the authors' first turns share four long prompts): what is short is the clients' own count of tokens.

    conserve        first turns go through the prefill engine (conserve_paper.Prefiller), which is fed faster
                    than it serves. What it completes is moved and then asks for a decoder
    collocated      asks for one of all engines when the prefill engine would have begun; no prefill engine
    disaggregated   every turn asks for room on a decoder, then on the prefill engine, is computed there from
                    its first token on, moved and decoded; the first turn comes as in collocated

Asking: the client looks every 50 ms, each on a phase of its own, and takes the engine with the most free
tokens if they suffice (ties: the lowest number). Nobody is before anybody.

Reservations: conserve_paper's rules are those of reference_placement.Needs. A wrong turn (`wrong`) reserves,
then waits for the prefill engine and its cost, then is served by its decoder like any other.

Clocks: a turn is `sent` when the client sends it. What a first turn waited before does not count, neither for
the prefill engine nor for room; the time in which it was prefilled and moved (`before`) does, once.

At one instant: batches that end; conversations whose turn ended, by number; those that slept, by number;
engines that start.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import dataclass, field

from oracles.conserve_paper import BLOCK_TOKENS, PREFILL_S_PER_TOKEN, Prefiller, transfer

POLL_S = 0.05
BUDGET = 308_448  # tokens of KV per engine


@dataclass
class Conversation:
    """`at`: when it is sent to the prefill engine. By turn: tokens new in the prompt, and the output."""

    at: float
    fresh: list[int]
    output: list[int]
    wrong: set[int] = field(default_factory=set)  # turns, never the first

    def prompt(self, k: int) -> int:
        return sum(self.fresh[: k + 1]) + sum(self.output[:k])


@dataclass
class Turn:
    sent: float
    token_times: list[float] = field(default_factory=list)

    @property
    def first_token(self) -> float:
        return self.token_times[0]

    @property
    def end(self) -> float:
        return self.token_times[-1]


@dataclass
class Result:
    engine: int = -1
    before: float = 0.0  # its own prefill and transfer
    asked: float = math.nan  # for room, first
    turns: list[Turn] = field(default_factory=list)
    moves: int = 0
    moved: int = 0  # tokens

    @property
    def ttfet(self) -> float:
        return self.before + self.turns[-1].first_token - self.turns[0].sent

    @property
    def e2e(self) -> float:
        return self.before + self.turns[-1].end - self.turns[0].sent


@dataclass(frozen=True)
class Coefficients:
    h0: float = 14.33e-3
    b0: float = 5.27e-3
    b_prefill: float = PREFILL_S_PER_TOKEN
    b_decode: float = 5.6e-5
    b_context: float = 1.88e-7


@dataclass
class Job:
    session: int
    turn: Turn
    context: int  # tokens whose KV is here
    left: int  # tokens to compute before the next one is out
    output: int


class Engine:
    def __init__(self, coefficients: Coefficients, batch_tokens: int):
        self.c, self.batch_tokens = coefficients, batch_tokens
        self.line: list[Job] = []
        self.batch: list[tuple[Job, int]] = []
        self.ends = math.inf
        self.prefill_s = self.read_s = self.busy_s = 0.0

    def start(self, now: float) -> None:
        budget = self.batch_tokens
        for job in self.line:
            tokens = min(job.left, budget)
            if tokens > 0:
                self.batch.append((job, tokens))
            budget -= tokens
        if not self.batch:
            return
        decodes = [job for job, _ in self.batch if job.turn.token_times]
        prefill = sum(tokens for job, tokens in self.batch if not job.turn.token_times)
        c, context = self.c, sum(job.context for job in decodes)
        gpu = c.b0 + c.b_prefill * prefill + c.b_decode * len(decodes) + c.b_context * context
        self.ends = now + max(gpu, c.h0)
        self.prefill_s += c.b_prefill * prefill
        self.read_s += c.b_decode * len(decodes) + c.b_context * context
        self.busy_s += max(gpu, c.h0)

    def finish(self) -> list[int]:
        """Sessions whose turn has ended."""
        now, batch, ended = self.ends, self.batch, []
        self.ends, self.batch = math.inf, []
        for job, tokens in batch:
            job.context += tokens
            job.left -= tokens
            if job.left == 0:
                job.turn.token_times.append(now)
                job.left = 1
                if len(job.turn.token_times) == job.output:
                    self.line.remove(job)
                    ended.append(job.session)
        return ended


class Tracker:
    """The client's count of tokens per engine."""

    def __init__(self, engines: int, budget: int):
        self.budget, self.used = budget, [0] * engines

    def take(self, need: int) -> int | None:
        free = [self.budget - used for used in self.used]
        engine = free.index(max(free))
        if free[engine] < need:
            return None
        self.used[engine] += need
        return engine


@dataclass(frozen=True)
class Until:
    """A conversation sleeps."""

    time: float


@dataclass(frozen=True)
class Serve:
    """A conversation waits for a turn."""

    engine: int
    job: Job


Client = Generator[Until | Serve, None, None]


class Run:
    """`kv`: oracle | per_turn | quantile, for ConServe; `prefiller`: what wrong turns do in its queue;
    `history_start`: tokens that the cost of a wrong turn counts before the session's own."""

    def __init__(
        self,
        conversations: list[Conversation],
        policy: str,
        engines: int,
        kv: str = "oracle",
        quantile: float = 0.9,
        budget: int = BUDGET,
        coefficients: Coefficients = Coefficients(),
        batch_tokens: int = 2944,
        prefiller: Prefiller | None = None,
        history_start: int = 0,
    ):
        self.conversations, self.kv, self.quantile = conversations, kv, quantile
        self.now = 0.0
        self.engines = [Engine(coefficients, batch_tokens) for _ in range(engines)]
        self.tracker = Tracker(engines, budget)
        self.prefill_room = Tracker(1, budget)
        self.prefiller = prefiller or Prefiller()
        self.feed = Prefiller()  # when first turns would have begun
        self.history_start = history_start
        self.finals: list[int] = []
        self.results = [Result() for _ in conversations]
        client = getattr(self, f"_{policy}")  # conserve | collocated | disaggregated
        self.clients: list[Client] = [client(s) for s in range(len(conversations))]
        self.wakes: list[float] = [math.inf] * len(conversations)

    def run(self) -> list[Result]:
        for s in range(len(self.clients)):
            self._resume(s)
        while (now := min([*(engine.ends for engine in self.engines), *self.wakes])) < math.inf:
            self.now = now
            ended = [s for engine in self.engines if engine.ends == now for s in engine.finish()]
            for s in sorted(ended):
                self._resume(s)
            while now in self.wakes:
                s = self.wakes.index(now)
                self.wakes[s] = math.inf
                self._resume(s)
            for engine in self.engines:
                if engine.ends == math.inf:
                    engine.start(now)
        for talk, result in zip(self.conversations, self.results, strict=True):
            result.before += self.prefiller.delay(talk.at)
        return self.results

    def _resume(self, s: int) -> None:
        wish = next(self.clients[s], None)
        if isinstance(wish, Until):
            self.wakes[s] = wish.time
        elif isinstance(wish, Serve):
            self.engines[wish.engine].line.append(wish.job)

    # --- the three clients

    def _conserve(self, s: int) -> Client:
        talk, result = self.conversations[s], self.results[s]
        yield Until(talk.at)
        served = self.prefiller.first_turn(self.now, talk.fresh[0])
        here = served.end + transfer(talk.fresh[0])
        result.before, result.moves, result.moved = here - served.start, 1, talk.fresh[0]
        yield Until(here)
        held = self._need(talk)
        result.engine = yield from self._room(s, self.tracker, held)
        for k in range(len(talk.fresh)):
            if k > 0 and self.kv != "oracle":
                so_far = talk.prompt(k) + talk.output[k]
                more = max(0, so_far - held)
                self.tracker.used[result.engine] += more
                held += more
            if k in talk.wrong:
                history = self.history_start + talk.prompt(k) - talk.fresh[k]
                yield Until(self.prefiller.wrong_turn(self.now, history, talk.fresh[k]))
            yield self._turn(s, k, found=talk.prompt(0) if k == 0 else None)
        self.tracker.used[result.engine] -= held
        self.finals.append(talk.prompt(k) + talk.output[k])

    def _collocated(self, s: int) -> Client:
        talk, result = self.conversations[s], self.results[s]
        yield Until(talk.at)
        yield Until(self.feed.first_turn(self.now, talk.fresh[0]).start)
        held = talk.prompt(len(talk.fresh) - 1) + talk.output[-1]
        result.engine = yield from self._room(s, self.tracker, held)
        for k in range(len(talk.fresh)):
            yield self._turn(s, k, found=0 if k == 0 else None)
        self.tracker.used[result.engine] -= held

    def _disaggregated(self, s: int) -> Client:
        talk, result = self.conversations[s], self.results[s]
        yield Until(talk.at)
        yield Until(self.feed.first_turn(self.now, talk.fresh[0]).start)
        for k in range(len(talk.fresh)):
            prompt, need = talk.prompt(k), talk.prompt(k) + talk.output[k]
            yield Until(self.now)
            result.engine = yield from self._room(s, self.tracker, need)
            yield from self._room(s, self.prefill_room, prompt)
            turn = Turn(self.now)
            result.turns.append(turn)
            result.moves, result.moved = result.moves + 1, result.moved + prompt
            yield Until(self.prefiller.first_turn(self.now, prompt).end + transfer(prompt))
            yield Serve(result.engine, Job(s, turn, prompt - 1, 1, talk.output[k]))
            self.tracker.used[result.engine] -= need
            self.prefill_room.used[0] -= prompt

    # --- what they do

    def _need(self, talk: Conversation) -> int:
        first, whole = talk.fresh[0] + talk.output[0], sum(talk.fresh) + sum(talk.output)
        if self.kv == "oracle":
            return whole
        if self.kv == "quantile" and self.finals:
            rank = max(math.ceil(self.quantile * len(self.finals)), 1)
            return max(first, sorted(self.finals)[rank - 1])
        return first

    def _room(self, s: int, tracker: Tracker, need: int) -> Generator[Until, None, int]:
        began, looks = self.now, 0
        if math.isnan(self.results[s].asked):
            self.results[s].asked = began
        while (engine := tracker.take(need)) is None:
            looks += 1
            yield Until(began + looks * POLL_S)
        return engine

    def _turn(self, s: int, k: int, found: int | None) -> Serve:
        """Found: tokens that are here already; None: what the turn before has left."""
        talk, result = self.conversations[s], self.results[s]
        prompt = talk.prompt(k)
        if found is None:
            found = talk.prompt(k - 1) + talk.output[k - 1] - 1  # its last token has no KV
        hit = BLOCK_TOKENS * (min(found, prompt - 1) // BLOCK_TOKENS)
        turn = Turn(self.now)
        result.turns.append(turn)
        return Serve(result.engine, Job(s, turn, hit, prompt - hit, talk.output[k]))
