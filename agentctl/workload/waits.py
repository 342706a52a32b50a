"""Who waits for whom: what releases every request of a log, by the times that the log shows.

The request that releases a turn (`after_request_id`) and the one whose prompt it extends
(`parent_request_id`) are different things; the latter matters to the cache only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from agentctl.workload.arrays import AFTER_END, AFTER_START, AT_ARRIVAL

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]


class Log(NamedTuple):
    """The rows of a log, as numbers: rows by place, sessions and agents by code. -1: none, NaN: unknown."""

    simulated: Mask
    session: I64
    agent: I64  # sub-agent in the session, -1: the main line
    parent: I64  # row whose prompt this one extends
    after: I64  # row of the session that had ended last
    arrival: F64
    end: F64
    gap: F64
    overlaps: Mask  # came before `after` had ended: the gap counts from its start


class Releases(NamedTuple):
    """When the simulated rows arrive (see Requests), as pairs of a row and one that it waits for."""

    kind: NDArray[np.int8]
    gap: F64
    waits: I64
    for_row: I64
    n_fallback: int = 0  # rows of which the log does not tell what they waited for


def read_log(rows: pl.DataFrame, simulated: Mask) -> Log:
    n = rows.height
    links = [rows[column].to_arrow() for column in ("request_id", "parent_request_id", "after_request_id")]
    code, ids = codes(pl.Series(pa.chunked_array(links)))
    row_of = np.full(len(ids), -1)
    row_of[code[:n]] = np.arange(n)
    parent, after = (np.where(codes < 0, -1, row_of[codes]) for codes in (code[n : 2 * n], code[2 * n :]))
    end = rows["end_s"].fill_null(rows["arrival_s"] + rows["e2e_s"])
    return Log(
        simulated=simulated,
        session=codes(rows["session_id"])[0],
        agent=codes(rows["agent_path"])[0],
        parent=parent,
        after=after,
        arrival=rows["arrival_s"].to_numpy().astype(np.float64),
        end=end.fill_null(np.nan).to_numpy(),
        gap=rows["gap_s"].fill_null(np.nan).to_numpy(),
        overlaps=(rows["gap_kind"].cast(pl.String) == "overlap").fill_null(False).to_numpy(),
    )


def codes(names: pl.Series) -> tuple[I64, pa.Array]:
    """Numbers in order of first appearance, -1 for null, and the names by number."""
    found = pa.array(names.to_arrow()).dictionary_encode()
    return found.indices.fill_null(-1).to_numpy().astype(np.int64), found.dictionary


def past_skipped(link: I64, simulated: Mask) -> I64:
    """The first simulated row along the links, -1. Links lead to earlier rows."""
    rows = np.arange(link.size)
    found = np.where(link < rows, link, -1)
    while (skipped := np.flatnonzero((found >= 0) & ~simulated[found])).size:
        at = found[skipped]
        found[skipped] = np.where(link[at] < at, link[at], -1)
    return found


def find_releases(log: Log, parent: I64, replay: str) -> Releases:
    """What every simulated row waits for. `parent`: the simulated row whose prompt it extends."""
    kind, gap = np.full(log.arrival.size, AT_ARRIVAL, np.int8), np.zeros(log.arrival.size)
    nothing = np.empty(0, np.int64)
    if replay == "timestamps":
        return Releases(kind, gap, nothing, nothing)
    rows = np.flatnonzero(log.simulated)
    rows = np.delete(rows, np.unique(log.session[rows], return_index=True)[1])  # the first waits for nobody
    before = _row_before(log)[rows]
    after, since, overlaps = _predecessor(log, rows)
    of_parent = np.where(parent[rows] >= 0, log.end[parent[rows]], np.nan)
    unknown_end = (parent[rows] >= 0) & (parent[rows] != after) & np.isnan(of_parent)
    falls_back = (after < 0) | np.isnan(since) | (unknown_end & ~overlaps)
    after_start, after_end = overlaps & ~falls_back, ~overlaps & ~falls_back
    nearest = np.where(parent[rows] >= 0, parent[rows], before)
    by_clock = falls_back & (nearest >= 0)
    waits = [rows[by_clock], rows[after_end]]
    for_row = [nearest[by_clock], after[after_end]]
    main = after_end & (log.agent[rows] < 0)
    for these, others in _ended_meanwhile(log, rows[main], before[main], after[main]):
        waits.append(these)
        for_row.append(others)
    if replay != "causal":  # there the log's clock decides, and who overlapped did not wait
        waits.append(rows[after_start])
        for_row.append(after[after_start])
        kind[rows[after_start]], kind[rows[after_end]] = AFTER_START, AFTER_END
        gap[rows[~falls_back]] = since[~falls_back]
    return Releases(kind, gap, np.concatenate(waits), np.concatenate(for_row), int(falls_back.sum()))


def _row_before(log: Log) -> I64:
    """For every row the last simulated one before it in its agent line, -1."""
    n = log.session.size
    order = np.lexsort((log.agent, log.session))  # stable: rows of a line in order
    session, agent, place = log.session[order], log.agent[order], np.arange(n)
    begins = (np.diff(session, prepend=-1) != 0) | (np.diff(agent, prepend=-2) != 0)
    line_start = np.maximum.accumulate(np.where(begins, place, 0))
    last = np.maximum.accumulate(np.where(log.simulated[order], place, -1))
    last = np.concatenate([[-1], last[:-1]])
    before = np.empty(n, np.int64)
    before[order] = np.where(last >= line_start, order[last], -1)
    return before


def _predecessor(log: Log, rows: I64) -> tuple[I64, F64, Mask]:
    """(row, gap, whether it overlaps) of what `rows` come after; past skipped rows by the logged times."""
    after, gap, overlaps = log.after[rows], log.gap[rows].copy(), log.overlaps[rows].copy()
    skipped = (after >= 0) & ~log.simulated[after]
    after = np.where(skipped, past_skipped(log.after, log.simulated)[rows], after)
    since_end = log.arrival[rows] - log.end[after]
    overlapped = skipped & ~(since_end >= 0)  # also where the end is unknown
    gap[skipped] = since_end[skipped]
    gap[overlapped] = (log.arrival[rows] - log.arrival[after])[overlapped]
    overlaps[skipped] = overlapped[skipped]
    return after, gap, overlaps


def _ended_meanwhile(log: Log, rows: I64, before: I64, after: I64) -> list[tuple[I64, I64]]:
    """Pairs (row, other): a turn of the main line waits for the turn before it, and for the sub-agents'
    requests that ended since that arrived.

    `after` ended last of the session, so that the gap counts from the last of all these.
    """
    since = np.where(before >= 0, log.arrival[before], -np.inf)
    until = np.fmax(log.arrival[rows], log.end[after])
    turn_before = (before >= 0) & (log.end[before] <= until)
    agents = np.flatnonzero(log.simulated & (log.agent >= 0) & ~np.isnan(log.end))
    agents = agents[np.lexsort((log.end[agents], log.session[agents]))]

    def ended_by(time: F64) -> I64:
        """How many of `agents` come before each row's session or ended in it by that time."""
        session = np.concatenate([log.session[agents], log.session[rows]])
        is_row = np.arange(session.size) >= agents.size
        order = np.lexsort((is_row, np.concatenate([log.end[agents], time]), session))
        counted = np.empty(session.size, np.int64)
        counted[order] = np.cumsum(~is_row[order])
        return counted[agents.size :]

    first, stop = ended_by(since), ended_by(until)
    n_ended = np.maximum(stop - first, 0)
    waits = np.repeat(rows, n_ended)
    place = np.arange(waits.size) - np.repeat(np.cumsum(n_ended) - n_ended - first, n_ended)
    others = agents[place]
    earlier = others < waits
    return [(rows[turn_before], before[turn_before]), (waits[earlier], others[earlier])]
