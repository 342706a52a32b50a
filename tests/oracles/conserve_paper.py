"""How ConServe's authors ran it: one prefill engine as a queue of its own, and turns misplaced on purpose.

Source: github.com/eicchen/conserve @ 4ab277d (Apache-2.0); Qwen3-0.6B on A40s. Seconds and tokens.

The prefill engine serves first turns one at a time, in order of arrival, in b_prefill times their tokens. It
was fed faster than it serves; its completions are when sessions ask for a decoder. What happens before a
session has one, the queue for the prefill engine and the wait for KV, is in no latency. A wrong turn does
wait in that queue: it stands behind all that came before it, and all that comes after it stands behind its
cached prefill. Both in one queue is how the published gap comes about. Turn 0's own prefill and transfer
(from `Served.start` on) are added to a session's times, its wait is not (`adaptive_correction` in their
s5_metrics.py).

The authors look wrong turns up in the times of a run without any: `Recorded` is that. A wrong turn waits for
all that was sent and not completed then, but not for other wrong turns, and delays only what is sent while it
is served, and that on paper: decoders never see it.
"""

from __future__ import annotations

from dataclasses import dataclass

PREFILL_S_PER_TOKEN = 4.0e-5  # 25,000 tokens per second
BLOCK_TOKENS = 16


def transfer(tokens: float) -> float:
    return 4.849e-3 if tokens <= 1024 else 5.27e-3 + 0.985e-6 * tokens


def cached_prefill(tokens: float) -> float:
    """Of a prompt that is found whole."""
    return 14.5e-3 if tokens <= 12_000 else 5.6e-3 + 0.95e-6 * tokens


def bookkeeping(tokens: float) -> float:
    return 2 * (2e-3 + 5e-6 * tokens / BLOCK_TOKENS)


def wrong_turn(history: float, appended: float) -> float:
    """What a turn sent to the prefill engine by mistake takes, but for the queue."""
    whole = history + appended
    return transfer(history) + cached_prefill(whole) + transfer(appended) + bookkeeping(whole)


@dataclass(frozen=True)
class Served:
    start: float
    end: float


class Prefiller:
    """First come, first served; to be asked in order of time."""

    def __init__(self) -> None:
        self.free_at = self.asked_at = 0.0

    def first_turn(self, now: float, tokens: float) -> Served:
        return self._serve(now, PREFILL_S_PER_TOKEN * tokens)

    def wrong_turn(self, now: float, history: float, appended: float) -> float:
        """When the session goes on, on its decoder."""
        queue = self._serve(now, cached_prefill(history + appended)).start - now
        return now + queue + wrong_turn(history, appended)

    def delay(self, sent: float) -> float:
        """What wrong turns add to a first turn outside of this queue: nothing."""
        return 0.0

    def _serve(self, now: float, service: float) -> Served:
        assert now >= self.asked_at
        start = max(now, self.free_at)
        self.asked_at, self.free_at = now, start + service
        return Served(start, self.free_at)


class Recorded(Prefiller):
    """virtual_prefiller.py: first turns as if no turn were ever wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[float, float]] = []  # sent, and how long until it had moved
        self.blocked: list[tuple[float, float]] = []  # by wrong turns

    def first_turn(self, now: float, tokens: float) -> Served:
        served = super().first_turn(now, tokens)
        self.seen.append((now, served.end + transfer(tokens) - now))
        return served

    def wrong_turn(self, now: float, history: float, appended: float) -> float:
        free = now
        for sent, lasted in self.seen:
            sent += self.delay(sent)
            if sent <= now < sent + lasted:
                free = max(free, sent + lasted)
        self.blocked.append((free, free + cached_prefill(history + appended)))
        return free + wrong_turn(history, appended)

    def delay(self, sent: float) -> float:
        at = sent
        while inside := [end for start, end in self.blocked if start <= at < end]:
            at = max(inside)
        return at - sent
