"""How a dataset compares with tests/data/formats/truth.csv, column by column."""

import csv
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import polars as pl

_MS = 2e-3  # the coarsest log that gives a time rounds it to the ms, at both ends of a gap

SAME = {
    "session_id": "session_id", "turn_index": "turn_index", "attempt": "attempt", "status": "status",
    "http_status": "http_status", "finish_reason": "finish_reason", "model": "model", "tenant": "tenant",
    "prompt_tokens": "input_tokens", "output_tokens": "output_tokens", "cached_tokens": "cached_tokens",
    "gap_kind": "gap_kind",
}  # fmt: skip
TIMES = {"arrival_s": "arrival_unix_s", "ttft_s": "ttft_s", "e2e_s": "e2e_s", "queue_s": "queue_s"}


def read_truth() -> list[dict[str, Any]]:
    """Its requests by arrival, numbers as numbers, None for what does not apply."""
    whole = {
        "turn_index", "attempt", "input_tokens", "output_tokens", "cached_tokens", "http_status",
        "n_messages",
    }  # fmt: skip
    path = Path(__file__).parents[1] / "data" / "formats" / "truth.csv"
    with path.open(newline="") as file:
        rows: list[dict[str, Any]] = list(csv.DictReader(file))
    for row in rows:
        for key, value in row.items():
            if key in whole or key.endswith("_s"):
                row[key] = (int if key in whole else float)(value) if value else None
    return sorted(rows, key=lambda row: row["arrival_unix_s"])


def plain(request_id: str | None) -> str | None:
    """The id that all renderings share."""
    return request_id and request_id.removeprefix("chatcmpl-").removesuffix("-0").replace("-", "")


def agreeing(
    requests: pl.DataFrame,
    truth: Iterable[dict[str, Any]],
    where: Callable[[dict[str, Any]], bool] = lambda true: True,
    time_origin_ns: int = 0,
) -> set[str]:
    """The columns that are as the truth says on every request of it that `where` takes."""
    rows = {plain(row["request_id"]): row for row in requests.to_dicts()}
    wrong: set[str] = set()
    for true in filter(where, truth):
        row = rows[true["request_id"]]
        wrong |= {name for name, key in SAME.items() if row[name] != (true[key] if true[key] != "" else None)}
        row["arrival_s"] += time_origin_ns / 1e9
        wrong |= {name for name, key in TIMES.items() if not _near(row[name], true[key])}
        row["arrival_s"] -= time_origin_ns / 1e9
        if not _near(row["gap_s"], true["gap_from_parent_end_s"]):
            wrong.add("gap_s")
        if (plain(row["parent_request_id"]) or "") != true["parent_request_id"]:
            wrong.add("parent_request_id")
    return {*SAME, *TIMES, "gap_s", "parent_request_id"} - wrong


def _near(got: float | None, want: float | None) -> bool:
    return got is want is None or (got is not None and want is not None and abs(got - want) < _MS)


def answered(true: dict[str, Any]) -> bool:
    return true["status"] == "ok"


def first_attempt(true: dict[str, Any]) -> bool:
    """Answered at once (ours counts a gap after a failed attempt from its end, the truth from the turn's)."""
    return true["status"] == "ok" and true["attempt"] == 0
