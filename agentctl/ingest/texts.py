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

from agentctl.ingest.blake2b import keyed_state
from agentctl.ingest.hashing import BLOCK, BYTES_PER_BLOCK, GROUP, MESSAGE, HashOptions
from agentctl.ingest.prefixes import Place, Prefixes
from agentctl.ingest.prompts import Prompt
from agentctl.ingest.text_trie import MessageTrie, Pieces, UnitTrie, hash_each
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
    is_apart: bool  # no common group


class _Role(msgspec.Struct):
    role: str | None = None


class _Asked(NamedTuple):
    """A prompt of a batch; `texts` are those of its messages that must be looked up from `node` on."""

    row: int
    root: _Root
    start: int  # node where its array of messages begins
    node: int
    n_known: int  # messages up to `node`
    texts: list[bytes]
    place: Place | None  # in a line, where known text was cut out


class Texts:
    """The two trees of an ingest run, growing by `add`."""

    def __init__(self, options: HashOptions) -> None:
        self.options = options
        self.messages, self.units, self.prefixes = MessageTrie(), UnitTrie(), Prefixes()
        self._n_assistant = array("I", [0])  # messages, by node
        self._roots: dict[tuple[str | None, bytes], _Root] = {}
        self._systems: dict[tuple[int, bytes], int] = {}
        self._pieces = Pieces([], [], [], [])  # of messages that are new
        self._encoder = load_encoder(options.tokenizer) if options.level == "token" else None
        self._step = {"token": options.block_tokens, "bytes": BYTES_PER_BLOCK, "message": _NO_STEP}[
            options.level
        ]
        self._role = msgspec.json.Decoder(_Role)

    @cached_property
    def _states(self) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """(messages, units). Loads what is compiled, which takes a second or two: only for logs with text."""
        return keyed_state(self.options.salt, MESSAGE), keyed_state(self.options.salt, BLOCK)

    @property
    def sizes(self) -> NDArray[np.uint32]:
        """Of the units, in bytes or tokens."""
        return self.units.sizes

    def add(self, prompts: Sequence[Prompt | None]) -> Placed:
        """Insert the prompts of a batch."""
        placed = Placed(*(np.full(len(prompts), -1, dtype=np.int64) for _ in Placed._fields))
        prompts = [prompt and self._unfolded(prompt) for prompt in prompts]
        asked = [self._ask(row, prompt) for row, prompt in enumerate(prompts) if prompt is not None]
        asked = [one for one in asked if one.n_known + len(one.texts)]
        if not asked:
            return placed
        nodes = self._follow(asked)
        self.units.cut(self._states[1], self._pieces, self._step, 1 if self._encoder is None else 4)
        self._pieces = Pieces([], [], [], [])
        rows = np.array([one.row for one in asked])
        placed.message_node[rows] = nodes
        placed.unit_node[rows] = self.units.unit[nodes]
        placed.n_messages[rows] = [one.n_known + len(one.texts) for one in asked]
        placed.n_assistant[rows] = [self._n_assistant[node] for node in nodes.tolist()]
        placed.n_tools[rows] = [one.root.n_tools for one in asked]
        for row, root in ((one.row, one.root) for one in asked if one.root.is_apart):
            placed.cache_group[row] = root.group >> 1  # Parquet's own integers are signed here
        replies = [prompts[row].reply or b"" for row in rows.tolist()]  # type: ignore[union-attr]
        has_reply = np.array([bool(reply) for reply in replies])
        digests = hash_each(self._states[0], self.messages.hash[nodes], replies)
        placed.reply_hash[rows[has_reply]] = digests[has_reply] >> np.uint64(1)
        return placed

    def save(self, path: Path) -> None:
        """Leave the trees on disk, for the process that merges them."""
        for name, values in zip(_PARTS, self._parts(), strict=True):
            np.save(path.with_suffix(f".{name}.npy"), values, allow_pickle=False)

    def merge(self, path: Path) -> dict[str, NDArray[np.uint32]]:
        """Add what `save` left at `path`; returns the number here of each node there, by column."""
        parts = [np.load(path.with_suffix(f".{name}.npy"), mmap_mode="r") for name in _PARTS]
        messages, units = self.messages.merge(*parts[:2]), self.units.merge(*parts[2:4])
        self.sizes[units] = parts[4]
        return {"message_node": messages, "unit_node": units}

    def stop(self) -> None:
        """Free what only `add` and `merge` need."""
        self.prefixes.clear()
        self._roots.clear()
        self._systems.clear()
        self._n_assistant = array("I")
        self.messages.drop_table()
        self.units.drop_table()

    def clear(self) -> None:
        """Free everything but the options."""
        self.stop()
        self.messages.clear()
        self.units.clear()

    def _parts(self) -> tuple[NDArray[Any], ...]:
        return self.messages.parent, self.messages.hash, self.units.parent, self.units.hash, self.sizes

    def _unfolded(self, prompt: Prompt) -> Prompt:
        """The prompt without marks anywhere but at the beginning of its messages."""
        if isinstance(prompt.messages, list) or self.prefixes.is_marked(bytes(prompt.messages)):
            return prompt
        unfold = self.prefixes.unfold
        return Prompt(
            unfold(bytes(prompt.messages)),
            unfold(bytes(prompt.tools)),
            prompt.group,
            prompt.reply and unfold(prompt.reply),
            unfold(prompt.system),
        )

    def _ask(self, row: int, prompt: Prompt) -> _Asked:
        root = self._root(prompt.group, prompt.tools)
        start = node = self._system(root, prompt.system) if prompt.system else root.node
        n_known, place = int(bool(prompt.system)), None
        if isinstance(prompt.messages, list):
            return _Asked(row, root, start, node, n_known, prompt.messages, None)
        array = bytes(prompt.messages)
        texts = split(array)
        if (known := self.prefixes.recall(start, array)) is not None:
            more = split(b"[" + known.text.lstrip(b", \t\r") + b"]") if known.text else []
            node, n_known, place, texts = (
                known.node,
                n_known + known.n_messages,
                known.place,
                more + texts[1:],
            )
        return _Asked(row, root, start, node, n_known, texts, place)

    def _root(self, group: str | None, tools: bytes) -> _Root:
        """The node of a cache group with these tools."""
        tools = b"" if bytes(tools) in _NO_TOOLS else bytes(tools)
        known = self._roots.get((group, tools))
        if known is not None:
            return known
        start = int.from_bytes(self.options.hasher(GROUP, (group or "").encode()).digest(), "little")
        node, is_new = self._go(0, tools, start)
        root = _Root(node, _count(tools), tools, start, group is not None)
        if is_new:
            self._n_assistant.append(0)
            self._keep(root, node, -1, tools if self.options.tools_first else b"")
        if len(self._roots) >= _MAX_ROOTS:  # a log whose tools never repeat
            self._roots.clear()
        self._roots[group, tools] = root
        return root

    def _system(self, root: _Root, text: bytes) -> int:
        """The node of a system prompt that stands apart."""
        known = self._systems.get((root.node, text))
        if known is not None:
            return known
        node, is_new = self._go(root.node, text)
        if is_new:
            self._see(root, root.node, node, text)
        if len(self._systems) >= _MAX_ROOTS:
            self._systems.clear()
        self._systems[root.node, text] = node
        return node

    def _go(self, node: int, text: bytes, seed: int = 0) -> tuple[int, bool]:
        """The node of one text after another, and whether it is new."""
        found = self.messages.follow(self._states[0], np.array([node]), np.array([1]), [text], seed)
        return int(found.node[0]), bool(found.is_new[0])

    def _follow(self, asked: list[_Asked]) -> NDArray[np.int64]:
        """The node of the last message of each prompt."""
        texts = [text for one in asked for text in one.texts]
        starts, counts = np.array([one.node for one in asked]), np.array([len(one.texts) for one in asked])
        found = self.messages.follow(self._states[0], starts, counts, texts)
        ends = np.cumsum(counts)
        of_row = np.repeat(np.arange(counts.size), counts)
        for k in np.flatnonzero(found.is_new).tolist():
            node = int(found.node[k])
            self._see(asked[of_row[k]].root, int(self.messages.parent[node]), node, texts[k])
        places = {row: (one.start, one.place) for row, one in enumerate(asked) if one.place and one.texts}
        self.prefixes.learn(places, ends - counts, counts, [len(text) for text in texts], found.node)
        return np.where(counts > 0, np.append(found.node, 0)[ends - 1], starts)

    def _see(self, root: _Root, above: int, node: int, message: bytes) -> None:
        """Keep a message that is new after `above`, to be cut."""
        role = self._read_role(message)
        self._n_assistant.append(self._n_assistant[above] + (role == "assistant"))
        late_tools = b"" if self.options.tools_first or above != root.node else root.tools
        for text in (message, late_tools) if role == "system" else (late_tools, message):
            if text:
                self._keep(root, node, above, text)

    def _keep(self, root: _Root, node: int, above: int, text: bytes) -> None:
        if self._encoder is not None:
            text = np.array(self._encoder(text), dtype="<u4").tobytes()
        self._pieces.add(node, above, root.group, text)

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
