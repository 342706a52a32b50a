"""Which requests take part in reuse: those whose prompt an engine took in, with a known chain and length."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from agentctl.analyzers.columns import numbered
from agentctl.trace import Trace

COLUMNS = ["tip_node", "prompt_tokens", "session_id", "turn_index", "arrival_s", "status"]
REACHED_AN_ENGINE = ("ok", "aborted", "timeout")


class Counted(NamedTuple):
    """Arrays over the requests that count, in order of arrival."""

    tip: NDArray[np.uint32]
    n_blocks: NDArray[np.int64]
    prompt_tokens: NDArray[np.int64]
    session: NDArray[np.int64]  # numbered by first arrival
    turn: NDArray[np.int64]
    arrival: NDArray[np.float64]
    block_tokens: int
    excluded: dict[str, int]  # requests left out, by reason


def count_requests(trace: Trace) -> Counted | None:
    """The requests that count and how many do not, by reason; None when the trace knows no chain at all."""
    rows = trace.requests(COLUMNS)
    if not trace.block_tokens or rows["tip_node"].count() == 0:
        return None
    status = pl.col("status").cast(pl.String)
    reason = (
        pl.when(~status.is_in(REACHED_AN_ENGINE)).then(pl.lit("status ") + status)
        .when(pl.col("tip_node").is_null()).then(pl.lit("unknown blocks"))
        .when(pl.col("prompt_tokens").is_null()).then(pl.lit("unknown prompt_tokens"))
    )  # fmt: skip
    rows = rows.with_columns(reason=reason)
    reasons = rows["reason"].drop_nulls().value_counts().sort("reason")
    rows = rows.filter(pl.col("reason").is_null())
    tip = rows["tip_node"].to_numpy()
    return Counted(
        tip=tip,
        n_blocks=trace.tree.depth[tip].astype(np.int64),
        prompt_tokens=rows["prompt_tokens"].to_numpy(),
        session=numbered(rows["session_id"]),
        turn=rows["turn_index"].cast(pl.Int64).to_numpy(),
        arrival=rows["arrival_s"].to_numpy(),
        block_tokens=trace.block_tokens,
        excluded=dict(reasons.iter_rows()),
    )
