"""The text of messages seen lately, so that a prompt that repeats them is compared instead of parsed.

A JSON array of messages is followed from its start: at a message, the candidates are those that came after
the same messages and begin with the same bytes; if one of them stands there whole, it is that message, since
no JSON object or string begins with another. Comparing is some ten times faster than parsing and hashing.
"""

from __future__ import annotations

from typing import NamedTuple

_HEAD = 96  # bytes: past the role, into the text
_BUDGET = 8 << 20  # bytes of text in each of two generations
_SPACE = b" \t\r\n,"
_END = ord("]")


class _Known(NamedTuple):
    text: bytes
    node: int


class Recent:
    """Messages by (node above, first bytes). What is not met while 8 MB of others are, is forgotten."""

    def __init__(self) -> None:
        self._young: dict[tuple[int, bytes], list[_Known]] = {}
        self._old: dict[tuple[int, bytes], list[_Known]] = {}
        self._n_bytes = 0

    def follow(self, node: int, array: bytes) -> tuple[int, int, int]:
        """From `node` along the JSON array: (last node known, messages passed, where the next one begins).

        The place is 0 when nothing is known, and that of the closing bracket when everything is.
        """
        n, at = 0, _skip(array, 1)
        get = self._young.get
        while True:
            head = array[at : at + _HEAD]
            found = None
            for known in get((node, head), ()):
                if array.startswith(known.text, at):
                    found = known
                    break
            if found is None and (found := self._look_further(node, array, at, head)) is None:
                return node, n, at if n else 0
            node, n, at = found.node, n + 1, at + len(found.text)
            if array.startswith(b", ", at):
                at += 2
            else:
                at = _skip(array, at)

    def keep(self, above: int, text: bytes, node: int) -> None:
        """Remember the message `text` that leads from `above` to `node`."""
        if text[-1:] not in (b"}", b'"') or len(text) > _BUDGET:  # 1 begins 12
            return
        self._n_bytes += len(text) + 200
        if self._n_bytes > _BUDGET:
            self._old, self._young, self._n_bytes = self._young, {}, len(text)
        self._young.setdefault((above, text[:_HEAD]), []).append(_Known(text, node))

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


def _skip(array: bytes, at: int) -> int:
    """Past white space and commas."""
    while at < len(array) and array[at] in _SPACE:
        at += 1
    return at
