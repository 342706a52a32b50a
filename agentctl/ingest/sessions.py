"""Sessions of a log: test the ids it has, or derive them from block chains.

Everything here works on rows sorted by (arrival, file digest, row) and on the prefix tree of the dataset:
node 0 is the root, `parent_node[node] < node`, `depth[node]` is the number of blocks from the root.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
U32 = NDArray[np.uint32]

NO_TIP = 0xFFFFFFFF  # chain unknown; 0 is "no block"
MAX_FANOUT = 8
BAND = (2, 4, 8, 64)


class BlockChains(NamedTuple):
    """Sessions found in block chains, one entry per row."""

    parent_row: I64  # the earlier request that this one continues, -1
    session: I64  # numbered from 0 in order of their first row
    confidence: F32  # 0..1


class BandRow(NamedTuple):
    max_fanout: int | None
    sessions: int
    multi_turn: int  # sessions of two or more requests


class IdTest(NamedTuple):
    """What came of testing a log's session ids."""

    accepted: bool
    reason: str | None  # a sentence, when rejected
    numbers: dict[str, Any]  # plain JSON values for dataset.json


def derive_block_chain_sessions(
    arrival: F64,
    prompt: I64,
    output: I64,
    tip: U32,
    parent_node: U32,
    depth: I32,
    block_tokens: int,
    max_fanout: int | None = MAX_FANOUT,
) -> BlockChains:
    """Stub."""
    raise NotImplementedError


def session_band(
    arrival: F64,
    prompt: I64,
    output: I64,
    tip: U32,
    parent_node: U32,
    depth: I32,
    block_tokens: int,
    fanouts: tuple[int | None, ...] = BAND,
) -> list[BandRow]:
    """Stub."""
    raise NotImplementedError


def check_explicit_ids(
    session_key: I64,
    arrival: F64,
    end: F64,
    tip: U32,
    parent_node: U32,
    chain_session: I64 | None,
) -> IdTest:
    """Test session ids (log_formats: four rules).

    session_key    i64[n], -1 where the log has none
    end            f64[n], NaN unknown
    tip            u32[n], NO_TIP unknown; parent_node u32[m] (a single root when the log has no chains)
    chain_session  i64[n], BlockChains.session (or message chains) of the same rows; None without chains
    """
    raise NotImplementedError
