"""The text of messages seen lately, so that a prompt that repeats them is compared instead of parsed.

A JSON array of messages is followed from its start: at a message, the candidates are those that came after
the same messages and begin with the same bytes; if one of them stands there whole, it is that message, since
no JSON object or string begins with another. Comparing is some ten times faster than parsing and hashing.
From the third message on, the last prompt of a conversation is compared in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_HEAD = 96  # bytes: past the role, into the text
_BUDGET = 3 << 20  # bytes of text in each of two generations of messages, and of whole conversations
_FORK = 2  # messages, system prompt and first question, after which conversations differ
_MAX_RUNS = 4  # that begin with the same two messages
_SPACE = b" \t\r\n,"
_CLOSED = (b"}", b'"')  # how a value ends that no longer one begins with (1 begins 12)


class _Known(NamedTuple):
    """A message, or several as they stand in an array, and the node that they lead to."""

    text: bytes
    node: int
    n_messages: int = 1


class Recent:
    """Messages by (node above, first bytes). What is not met while 3 MB of others are, is forgotten."""

    def __init__(self) -> None:
        self._young: dict[tuple[int, bytes], list[_Known]] = {}
        self._old: dict[tuple[int, bytes], list[_Known]] = {}
        self._n_bytes = 0
        self._runs: dict[int, list[_Known]] = {}  # by node of the fork
        self._n_run_bytes = 0
        self._fork: tuple[int, int] | None = None  # (node, place in the array) of the prompt followed last

    def follow(self, node: int, array: bytes) -> tuple[int, int, int]:
        """From `node` along the JSON array: (last node known, messages passed, where the next one begins).

        The place is 0 when nothing is known, and that of the closing bracket when everything is.
        """
        n, at = 0, _skip(array, 1)
        get = self._young.get
        self._fork = None
        while True:
            found = None
            if n == _FORK:
                self._fork = node, at
                found = _longest(self._runs.get(node, ()), array, at)
            if found is None:
                head = array[at : at + _HEAD]
                for known in get((node, head), ()):
                    if array.startswith(known.text, at):
                        found = known
                        break
            if found is None and (found := self._look_further(node, array, at, head)) is None:
                return node, n, at if n else 0
            node, n, at = found.node, n + found.n_messages, at + len(found.text)
            if array.startswith(b", ", at):
                at += 2
            else:
                at = _skip(array, at)

    def keep(self, above: int, text: bytes, node: int) -> None:
        """Remember the message `text` that leads from `above` to `node`."""
        if text[-1:] not in _CLOSED or len(text) > _BUDGET:
            return
        self._n_bytes += len(text) + 200
        if self._n_bytes > _BUDGET:
            self._old, self._young, self._n_bytes = self._young, {}, len(text)
        self._young.setdefault((above, text[:_HEAD]), []).append(_Known(text, node))

    def keep_run(self, array: bytes, node: int, n_messages: int) -> None:
        """Remember the whole prompt that was followed last, in place of those that it goes on from."""
        text = array[self._fork[1] : array.rfind(b"]")].rstrip() if self._fork else b""
        if self._fork is None or text[-1:] not in _CLOSED:
            return
        self._n_run_bytes += len(text)
        if self._n_run_bytes > _BUDGET:
            self._runs.clear()
            self._n_run_bytes = len(text)
        before = self._runs.get(self._fork[0], [])
        others = [run for run in before if not text.startswith(run.text)][-_MAX_RUNS + 1 :]
        self._n_run_bytes -= sum(len(run.text) for run in before) - sum(len(run.text) for run in others)
        self._runs[self._fork[0]] = [*others, _Known(text, node, n_messages - _FORK)]

    def _look_further(self, above: int, array: bytes, at: int, head: bytes) -> _Known | None:
        """Among messages shorter than a head, and those not met for a while."""
        short = array[at : array.find(b"}", at, at + _HEAD) + 1]
        for key in ((above, head), (above, short)):
            for known in self._young.get(key, ()):
                if array.startswith(known.text, at):
                    return known
            for known in self._old.get(key, ()):
                if array.startswith(known.text, at):
                    self.keep(above, known.text, known.node)
                    return known
        return None


def _longest(runs: Sequence[_Known], array: bytes, at: int) -> _Known | None:
    fitting = [run for run in runs if array.startswith(run.text, at)]
    return max(fitting, key=lambda run: len(run.text), default=None)


def _skip(array: bytes, at: int) -> int:
    """Past white space and commas."""
    while at < len(array) and array[at] in _SPACE:
        at += 1
    return at
