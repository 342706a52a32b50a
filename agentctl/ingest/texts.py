"""Prompts to two trees of keyed hashes: whole messages, and pieces of their text.

The tree of *messages* tells which prompt continues which: a prompt is a path from the root of its cache group
and tools (a node of its own, no message) to the node of its last message; it is a proper prefix of another
exactly where its node is a proper ancestor of the other's. The tree of *units* has the text in pieces: a
step's worth of bytes or tokens counted from the start of the prompt, cut at the ends of messages, too, so
that prompts share exactly what they have in common up to whole messages. A unit's size is known; assembling
puts the units on the token grid (placing.py).

Agents send the same text again and again: only messages that were never seen after the same messages are cut,
tokenised and hashed in pieces. What is kept of a message is a number of state per node, never its text.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentctl.ingest.blake2b import chain, keyed_state
from agentctl.ingest.hashing import BLOCK, BYTES_PER_BLOCK, GROUP, MESSAGE, HashOptions
from agentctl.ingest.prompts import Prompt
from agentctl.ingest.recent import Recent
from agentctl.ingest.tokens import load_encoder
from agentctl.ingest.trie import Trie

_NO_TOOLS = (b"", b"null", b"[]")
_NO_STEP = 1 << 40  # a message is one piece
_MAX_ROOTS = 1 << 10
_PARTS = ("message_parent", "message_hash", "unit_parent", "unit_hash", "unit_size")


class Placed(NamedTuple):
    """Where the prompts of a batch are in the trees; -1 where a row has none."""

    message_node: NDArray[np.int64]  # of the last message
    unit_node: NDArray[np.int64]  # of the last piece of text
    reply_hash: NDArray[np.int64]  # of the node that its answer would be below message_node, halved
    n_messages: NDArray[np.int64]
    n_assistant: NDArray[np.int64]
    n_tools: NDArray[np.int64]
    cache_group: NDArray[np.int64]  # salted hash, -1 for the common group


class _Root(NamedTuple):
    node: int
    n_tools: int
    tools: bytes
    group: int  # hash of the cache group, where the chain of units begins


class _Role(msgspec.Struct):
    role: str | None = None


class Texts:
    """The two trees of an ingest run, growing by `add`. `sizes` of the units are in bytes or tokens."""

    def __init__(self, options: HashOptions) -> None:
        self.options = options
        self.messages, self.units = Trie(), Trie()
        self.sizes = array("I", [0])
        # by message node: last unit, length of the text up to there, assistant messages
        self._unit, self._length, self._n_assistant = array("I", [0]), array("Q", [0]), array("I", [0])
        self._roots: dict[tuple[str | None, bytes], _Root] = {}
        self._encoder = load_encoder(options.tokenizer) if options.level == "token" else None
        self._step = {"token": options.block_tokens, "bytes": BYTES_PER_BLOCK, "message": _NO_STEP}[
            options.level
        ]
        self._message_hash = options.hasher(MESSAGE)
        self._role = msgspec.json.Decoder(_Role)
        self._recent = Recent()

    @cached_property
    def _block_state(self) -> NDArray[np.uint64]:
        """Loads what is compiled, which takes a second or two: only for logs with text."""
        return keyed_state(self.options.salt, BLOCK)

    def add(self, prompts: Sequence[Prompt | None]) -> Placed:
        """Insert the prompts of a batch."""
        placed = Placed(*(np.full(len(prompts), -1, dtype=np.int64) for _ in Placed._fields))
        for row, prompt in enumerate(prompts):
            if prompt is None:
                continue
            root = self._root(prompt.group, prompt.tools)
            node, n_messages = self._recall(root, prompt.messages)
            if not n_messages:
                continue
            placed.message_node[row] = node
            placed.unit_node[row] = self._unit[node]
            if prompt.reply:
                placed.reply_hash[row] = self._below(node, prompt.reply) >> 1
            placed.n_messages[row] = n_messages
            placed.n_assistant[row] = self._n_assistant[node]
            placed.n_tools[row] = root.n_tools
            if prompt.group is not None:
                placed.cache_group[row] = root.group >> 1  # Parquet's own integers are signed here
        return placed

    def save(self, path: Path) -> None:
        """Leave the trees on disk, for the process that merges them."""
        for name, values in zip(_PARTS, self._parts(), strict=True):
            np.save(path.with_suffix(f".{name}.npy"), values, allow_pickle=False)

    def merge(self, path: Path) -> dict[str, NDArray[np.uint32]]:
        """Add what `save` left at `path`; returns the number here of each node there, by column."""
        parts = [np.load(path.with_suffix(f".{name}.npy"), mmap_mode="r") for name in _PARTS]
        messages, units = self.messages.merge(*parts[:2]), self.units.merge(*parts[2:4])
        self.sizes.extend([0] * (self.units.n_nodes + 1 - len(self.sizes)))
        np.frombuffer(self.sizes, dtype=np.uint32)[units] = parts[4]
        return {"message_node": messages, "unit_node": units}

    def stop(self) -> None:
        """Free what only `add` and `merge` need."""
        self._recent = Recent()
        self._roots.clear()
        self._unit = self._length = self._n_assistant = array("I")
        self.messages.drop_table()
        self.units.drop_table()

    def clear(self) -> None:
        """Free everything but the options."""
        self.stop()
        self.messages.clear()
        self.units.clear()
        self.sizes = array("I")

    def _parts(self) -> tuple[NDArray[Any], ...]:
        sizes = np.frombuffer(self.sizes, dtype=np.uint32)
        return self.messages.parent, self.messages.hash, self.units.parent, self.units.hash, sizes

    def _root(self, group: str | None, tools: bytes) -> _Root:
        """The node of a cache group with these tools."""
        tools = b"" if bytes(tools) in _NO_TOOLS else bytes(tools)
        known = self._roots.get((group, tools))
        if known is not None:
            return known
        start = self.options.hasher(GROUP, (group or "").encode()).digest()
        node, n_new = self.messages.extend(0, _numbers([self._chained(start, tools)]))
        root = _Root(node, _count(tools), tools, int.from_bytes(start, "little"))
        if n_new:
            unit, length = self._cut(root, 0, 0, tools) if self.options.tools_first else (0, 0)
            self._remember(unit, length, 0)
        if len(self._roots) >= _MAX_ROOTS:  # a log whose tools never repeat
            self._roots.clear()
        self._roots[group, tools] = root
        return root

    def _recall(self, root: _Root, messages: list[bytes] | bytes | msgspec.Raw) -> tuple[int, int]:
        """(node, number of messages) of a prompt: those seen lately are compared, only the rest is parsed."""
        if isinstance(messages, list):
            return (self._walk(root, root.node, messages) if messages else root.node), len(messages)
        messages = bytes(messages)
        node, n_known, at = self._recent.follow(root.node, messages)
        rest = split(b"[" + messages[at:]) if at else split(messages)
        if not rest:
            return node, n_known
        tip = self._walk(root, node, rest)
        last = tip
        for message in reversed(rest):
            above = int(self.messages.parent[last])
            self._recent.keep(above, message, last)
            last = above
        self._recent.keep_run(messages, tip, n_known + len(rest))
        return tip, n_known + len(rest)

    def _walk(self, root: _Root, node: int, messages: Sequence[bytes]) -> int:
        """The node that `messages` lead to from `node`."""
        digest = int(self.messages.hash[node]).to_bytes(8, "little")
        digests = []
        for message in messages:
            digest = self._chained(digest, message)
            digests.append(digest)
        tip, n_new = self.messages.extend(node, _numbers(digests))
        for k in range(n_new):
            new = tip - n_new + 1 + k
            self._see(root, int(self.messages.parent[new]), messages[len(messages) - n_new + k])
        return tip

    def _see(self, root: _Root, above: int, message: bytes) -> None:
        """Cut a message that is new after the messages up to the node `above`."""
        role = self._read_role(message)
        unit, length = self._unit[above], self._length[above]
        late_tools = b"" if self.options.tools_first or above != root.node else root.tools
        pieces = (message, late_tools) if role == "system" else (late_tools, message)
        for piece in filter(None, pieces):
            unit, length = self._cut(root, unit, length, piece)
        self._remember(unit, length, self._n_assistant[above] + (role == "assistant"))

    def _remember(self, unit: int, length: int, n_assistant: int) -> None:
        self._unit.append(unit)
        self._length.append(length)
        self._n_assistant.append(n_assistant)

    def _cut(self, root: _Root, unit: int, length: int, text: bytes) -> tuple[int, int]:
        """Add a text after `unit`, where the prompt has `length` so far; returns both behind it."""
        if self._encoder is None:
            data, width = np.frombuffer(text, dtype=np.uint8), 1
        else:
            data, width = np.array(self._encoder(text), dtype="<u4").view(np.uint8), 4
        parent = int(self.units.hash[unit]) if unit else root.group
        first = self._step - length % self._step
        digests, sizes = chain(self._block_state, parent, data, first * width, self._step * width)
        tip, n_new = self.units.extend(unit, digests)
        self.sizes.extend((sizes[sizes.size - n_new :] // width).tolist())
        return tip, length + data.size // width

    def _chained(self, digest: bytes, text: bytes) -> bytes:
        hasher = self._message_hash.copy()
        hasher.update(digest)
        hasher.update(text)
        return hasher.digest()

    def _below(self, node: int, message: bytes) -> int:
        """Hash of the node of a message after `node`, which need not be there."""
        digest = self._chained(int(self.messages.hash[node]).to_bytes(8, "little"), message)
        return int.from_bytes(digest, "little")

    def _read_role(self, message: bytes) -> str | None:
        try:
            return self._role.decode(message).role
        except (msgspec.DecodeError, RecursionError):  # plain text
            return None


def split(messages: list[bytes] | bytes | msgspec.Raw) -> list[bytes]:
    """The messages one by one."""
    if isinstance(messages, list):
        return messages
    try:
        return [bytes(item) for item in _ITEMS.decode(messages)]
    except (msgspec.DecodeError, RecursionError):
        return [bytes(messages)]


_ITEMS = msgspec.json.Decoder(list[msgspec.Raw])


def _count(tools: bytes) -> int:
    """How many tools are defined."""
    try:
        return len(_ITEMS.decode(tools)) if tools else 0
    except (msgspec.DecodeError, RecursionError):
        return 1


def _numbers(digests: list[bytes]) -> NDArray[np.uint64]:
    return np.frombuffer(b"".join(digests), dtype="<u8")
