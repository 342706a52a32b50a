"""Columns of a request table as arrays."""

from __future__ import annotations

import numpy as np
import polars as pl
from numpy.typing import NDArray


def floats(column: pl.Series) -> NDArray[np.float64]:
    """The column as floats; null becomes NaN."""
    return column.cast(pl.Float64).fill_null(np.nan).to_numpy()


def texts(column: pl.Series) -> NDArray[np.str_]:
    """The column as strings; null becomes the empty string."""
    return column.cast(pl.String).fill_null("").to_numpy().astype(np.str_)


def numbered(column: pl.Series) -> NDArray[np.int64]:
    """Each value's number, counted from 0 in the order of first appearance; null is -1."""
    names = column.drop_nulls().unique(maintain_order=True).cast(pl.String)
    return column.cast(pl.Enum(names)).to_physical().cast(pl.Int64).fill_null(-1).to_numpy()
