"""Which batches an engine is made to compute, so that every coefficient of the batch-time model shows.

cold    fresh prompts, alone and several at once: fixed cost, slope and squares of a prefill, chunk by chunk
suffix  fresh tokens after a cached prefix: pairs and past tell each other apart
decode  n decodes on n distinct contexts (over one shared prompt they look several times cheaper: kernels
        read shared KV once); widths at the sizes of captured graphs and between them
mixed   fresh tokens beside running decodes

A context is the beginning of one of the streams 0, 1, ...: longer and shorter ones share their cached blocks,
so that each stream is computed once. Contexts are whole blocks and one token, which is all that is left to
compute when they come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

CONTEXTS = (64, 512, 1024, 2048, 4096, 8192, 16384, 32768)
WIDTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)
COLD = (8, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
TOGETHER = ((4, 32), (8, 64), (2, 256), (4, 128), (3, 512))  # prompts at once, tokens of each
FRESH = (16, 128, 512)
BESIDE = (32, 192, 768)
ROUNDS = 3
STEPS = 4  # decode steps that are recorded of one composition
KV_SHARE = 0.7  # of the pool for contexts: nothing is preempted
WIDE = 6  # widths for each context but the shortest, which takes all
MOST_BETWEEN = 6


class Scene(NamedTuple):
    """`n` decodes on streams 0..n-1 of `context` tokens each, and `fresh` prompts after `past` cached ones.

    A scene without decodes is over when its prompts are computed, one without prompts after STEPS decodes.
    """

    name: str
    kind: str  # cold | suffix | decode | mixed
    n: int = 0
    context: int = 0
    fresh: tuple[int, ...] = ()
    past: int = 0

    @property
    def tokens(self) -> int:
        """About how much work it is, contexts that are cached excepted."""
        return sum(self.fresh) + (STEPS + 2) * self.n + 64


@dataclass(frozen=True)
class Room:
    """What the engine can take: its limits, as it says them itself, and how long a context may be."""

    block_tokens: int
    kv_blocks: int
    max_num_batched_tokens: int
    max_num_seqs: int
    max_context: int  # tokens of a request
    context_tokens: int  # of all contexts together
    captured: tuple[int, ...] = ()  # batch sizes of captured graphs

    @classmethod
    def of(cls, table: dict[str, Any]) -> Room:
        return cls(**{**table, "captured": tuple(table.get("captured", ()))})

    def table(self) -> dict[str, Any]:
        return {**asdict(self), "captured": list(self.captured)}

    def holds(self, n: int, context: int, beside: int = 0) -> bool:
        tokens = n * (context + self.block_tokens) + beside
        pool = KV_SHARE * (self.kv_blocks - 1) * self.block_tokens
        fits = context + max(beside, STEPS) + self.block_tokens <= self.max_context
        return n <= self.max_num_seqs and fits and n * context <= self.context_tokens and tokens <= pool


def scenes(room: Room) -> list[Scene]:
    """Each composition once."""
    found = [*_cold(room), *_suffixes(room), *_decodes(room), *_mixed(room)]
    assert len({one.name for one in found}) == len(found), "a scene's name says what it is"
    return found


def rounds(room: Room, seed: int) -> list[list[Scene]]:
    """All scenes ROUNDS times, each time in another order: a disturbance of minutes spoils no kind alone."""
    every, random = scenes(room), np.random.default_rng(seed)
    return [[every[i] for i in random.permutation(len(every))] for _ in range(ROUNDS)]


def _cold(room: Room) -> Iterable[Scene]:
    for tokens in COLD:
        if room.holds(1, tokens):
            yield Scene(f"cold-{tokens}", "cold", fresh=(tokens,))
    for n, tokens in TOGETHER:
        if room.holds(n, tokens) and n * tokens <= room.max_num_batched_tokens:
            yield Scene(f"cold-{n}x{tokens}", "cold", fresh=(tokens,) * n)


def _suffixes(room: Room) -> Iterable[Scene]:
    for past in _contexts(room):
        for tokens in FRESH:
            if room.holds(1, past, tokens):
                yield Scene(f"suffix-{past}-{tokens}", "suffix", fresh=(tokens,), past=past)


def _decodes(room: Room) -> Iterable[Scene]:
    for i, context in enumerate(_contexts(room)):
        widths = [n for n in _widths(room) if room.holds(n, context)]
        for n in widths if i == 0 else spread(widths, WIDE):
            yield Scene(f"decode-{n}x{context}", "decode", n, context)


def _mixed(room: Room) -> Iterable[Scene]:
    for context in spread(_contexts(room), 3):
        for n in spread([n for n in _widths(room) if room.holds(n, context)], 3):
            for tokens in BESIDE:
                if n + tokens <= room.max_num_batched_tokens and room.holds(n + 1, context, tokens):
                    yield Scene(f"mixed-{n}x{context}-{tokens}", "mixed", n, context, (tokens,))


def _contexts(room: Room) -> list[int]:
    """Whole blocks and one token, about CONTEXTS."""
    size = room.block_tokens
    sizes = {max(1, round(tokens / size)) * size + 1 for tokens in CONTEXTS}
    return [tokens for tokens in sorted(sizes) if room.holds(1, tokens)]


def _widths(room: Room) -> list[int]:
    between = [(a + b) // 2 for a, b in pairwise(sorted(room.captured)) if b - a > 1]
    captured = [n for n in room.captured if n in WIDTHS]
    widths = {*(captured or WIDTHS), *spread(between, MOST_BETWEEN), 1, room.max_num_seqs}
    return sorted(n for n in widths if n <= min(room.max_num_seqs, WIDTHS[-1]))


def spread(values: Sequence[int], n: int) -> list[int]:
    """At most n of them, the first and the last among them."""
    if len(values) <= n:
        return list(values)
    return [values[i] for i in np.linspace(0, len(values) - 1, n).round().astype(int)]
