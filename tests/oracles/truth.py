"""What a dataset made of one rendering of tests/data/formats must hold, from truth.csv alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import polars as pl

RENAMED = {"input_tokens": "prompt_tokens", "gap_from_parent_end_s": "gap_s"}


def expected(truth: Iterable[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Rows by request id under the dataset's names, for the requests that a log holds.

    Attempts count those that the log holds; the gap of a repeated one begins at the end of the one before.
    """
    rows: dict[str, dict[str, Any]] = {}
    attempts: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for true in sorted(truth, key=lambda row: row["arrival_unix_s"]):
        row = {
            RENAMED.get(name, name): value or None if value == "" else value for name, value in true.items()
        }
        earlier = attempts[row["session_id"], row["turn_index"]]
        row["attempt"] = len(earlier)
        if earlier:
            row["gap_s"] = row["arrival_unix_s"] - earlier[-1]["end_unix_s"]
            row["gap_kind"] = "retry"
        earlier.append(row)
        rows[row["request_id"]] = row
    return rows


def dataset(folder: Path) -> list[dict[str, Any]]:
    """The rows of a dataset, with `arrival_unix_s` and `end_unix_s` where its times are absolute."""
    import json

    origin = json.loads((folder / "dataset.json").read_text())["time_origin_ns"]
    rows = pl.read_parquet(folder / "requests.parquet").to_dicts()
    if origin is not None:
        for row in rows:
            row["arrival_unix_s"] = origin / 1e9 + row["arrival_s"]
            row["end_unix_s"] = None if row["end_s"] is None else origin / 1e9 + row["end_s"]
    return rows


def differences(
    rows: Iterable[dict[str, Any]], truth: Mapping[str, dict[str, Any]], columns: Mapping[str, float]
) -> list[tuple[str, str, Any, Any]]:
    """(request id, column, value, true value) wherever a row is further from the truth than `columns` allows.

    columns  by name, with how far a number may be off (0: not at all); texts are the same or not
    """
    rows = list(rows)
    wrong: list[tuple[str, str, Any, Any]] = []
    for row in rows:
        true = truth[row["request_id"]]
        for column, tolerance in columns.items():
            value, wanted = row[column], true[column]
            is_same = value == wanted
            if not is_same and None not in (value, wanted) and tolerance:
                is_same = abs(value - wanted) <= tolerance
            if not is_same:
                wrong.append((row["request_id"], column, value, wanted))
    missing = truth.keys() - {row["request_id"] for row in rows}
    return wrong + [(name, "request_id", None, name) for name in sorted(missing)]
