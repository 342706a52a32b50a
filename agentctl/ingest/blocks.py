"""Tokens per block, when a log does not say: the sizes that fit every row's length and list size.

A row with n ids and p prompt tokens fits size B when n = ceil(p / B) (a partial last block has an id) or
n = floor(p / B) (it has none); one of the two rules must hold for the whole log.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import InputError

_STEP = 16  # engines use multiples of 16 tokens
_NO_LIMIT = 1 << 40


@dataclass
class _Range:
    low: int = 1
    high: int = _NO_LIMIT
    conflict: str | None = None  # the first row after which nothing fits

    def narrow(self, low: NDArray[np.int64], high: NDArray[np.int64], lines: NDArray, name: str) -> None:
        if self.conflict or not low.size:
            return
        new_low, new_high = max(self.low, int(low.max())), min(self.high, int(high.min()))
        if new_low > new_high:
            lows, highs = np.maximum.accumulate(low), np.minimum.accumulate(high)
            first = np.argmax(np.maximum(lows, self.low) > np.minimum(highs, self.high))
            self.conflict = f"{name}:{lines[first]}"
        self.low, self.high = new_low, new_high


@dataclass
class BlockSizes:
    """The block sizes still possible after the rows seen so far; merge the ranges of several files."""

    with_tail: _Range = field(default_factory=_Range)
    full_only: _Range = field(default_factory=_Range)
    n_rows: int = 0

    def see(self, prompt: NDArray[np.int64], n_ids: NDArray[np.int64], lines: NDArray, name: str) -> None:
        """Rows with known lengths; an empty list says nothing."""
        use = (n_ids > 0) & (prompt > 0)
        p, n = prompt[use], n_ids[use]
        self.n_rows += p.size
        below = np.maximum(n - 1, 1)
        high = np.where(n > 1, -(-p // below) - 1, _NO_LIMIT)
        self.with_tail.narrow(-(-p // n), high, lines[use], name)
        self.full_only.narrow(p // (n + 1) + 1, p // n, lines[use], name)

    def merge(self, other: BlockSizes) -> None:
        for mine, theirs in ((self.with_tail, other.with_tail), (self.full_only, other.full_only)):
            mine.low, mine.high = max(mine.low, theirs.low), min(mine.high, theirs.high)
            mine.conflict = mine.conflict or theirs.conflict
        self.n_rows += other.n_rows

    def choose(self) -> int | None:
        """The one multiple of 16 that fits every row; None when no row has ids. Raises InputError."""
        if not self.n_rows:
            return None
        fits: set[int] = set()
        for sizes in (self.with_tail, self.full_only):
            first = -(-sizes.low // _STEP) * _STEP
            fits.update(range(first, min(sizes.high, first + 8 * _STEP) + 1, _STEP))
        if len(fits) == 1:
            return fits.pop()
        if not fits:
            place = self.with_tail.conflict or self.full_only.conflict
            raise InputError(
                "no block size that is a multiple of 16 fits prompt length and number of block ids",
                place=place,
                expected="ceil or floor of prompt tokens / block size ids on every row",
                hint="--block-tokens N sets the size; rows that do not fit it are then set aside",
            )
        some = ", ".join(str(size) for size in sorted(fits)[:4])
        raise InputError(
            f"several block sizes fit every row ({some}{', ...' if len(fits) > 4 else ''})",
            hint="--block-tokens N chooses one",
        )


def fits_block(prompt: NDArray[np.int64], n_ids: NDArray[np.int64], block_tokens: int) -> NDArray[np.bool_]:
    """Rows with ceil or floor of prompt / block_tokens ids; empty lists and unknown prompts pass."""
    full = prompt // block_tokens
    return (n_ids == 0) | (prompt < 0) | (n_ids == full) | (n_ids == -(-prompt // block_tokens))
