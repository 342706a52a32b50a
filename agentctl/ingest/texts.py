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
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from agentctl.ingest.blake2b import chain, keyed_state
from agentctl.ingest.hashing import BLOCK, BYTES_PER_BLOCK, GROUP, MESSAGE, HashOptions
from agentctl.ingest.prefixes import Prefixes, Recalled
from agentctl.ingest.prompts import Prompt
from agentctl.ingest.text_trie import TextTrie
from agentctl.ingest.tokens import load_encoder

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
        self.messages, self.units, self.prefixes = TextTrie(), TextTrie(), Prefixes()
        self.sizes = array("I", [0])
        # by message node: last unit, length of the text up to there, assistant messages
        self._unit, self._length, self._n_assistant = array("I", [0]), array("Q", [0]), array("I", [0])
        self._roots: dict[tuple[str | None, bytes], _Root] = {}
        self._encoder = load_encoder(options.tokenizer) if options.level == "token" else None
        self._step = {"token": options.block_tokens, "bytes": BYTES_PER_BLOCK, "message": _NO_STEP}[
            options.level
        ]
        self._role = msgspec.json.Decoder(_Role)

    @cached_property
    def _block_state(self) -> NDArray[np.uint64]:
        """Loads what is compiled, which takes a second or two: only for logs with text."""
        return keyed_state(self.options.salt, BLOCK)

    @cached_property
    def _message_state(self) -> NDArray[np.uint64]:
        return keyed_state(self.options.salt, MESSAGE)

    def add(self, prompts: Sequence[Prompt | None]) -> Placed:
        """Insert the prompts of a batch."""
        placed = Placed(*(np.full(len(prompts), -1, dtype=np.int64) for _ in Placed._fields))
        for row, prompt in enumerate(prompts):
            if prompt is None:
                continue
            root = self._root(prompt.group, prompt.tools)
            node, n_messages = self._recall(root, prompt)
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
        self.prefixes.clear()
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
        start = int.from_bytes(self.options.hasher(GROUP, (group or "").encode()).digest(), "little")
        (node,), n_new = self.messages.follow(self._message_state, 0, start, [tools])
        root = _Root(int(node), _count(tools), tools, start)
        if n_new:
            (unit,), (length,) = self._cut(root, 0, 0, [tools if self.options.tools_first else b""])
            self._remember(unit, length, 0)
        if len(self._roots) >= _MAX_ROOTS:  # a log whose tools never repeat
            self._roots.clear()
        self._roots[group, tools] = root
        return root

    def _recall(self, root: _Root, prompt: Prompt) -> tuple[int, int]:
        """(node, number of messages) of a prompt."""
        node, n = root.node, 0
        if prompt.system:
            node, n = int(self._walk(root, node, [prompt.system])[-1]), 1
        if not isinstance(prompt.messages, list):
            array = bytes(prompt.messages)
            known = self.prefixes.recall(node, array)
            if known is not None:
                return self._go_on(root, node, known, array, n)
        messages = split(prompt.messages)
        return int(self._walk(root, node, messages)[-1]) if messages else node, n + len(messages)

    def _go_on(self, root: _Root, start: int, known: Recalled, array: bytes, n: int) -> tuple[int, int]:
        """As `_recall`, for an array whose first messages were met before."""
        rest = split(array)[1:]
        if known.text:
            rest = split(b"[" + known.text.lstrip(b", \t\r") + b"]") + rest
        n += known.n_messages + len(rest)
        if not rest:
            return known.node, n
        path = self._walk(root, known.node, rest)
        self.prefixes.learn(start, known.place, np.array([len(text) for text in rest]), path)
        return int(path[-1]), n

    def _walk(self, root: _Root, node: int, messages: Sequence[bytes]) -> NDArray[np.int64]:
        """The nodes to which `messages` lead from `node`, one after the other."""
        path, n_new = self.messages.follow(self._message_state, node, 0, messages)
        if n_new:
            n_known = len(messages) - n_new
            self._see(root, int(path[n_known - 1]) if n_known else node, messages[n_known:])
        return path

    def _see(self, root: _Root, above: int, messages: Sequence[bytes]) -> None:
        """Cut messages that are new after those up to the node `above`."""
        roles = [self._read_role(message) for message in messages]
        late_tools = b"" if self.options.tools_first or above != root.node else root.tools
        texts = [*messages]
        if late_tools:
            texts[:1] = [texts[0], late_tools] if roles[0] == "system" else [late_tools, texts[0]]
        units, lengths = self._cut(root, self._unit[above], self._length[above], texts)
        n_assistant = self._n_assistant[above]
        for role, unit, length in zip(roles, units[-len(roles) :], lengths[-len(roles) :], strict=True):
            n_assistant += role == "assistant"
            self._remember(unit, length, n_assistant)

    def _remember(self, unit: int, length: int, n_assistant: int) -> None:
        self._unit.append(unit)
        self._length.append(length)
        self._n_assistant.append(n_assistant)

    def _cut(
        self, root: _Root, unit: int, length: int, texts: Sequence[bytes]
    ) -> tuple[list[int], list[int]]:
        """Add texts after `unit`, where the prompt has `length` so far; returns both behind each of them."""
        width = 1
        if self._encoder is not None:
            texts, width = [np.array(self._encoder(text), dtype="<u4").tobytes() for text in texts], 4
        first = self._step - length % self._step
        nodes, sizes = self.units.cut(
            self._block_state, unit, root.group, texts, first * width, self._step * width
        )
        self.sizes.frombytes((sizes // np.uint32(width)).tobytes())
        lengths = [length + end // width for end in accumulate(map(len, texts))]
        return nodes.tolist(), lengths

    def _below(self, node: int, message: bytes) -> int:
        """Hash of the node of a message after `node`, which need not be there."""
        data = np.frombuffer(message, dtype=np.uint8)
        digests, _ = chain(self._message_state, int(self.messages.hash[node]), data, _NO_STEP, _NO_STEP)
        return int(digests[0])

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
