"""Steps of an engine as arrays: what each batch computed and read, and how long it took.

What a log does not say is NaN. A step is a batch of prefill chunks and decodes; a decode extends a sequence
by exactly its last sampled token, everything else is prefill.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import NamedTuple

import numpy as np

from agentctl.errors import InputError

Floats = np.ndarray
KINDS = ("prefill only", "decode only", "mixed")
PREFILL_ONLY, DECODE_ONLY, MIXED = range(3)
SHORTEST_S, LONGEST_S = 200e-6, 5.0  # a median step outside of these is in another unit
LONG = 1e9  # tokens; no batch has so many
MOST = {  # of a sum over one batch: beyond, it is no count of these things
    "prefill_tokens": LONG, "n_prefill": 1e6, "prefill_pairs": LONG**2, "prefill_context": LONG,
    "n_decode": 1e6, "decode_context": LONG, "prefill_squares": LONG**2, "sequence_tokens": LONG,
    "sequence_squares": LONG**2,
}  # fmt: skip
MIN_ROWS = 30  # fewer say nothing about six coefficients


class Chunk(NamedTuple):
    """One request's part of a step: `tokens` computed after `context` that had been before."""

    context: float
    tokens: float
    is_prefill: bool


@dataclass(frozen=True)
class Steps:
    """n steps in the order of the log; every field is float64[n], NaN where unknown."""

    seconds: Floats  # duration
    time_s: Floats  # when it began, any origin
    prefill_tokens: Floats  # sum over chunks of their length p
    n_prefill: Floats  # number of chunks
    prefill_pairs: Floats  # sum over chunks of p*c + p(p+1)/2 on a context of c tokens
    prefill_context: Floats  # sum over chunks of c
    n_decode: Floats
    decode_context: Floats  # sum over decodes of their context
    prefill_squares: Floats  # sum over chunks of p^2, of the six-term model
    sequence_tokens: Floats  # sum over sequences of their length after the step
    sequence_squares: Floats  # sum over sequences of that length squared

    def __len__(self) -> int:
        return len(self.seconds)

    @property
    def kind(self) -> np.ndarray:
        """Position in KINDS, int64[n]."""
        mixed = np.where(self.n_decode == 0, PREFILL_ONLY, MIXED)
        return np.where(self.n_prefill == 0, DECODE_ONLY, mixed)

    @property
    def tokens(self) -> Floats:
        return self.prefill_tokens + self.n_decode

    def at(self, which: np.ndarray) -> Steps:
        """Those of a mask or of positions."""
        return Steps(**{field.name: getattr(self, field.name)[which] for field in fields(self)})


def steps_of(n: int, **columns: Floats | Sequence[float]) -> Steps:
    """Steps from the columns that are known; the others are NaN."""
    known = {name: np.asarray(values, np.float64) for name, values in columns.items()}
    names = [field.name for field in fields(Steps)]
    return Steps(**{name: known.get(name, np.full(n, np.nan)) for name in names})


def composed(batches: Sequence[Sequence[Chunk]], seconds: Sequence[float], time_s: Sequence[float]) -> Steps:
    """Steps from the whole composition of each; a batch holds Chunks, or [context, tokens, is_prefill]."""
    n = len(batches)
    flat = np.array([part for batch in batches for part in batch], np.float64).reshape(-1, 3)
    row = np.repeat(np.arange(n), [len(batch) for batch in batches])
    context, tokens, is_prefill = flat.T
    is_decode, length = 1 - is_prefill, context + tokens

    def total(of: Floats) -> Floats:
        return np.bincount(row, weights=of, minlength=n)

    return steps_of(
        n,
        seconds=seconds,
        time_s=time_s,
        prefill_tokens=total(is_prefill * tokens),
        n_prefill=total(is_prefill),
        prefill_pairs=total(is_prefill * (tokens * context + tokens * (tokens + 1) / 2)),
        prefill_context=total(is_prefill * context),
        n_decode=total(is_decode),
        decode_context=total(is_decode * context),
        prefill_squares=total(is_prefill * tokens**2),
        sequence_tokens=total(length),
        sequence_squares=total(length**2),
    )


def even_pairs(tokens: Floats, context: Floats, n: Floats) -> Floats:
    """Attention pairs of `n` chunks of which only the sums are known, taken as equal; exact for one chunk."""
    n = np.maximum(n, 1)
    with np.errstate(over="ignore"):  # sums that no batch has are refused later
        return tokens * context / n + tokens * (tokens / n + 1) / 2


def joined(parts: Sequence[Steps]) -> Steps:
    """The steps of several logs, one after the other."""
    names = [field.name for field in fields(Steps)]
    return Steps(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})


def _check_counts(steps: Steps, place: str) -> None:
    """Raise InputError for sums that no batch has; unknown ones pass."""
    hint = "the columns may be exchanged: --map OURS=THEIRS names them"
    for name in (field.name for field in fields(steps) if field.name not in ("seconds", "time_s")):
        values, most = getattr(steps, name), MOST[name]
        for wrong, fact in (values < 0, "is negative"), (values > most, f"is above {most:g}"):
            if wrong.any():
                first = int(np.flatnonzero(wrong)[0]) + 1
                raise InputError(
                    f"{name} {fact} in step {first:,}", place=place, expected="a count >= 0", hint=hint
                )
    for tokens, number in (("prefill_tokens", "n_prefill"), ("prefill_pairs", "n_prefill")):
        wrong = (getattr(steps, tokens) > 0) & (getattr(steps, number) == 0)
        if wrong.any():
            raise InputError(
                f"step {int(np.flatnonzero(wrong)[0]) + 1:,} has {tokens} and {number} is 0",
                place=place,
                expected=f"{number} of 1 or more beside {tokens}",
                hint=f"{hint}; a log that does not count chunks may leave {number} out",
            )


def checked(steps: Steps, place: str, min_rows: int = MIN_ROWS) -> Steps:
    """The steps in order of time; raises InputError for what no fit should see."""
    bad = ~(np.isfinite(steps.seconds) & (steps.seconds > 0))
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise InputError(
            f"{int(bad.sum()):,} of {len(steps):,} steps last NaN, zero or negative seconds, "
            f"the first is step {first + 1}",
            place=place,
            expected="a duration above 0 for each step",
            hint="take these rows out of the log; a clock that is set back makes negative ones",
        )
    _check_counts(steps, place)
    if len(steps) < max(min_rows, 1):
        raise InputError(
            f"holds {len(steps):,} step{'' if len(steps) == 1 else 's'}",
            place=place,
            expected=f"at least {max(min_rows, 1)}",
            hint="record for a few minutes under mixed load",
        )
    median = float(np.median(steps.seconds))
    if not SHORTEST_S <= median <= LONGEST_S:
        raise InputError(
            f"the median step lasts {median:.3g} s",
            place=place,
            expected=f"between {SHORTEST_S:g} and {LONGEST_S:g} s",
            hint="the unit is probably another: name the column with it (seconds, time_ms, time_us)",
        )
    if np.isfinite(steps.time_s).all():
        return steps.at(np.argsort(steps.time_s, kind="stable"))
    return replace(steps, time_s=np.full(len(steps), np.nan))
