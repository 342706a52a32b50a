"""The block tree of a log of prompts, once its rows are in their final order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from agentctl.ingest.hashing import NAME
from agentctl.ingest.placing import BYTES_PER_TOKEN, Pieces, apart, place
from agentctl.ingest.rows import Rows
from agentctl.ingest.texts import Texts


@dataclass(frozen=True)
class TextBlocks:
    """parent and hash of the blocks (index 0 the root), the tip of every row, and who had no token count."""

    parent: NDArray[np.uint32]
    hash: NDArray[np.uint64]
    tips: NDArray[np.uint32]
    is_estimated: NDArray[np.bool_]
    estimate: str  # how: one of schema.TOKEN_SOURCES

    def token_sources(self, rows: Rows, positions: NDArray[np.int64]) -> pa.Array:
        given = pc.fill_null(rows.take("token_source", positions), "reported")
        return pc.if_else(pa.array(self.is_estimated[positions]), pa.scalar(self.estimate), given)


def blocks_of_texts(rows: Rows, texts: Texts, block_tokens: int, warnings: list[str]) -> TextBlocks:
    """Put the texts of all rows on the token grid. Fills in prompt_tokens in `rows` where it is unknown."""
    models, names = rows.codes("model")
    if (models < 0).any():
        models, names = np.where(models < 0, len(names), models), [*names, ""]
    salted = [int.from_bytes(texts.options.hasher(NAME, name.encode()).digest(), "little") for name in names]
    pieces = Pieces(
        texts.units.parent,
        texts.units.hash,
        texts.sizes.astype(np.int64),
        rows.tips("unit_node"),
    )
    in_tokens = texts.options.level == "token"
    grid = place(
        apart(pieces, models, np.array(salted, dtype=np.uint64)),
        rows.ints("prompt_tokens"),
        block_tokens,
        default_size=1.0 if in_tokens else BYTES_PER_TOKEN,
    )
    rows.put("prompt_tokens", grid.prompt_tokens)
    if len(names) > 1:
        warnings.append(f"{len(names)} models are named in the log: requests share blocks only within one")
    if n := int(grid.is_estimated.sum()):
        by = "counted with the tokenizer" if in_tokens else "estimated from their bytes"
        warnings.append(f"{n:,} {'prompt has' if n == 1 else 'prompts have'} no token count in the log: {by}")
    if grid.n_clipped:
        warnings.append(
            f"{grid.n_clipped:,} prompts report fewer tokens than the text that they share with others has"
        )
    if grid.n_absurd:
        warnings.append(f"{grid.n_absurd:,} prompts report more tokens than their text can have")
    return TextBlocks(
        grid.parent, grid.hash, grid.tips, grid.is_estimated, "tokenizer" if in_tokens else "estimated"
    )
