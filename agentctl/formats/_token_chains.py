"""Exact block chains where a log holds the token ids of its prompts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from agentctl.formats._columns import Columns
from agentctl.formats.base import Reading
from agentctl.ingest.hashing import GROUP, SALT_BYTES, token_blocks
from agentctl.ingest.ids import Ids


def put_token_chains(
    reading: Reading, columns: Columns, lists: Sequence[Sequence[int] | None], groups: Sequence[str | None]
) -> None:
    """Chains and cache groups of some rows; None is an unknown prompt, and the common group."""
    hashing = reading.options.hashing
    chains = token_blocks(lists, hashing.block_tokens, hashing.salt)
    for group in {group for group in groups if group is not None}:
        salt = hashlib.blake2b(
            group.encode(), key=hashing.salt, digest_size=SALT_BYTES, person=GROUP
        ).digest()
        own = [tokens if name == group else None for tokens, name in zip(lists, groups, strict=True)]
        apart = token_blocks(own, hashing.block_tokens, salt)
        is_own = np.array([name == group for name in groups])
        chains = _replaced(chains, apart, is_own)
    columns.chains(chains)
    columns.put("block_tokens", np.full(len(lists), hashing.block_tokens, dtype=np.int64))
    reading.hash_kind = "token"


def _replaced(chains: Ids, apart: Ids, rows: np.ndarray) -> Ids:
    """The chains, those of `rows` from `apart`; both have a chain of the same length there."""
    values = chains.values.copy()
    values[np.repeat(rows, np.diff(chains.starts))] = apart.values
    return chains._replace(values=values)
