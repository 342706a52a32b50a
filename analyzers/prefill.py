"""Uncached prefill: the prompt tokens of a request that its own session did not bring before.

Not what an engine's cache would have kept: no eviction, no other session's prefix, and the answer to the
previous turn counts as new although an engine may still hold its KV.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import polars as pl
from numba import njit
from numpy.typing import NDArray

from agentctl.analyzers.columns import floats, numbered
from agentctl.trace import PrefixTree, Trace

Rule = Literal["blocks", "parent"]

COLUMNS = ["request_id", "session_id", "parent_request_id", "prompt_tokens", "tip_node"]


def uncached_prefill(trace: Trace, rows: pl.DataFrame) -> tuple[NDArray[np.float64], Rule | None]:
    """Tokens per request (NaN: unknown) and the rule that gave them; `rows` has COLUMNS, in order of arrival.

    'blocks': prompt minus the tokens of its chain that an earlier request of the same session had.
    'parent': prompt minus its parent's prompt; a prompt that is shorter than its parent's shares an unknown
    part and is taken as new whole. None: the trace has neither.
    """
    prompt = floats(rows["prompt_tokens"])
    if trace.block_tokens and rows["tip_node"].count():
        tip = rows["tip_node"].fill_null(0).to_numpy()
        blocks = shared_in_session(trace.tree, tip, numbered(rows["session_id"]))
        shared = np.minimum(blocks * float(trace.block_tokens), prompt)  # the last block may be partial
        return np.where(rows["tip_node"].is_null().to_numpy(), np.nan, prompt - shared), "blocks"
    if rows["parent_request_id"].count():
        parent = floats(_prompt_of_parent(rows))
        return prompt - np.where(parent <= prompt, parent, 0.0), "parent"
    return np.full(prompt.size, np.nan), None


def _prompt_of_parent(rows: pl.DataFrame) -> pl.Series:
    prompts = rows.select(parent_request_id="request_id", parent_tokens="prompt_tokens")
    prompts = prompts.unique("parent_request_id", keep="first")
    links = rows.select("parent_request_id")
    return links.join(prompts, on="parent_request_id", how="left", maintain_order="left")["parent_tokens"]


def shared_in_session(
    tree: PrefixTree, tip: NDArray[np.uint32], session: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Blocks of each request's chain that an earlier request of the same session had; requests by arrival."""
    order = np.argsort(session, kind="stable")  # session by session, in arrival order
    blocks = np.zeros(tip.size, dtype=np.int64)
    _shared_in_session(tree.parent, tree.depth, tip, session, order, blocks)
    return blocks


@njit(cache=True, nogil=True)
def _shared_in_session(parent, depth, tip, session, order, blocks):
    """Fill `blocks`. A node that was used has all its ancestors used, so a walk up may stop at the first one:
    the cost is a step per pair of session and distinct node, however often a chain is used again.
    """
    visitor = np.full(parent.size, -1, dtype=np.int64)  # the last session that used a node
    for i in range(order.size):
        r = order[i]
        node = tip[r]
        while node != 0 and visitor[node] != session[r]:
            visitor[node] = session[r]
            node = parent[node]
        blocks[r] = depth[node]
