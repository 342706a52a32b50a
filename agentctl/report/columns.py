"""How wide the columns of a table are: numbers are never cut, headers break before cells do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

NARROW = 24  # text up to this width stays on one line while there is room


class Column(NamedTuple):
    """A column as it will be written."""

    head: str
    cells: tuple[str, ...]
    is_text: bool

    def longest_word(self, *, tight: bool) -> int:
        """The least width: a number as a whole, a header by its words; short text breaks only if `tight`."""
        longest = max((len(cell) for cell in self.cells), default=0)
        if self.is_text and (tight or longest > NARROW):
            longest = max((len(word) for cell in self.cells for word in cell.split()), default=0)
        return max(longest, *(len(word) for word in self.head.split() or [""]))

    @property
    def wish(self) -> int:
        """The width at which nothing breaks."""
        return max(len(self.head), *(len(cell) for cell in self.cells or [""]))


def widths(columns: Sequence[Column], room: int) -> list[int]:
    """One width per column; together at most `room`, unless the least widths need more."""
    found = [column.longest_word(tight=False) for column in columns]
    if sum(found) > room:
        found = [column.longest_word(tight=True) for column in columns]
    growing = True
    while sum(found) < room and growing:
        growing = False
        for position, column in enumerate(columns):
            if found[position] < column.wish and sum(found) < room:
                found[position] += 1
                growing = True
    return found
