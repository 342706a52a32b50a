"""Requests that have begun and may still end, for logs in which the end stands on a later line.

They leave in the order of their beginnings, when they have ended, or when too many or too large ones wait:
then the oldest leaves as it is. Memory is bounded, and what comes out depends on the log alone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar

from agentctl.formats._containers import Line, unwrapped
from agentctl.formats.base import Batch, Reading
from agentctl.ingest.source import Chunk

MAX_OPEN = 1 << 14
MAX_OPEN_BYTES = 16 << 20
_MAX_ENDED = 1 << 14


class Begun(Protocol):
    key: object  # by which its end is found
    has_ended: bool
    size: int  # bytes, about


T = TypeVar("T", bound=Begun)


class Window(Generic[T]):
    """`find` gives the latest request of a key that has not left; `knows` also those that left recently."""

    def __init__(self, max_open: int = MAX_OPEN, max_bytes: int = MAX_OPEN_BYTES) -> None:
        self._max_open, self._max_bytes = max_open, max_bytes
        self._open: OrderedDict[int, T] = OrderedDict()  # by number
        self._number: dict[object, int] = {}
        self._left: OrderedDict[object, None] = OrderedDict()
        self._n_begun = self._bytes = 0

    def begin(self, request: T) -> None:
        self._open[self._n_begun] = request
        self._number[request.key] = self._n_begun
        self._n_begun += 1
        self._bytes += request.size

    def find(self, key: object) -> T | None:
        number = self._number.get(key)
        return None if number is None else self._open[number]

    def knows(self, key: object) -> bool:
        return key in self._number or key in self._left

    def leaving(self, is_last: bool = False) -> Iterator[T]:
        """Those whose turn it is; all of them at the end of the log."""
        while self._open:
            number, request = next(iter(self._open.items()))
            is_full = len(self._open) > self._max_open or self._bytes > self._max_bytes
            if not (request.has_ended or is_full or is_last):
                return
            del self._open[number]
            self._bytes -= request.size
            if self._number.get(request.key) == number:
                del self._number[request.key]
            self._left[request.key] = None
            if len(self._left) > _MAX_ENDED:
                self._left.popitem(last=False)
            yield request


class WindowedLog(Protocol[T]):
    def read(self, chunk: Chunk, line: Line) -> None:
        """Account for one line."""

    def leaving(self, is_last: bool = False) -> Iterator[T]:
        """Requests whose turn it is."""

    def batch(self, requests: list[T]) -> Batch: ...

    def warn(self) -> None:
        """Say what the log left open."""


def read_windowed(reading: Reading, log: WindowedLog[T]) -> Iterator[Batch]:
    """A log of text line by line, and its requests as they leave."""
    for chunk, lines in unwrapped(reading):
        for line in lines:
            log.read(chunk, line)
        if requests := list(log.leaving()):
            yield log.batch(requests)
    if requests := list(log.leaving(is_last=True)):
        yield log.batch(requests)
    log.warn()
