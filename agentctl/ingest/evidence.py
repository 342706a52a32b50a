"""What the rows of a log show about sessions: chains of messages and of blocks, computed when asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.ingest.message_chains import MessageChains, MessageLog, derive_message_chain_sessions
from agentctl.ingest.rows import Rows
from agentctl.ingest.sessions import BlockChains, derive_block_chain_sessions, session_band
from agentctl.ingest.trie import UNKNOWN_TIP, NumberedTree
from agentctl.ingest.turns import FAILED, TOOL, UNANSWERED, stop_kind
from agentctl.schema import STATUSES

_ONE_MESSAGE = 2  # depth of a first message: the cache group and tools are above it

Bool = NDArray[np.bool_]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


@dataclass(frozen=True)
class Evidence:
    """Sorted rows, the tree of their blocks and, in logs that hold prompts, that of whole messages."""

    rows: Rows
    arrival: F64
    end: F64
    tree: NumberedTree
    block_tokens: int | None
    messages: NumberedTree | None

    @cached_property
    def message_node(self) -> I32:
        """Last message of each prompt in the tree of messages, -1 unknown.

        A file none of whose prompts has two messages holds rendered text: its messages cannot be told apart.
        """
        if self.messages is None:
            return np.full(len(self.rows), -1, dtype=np.int32)
        tips = self.messages.tips.astype(np.int64)
        node = np.where((tips == UNKNOWN_TIP) | (tips == 0), -1, tips)
        file = self.rows.file_numbers(np.arange(node.size))
        has_messages = np.zeros(len(self.rows.reports), dtype=np.bool_)
        has_messages[file[(node >= 0) & (self.messages.depth[np.maximum(node, 0)] > _ONE_MESSAGE)]] = True
        return np.where(has_messages[file], node, -1).astype(np.int32)

    @cached_property
    def has_blocks_alone(self) -> Bool:
        """Rows with a block chain and no list of messages."""
        if self.block_tokens is None:
            return np.zeros(len(self.rows), dtype=np.bool_)
        return (self.tree.tips != UNKNOWN_TIP) & (self.message_node < 0)

    def message_chains(self, rows: Bool, party: I32) -> MessageChains | None:
        """Chains among the rows of a mask, each party for itself; None where no prompt is known."""
        if self.messages is None:
            return None
        node = np.where(rows, self.message_node, -1).astype(np.int64)
        if not np.any(node >= 0):
            return None
        status, status_names = self.rows.codes("status")
        status = np.array([*(STATUSES.index(name) for name in status_names), 0])[status]
        stop, stop_names = self.rows.codes("finish_reason")
        log = MessageLog(
            node=node,
            reply=reply_nodes(self.messages, node, self.rows.ints("reply_hash")),
            party=party.astype(np.int64),
            arrival=self.arrival,
            end=np.where(self.end >= self.arrival, self.end, np.nan),
            assistants=self.rows.ints("n_assistant"),
            prompt=self.rows.ints("prompt_tokens"),
            failed=FAILED[status],
            unanswered=UNANSWERED[status],
            calls_tool=(self.rows.ints("n_tool_calls_out") > 0)
            | np.array([*(stop_kind(name) == TOOL for name in stop_names), False])[stop],
        )
        return derive_message_chain_sessions(log, self.messages.parent)

    def block_chains(self, rows: I64) -> BlockChains:
        """Chains among some rows, which keep their order."""
        return derive_block_chain_sessions(*self._shape(rows))

    def band(self) -> list[dict[str, Any]]:
        """How many sessions block chains give with several guards; empty where nothing depends on them."""
        if not self.has_blocks_alone.any():
            return []
        return [row._asdict() for row in session_band(*self._shape(np.arange(len(self.rows))))]

    def _shape(self, rows: I64) -> tuple[Any, ...]:
        prompt, output = self.rows.ints("prompt_tokens")[rows], self.rows.ints("output_tokens")[rows]
        tree = self.tree.tips[rows], self.tree.parent, self.tree.depth
        return self.arrival[rows], prompt, output, *tree, self.block_tokens


def reply_nodes(messages: NumberedTree, node: I64, reply_hash: I64) -> I64:
    """The child of each row's node that is its logged answer, sent back in some later prompt; -1 if none.

    reply_hash: what the node's hash would be without its last bit, -1 unknown. Chained hashes are unique.
    """
    hashes = (messages.hash >> np.uint64(1)).astype(np.int64)
    order = np.argsort(hashes, kind="stable")
    place = np.minimum(np.searchsorted(hashes[order], reply_hash), order.size - 1)
    found = order[place]
    is_reply = (node >= 0) & (reply_hash >= 0) & (found != 0)
    is_reply &= (hashes[found] == reply_hash) & (messages.parent[found] == node)
    return np.where(is_reply, found, -1)
