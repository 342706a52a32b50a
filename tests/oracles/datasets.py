"""Hand-made trace datasets for tests: rows in, a complete NAME.trace folder out.

    trace = write_dataset(tmp_path / "two.trace", [
        {"arrival_s": 0.0, "session_id": "a", "blocks": [1, 2], "output_tokens": 5, "e2e_s": 2.0},
        {"arrival_s": 9.0, "session_id": "a", "blocks": [1, 2, 3], "prompt_tokens": 42, "output_tokens": 5},
    ], block_tokens=16)

A row takes the columns of schema.REQUESTS, plus `blocks`: its block ids from the root ([] none, absent:
unknown), whole blocks unless `prompt_tokens` says otherwise. Everything but `arrival_s` may be left out.
What a real ingest would derive is derived here by the plainest rule (see `_derive`); a value given in the row
wins, None included.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from agentctl.schema import PREFIX_NODES, REQUESTS, TRACE_SCHEMA
from agentctl.trace import META_FILE, NODES_FILE, REQUESTS_FILE, Trace, open_trace

Row = dict[str, Any]

DEFAULTS: Row = {
    "source_format": "test",
    "source_file": "test.jsonl",
    "session_source": "explicit",
    "session_conf": 1.0,
    "attempt": 0,
    "origin": "new",
    "token_source": "reported",
    "status": "ok",
    "hash_scope": "global",
    "hash_kind": "token",
}


def write_dataset(
    folder: Path, rows: list[Row], *, block_tokens: int | None = None, meta: dict[str, Any] | None = None
) -> Trace:
    """Write `rows` (sorted by arrival, ties as given); `meta` overrides keys of dataset.json."""
    numbered = [{**DEFAULTS, "source_row": n, **row} for n, row in enumerate(rows, 1)]
    ordered = sorted(numbered, key=lambda row: row["arrival_s"])
    nodes = _plant(ordered, block_tokens)
    _derive(ordered)
    folder.mkdir(parents=True)
    columns = {field.name: [row.get(field.name) for row in ordered] for field in REQUESTS}
    pq.write_table(pa.table(columns, schema=REQUESTS), folder / REQUESTS_FILE)
    pq.write_table(pa.Table.from_pylist(nodes, schema=PREFIX_NODES), folder / NODES_FILE)
    (folder / META_FILE).write_text(json.dumps({**_metadata(ordered, block_tokens), **(meta or {})}))
    return open_trace(folder)


def _plant(rows: list[Row], block_tokens: int | None) -> list[Row]:
    """Grow the prefix tree over the rows' `blocks`, in order of first use, and give each row its tip."""
    node_of: dict[tuple[int, int], int] = {}
    nodes: list[Row] = []
    for r, row in enumerate(rows):
        blocks = row.pop("blocks", None)
        if blocks is None:
            continue
        node = 0
        for depth, block in enumerate(blocks, 1):
            parent, node = node, node_of.setdefault((node, block), len(nodes) + 1)
            if node > len(nodes):
                nodes.append(
                    {"node_id": node, "parent_id": parent, "depth": depth, "hash": block, "first_row": r}
                )
        row.setdefault("prompt_tokens", len(blocks) * (block_tokens or 0))
        row |= {"tip_node": node, "n_blocks": len(blocks), "block_tokens": block_tokens}
        if block_tokens and row["prompt_tokens"] is not None:
            row["tail_tokens"] = row["prompt_tokens"] % block_tokens
    return nodes


def _derive(rows: list[Row]) -> None:
    """Fill ids, turns, links and gaps that are not given.

    Parent: the previous request of the same agent line. After: the request of the session that ended last
    before this one arrived; its end is arrival + e2e_s.
    """
    lines: dict[tuple[str, Any], list[Row]] = {}
    sessions: dict[str, list[Row]] = {}
    for n, row in enumerate(rows):
        row.setdefault("request_id", f"r{n}")
        row.setdefault("session_id", row["request_id"])
        line = lines.setdefault((row["session_id"], row.get("agent_path")), [])
        session = sessions.setdefault(row["session_id"], [])
        row.setdefault("turn_index", len(line))
        row.setdefault("parent_request_id", line[-1]["request_id"] if line else None)
        if row.get("e2e_s") is not None:
            row.setdefault("end_s", row["arrival_s"] + row["e2e_s"])
        ended = [s for s in session if s.get("end_s") is not None and s["end_s"] <= row["arrival_s"]]
        last = max(ended, key=lambda s: s["end_s"], default=None)
        row.setdefault("after_request_id", last["request_id"] if last else None)
        if last and row["after_request_id"] == last["request_id"]:
            row.setdefault("gap_s", row["arrival_s"] - last["end_s"])
            row.setdefault("gap_kind", "unknown")
        line.append(row)
        session.append(row)


def _metadata(rows: list[Row], block_tokens: int | None) -> dict[str, Any]:
    sizes: dict[str, int] = {}
    sources: dict[str, int] = {}
    for row in rows:
        sizes[row["session_id"]] = sizes.get(row["session_id"], 0) + 1
        sources[row["session_source"]] = sources.get(row["session_source"], 0) + 1
    multi_turn = sum(size > 1 for size in sizes.values())
    n = len(rows)
    return {
        "schema": TRACE_SCHEMA,
        "agentctl_version": "test",
        "name": None,
        "block_tokens": block_tokens,
        "time_origin_ns": None,
        "time": {"origin": "relative", "tz_assumed": None, "year_assumed": None,
                 "session_rate_per_min": None, "seed": None},
        "files": [
            {
                "name": "test.jsonl", "sha256": "0" * 64, "bytes": 0, "format": "test", "lines": n,
                "record_lines": n, "blank_lines": 0, "header_lines": 0, "other_lines": 0,
                "quarantined_lines": 0, "records": n, "events": 0,
            }
        ],
        "records": {"read": n, "rows": n, "quarantined": 0, "dropped": {}},
        "hash": {"kind": "token", "scope": "global"},
        "sessions": {
            "method": "explicit", "count": len(sizes), "multi_turn": multi_turn, "source": sources,
            "id_test": {}, "band": [],
        },
        "coverage": {
            field.name: sum(row.get(field.name) is not None for row in rows) / n if n else 0.0
            for field in REQUESTS
        },
        "chain_conflicts": 0,
        "warnings": [],
    }  # fmt: skip
