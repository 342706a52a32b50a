"""Sub-agents that a log knows by ids of their own: put into the session of the agent that started them.

Some logs name with each request the line of work that it belongs to and the line that started it (Dynamo's
session_id and parent_session_id, Codex' threads, AIPerf's correlation ids). A session is then everything
below one line that nobody started. Whether a line has a parent may only be seen on another of its rows or in
another file, so this waits until all files are read.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

Line = tuple[int, int]  # code of the log's own session (-1: none) and of the line


def place_agent_lines(table: pa.Table) -> pa.Table:
    """Session and agent path of all rows that have an `agent_line`, in place of those columns.

    session_id  the log's own where it has one, else the line at the top
    agent_path  the lines below the top, joined by "/"; null in the top line itself. Where several lines of a
                session have no parent, none of them is the main one and each keeps its name
    """
    if "agent_line" not in table.schema.names:
        return table
    (session, line, parent), names = _codes(table, ("session_id", "agent_line", "parent_agent_line"))
    lines, line_of = _distinct(session, line)
    seen, _ = _distinct(line_of, parent)
    parents = _parents([(*lines[k], p) for k, p in seen])
    tops: dict[int, set[int]] = {}
    for s, n in parents:
        tops.setdefault(s, set()).add(_way_up((s, n), parents)[-1])
    sessions: list[str | None] = []
    paths: list[str | None] = []
    for s, n in lines:
        *below, top = _way_up((s, n), parents) if n >= 0 else (-1,)
        way = below if s < 0 or len(tops.get(s, ())) < 2 else [*below, top]
        sessions.append(names[top if s < 0 else s] if n >= 0 else None)
        paths.append("/".join(names[k] for k in reversed(way)) or None)
    is_placed = pa.array(line >= 0)
    for column, values in (("session_id", sessions), ("agent_path", paths)):
        table = _put(table, column, pa.array(values, pa.string()).take(pa.array(line_of)), is_placed)
    return table


def _distinct(
    first: NDArray[np.int64], second: NDArray[np.int64]
) -> tuple[list[tuple[int, int]], NDArray[np.int64]]:
    """The different pairs (each >= -1), sorted, and the position of each row's pair among them."""
    width = int(second.max(initial=-1)) + 2
    pairs, position = np.unique((first + 1) * width + second + 1, return_inverse=True)
    return [(int(pair // width) - 1, int(pair % width) - 1) for pair in pairs], position


def _codes(table: pa.Table, columns: tuple[str, ...]) -> tuple[list[Any], list[str]]:
    """The strings of some columns as numbers into one list of names; -1 for null."""
    given = [
        table[name].combine_chunks() if name in table.schema.names else pa.nulls(table.num_rows, pa.string())
        for name in columns
    ]
    names = pc.unique(pa.chunked_array(given)).drop_null().sort()
    codes = [pc.fill_null(pc.index_in(values, value_set=names), -1).to_numpy() for values in given]
    return codes, names.to_pylist()


def _parents(seen: list[tuple[int, int, int]]) -> dict[Line, int]:
    """Parent of each line, -1 for none. Of several the first by name, so that no order of reading matters."""
    parents: dict[Line, int] = {}
    for session, line, parent in sorted(seen):  # names are sorted, so codes are
        if line < 0:
            continue
        known = parents.setdefault((session, line), -1)
        if known < 0:
            parents[session, line] = parent
    return parents


def _way_up(line: Line, parents: dict[Line, int]) -> list[int]:
    """The line, its parent, ..., up to one that nobody started. Lines in a circle have no parents."""
    session, at = line
    way = [at]
    while (at := parents.get((session, at), -1)) >= 0:
        if at in way:
            return [line[1]]
        way.append(at)
    return way


def _put(table: pa.Table, name: str, values: pa.Array, where: pa.Array) -> pa.Table:
    if name not in table.schema.names:
        return table.append_column(name, values)
    index = table.schema.get_field_index(name)
    return table.set_column(index, name, pc.if_else(where, values, table[name]))
