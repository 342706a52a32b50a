"""From a trace dataset to a workload: which requests are simulated, and who waits for whom.

Simulated are requests with status ok, and aborted and timed-out ones with the output tokens they got. Errors,
rejections and answers of a proxy's cache never held an engine; they are counted and left out, and what came
after them comes after what they came after.

The request that releases a turn (`after_request_id`) and the one whose prompt it extends
(`parent_request_id`) are different things; the latter matters to the cache only.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
from numpy.typing import NDArray

from agentctl.errors import InputError, UsageError
from agentctl.trace import Trace
from agentctl.workload.arrays import (
    AFTER_END,
    AFTER_START,
    AT_ARRIVAL,
    REPLAYS,
    Requests,
    Workload,
    first_children,
)

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

SIMULATED = ("ok", "aborted", "timeout")
COLUMNS = [
    "request_id", "session_id", "agent_path", "turn_index", "parent_request_id", "after_request_id", "gap_s",
    "gap_kind", "arrival_s", "e2e_s", "end_s", "prompt_tokens", "output_tokens", "status", "tip_node",
"priority", ]  # fmt: skip


class _Log(NamedTuple):
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


class _Releases(NamedTuple):
    """When the simulated rows arrive (see Requests), as pairs of a row and one that it waits for."""

    kind: NDArray[np.int8]
    gap: F64
    waits: I64
    for_row: I64
    n_fallback: int = 0  # rows of which the log does not tell what they waited for


def compile_workload(trace: Trace, replay: str | None = None) -> Workload:
    """The workload of a dataset in one replay mode.

    replay  timestamps: as logged; causal: as logged, but not before what the log shows as ended has ended;
            thinktime: the logged gap after it; closed-loop: the same, and sessions start when others end.
            Default: thinktime where the log knows gaps, else timestamps

    Raises InputError when token counts are missing or nothing can be simulated, UsageError for another
    replay.
    """
    rows = trace.requests(COLUMNS)
    is_simulated = rows["status"].cast(pl.String).is_in(SIMULATED)
    kept = rows.filter(is_simulated)
    if replay is None:
        replay = "thinktime" if kept["after_request_id"].is_not_null().any() else "timestamps"
    if replay not in REPLAYS:
        raise UsageError(f"replay is {replay!r}", expected=" or ".join(REPLAYS))
    _check_tokens(kept, str(trace.path))
    log = _read(rows, is_simulated.to_numpy())
    number = np.where(log.simulated, np.cumsum(log.simulated) - 1, -1)  # of a row among the simulated
    above = _past_skipped(log.parent, log.simulated)
    parent = np.where(above < 0, -1, number[above])[log.simulated].astype(np.int32)
    releases = _releases(log, above, replay)
    n = kept.height
    links = np.unique(number[releases.waits] * n + number[releases.for_row])
    session, session_ids = _codes(kept["session_id"])
    requests = Requests(
        arrival=log.arrival[log.simulated],
        prompt_tokens=kept["prompt_tokens"].to_numpy().astype(np.int64),
        output_tokens=np.maximum(kept["output_tokens"].to_numpy().astype(np.int64), 1),
        session=session.astype(np.int32),
        turn=kept["turn_index"].to_numpy().astype(np.int32),
        parent=parent,
        release=releases.kind[log.simulated],
        gap=releases.gap[log.simulated],
        deps_start=np.searchsorted(links, np.arange(n + 1) * n),
        deps=(links % n).astype(np.int32),
        tip=kept["tip_node"].fill_null(0).to_numpy().astype(np.uint32),
        confirmed_child=first_children(parent),
        priority=kept["priority"].fill_null(0).to_numpy().astype(np.int32),
    )
    return Workload(
        requests=requests,
        tree=trace.tree,
        block_tokens=trace.block_tokens,
        request_ids=kept["request_id"].to_list(),
        session_ids=session_ids.to_pylist(),
        replay=replay,
        counts=_counts(rows, kept, releases.n_fallback),
        trace_name=trace.name,
        trace_digest=trace.digest,
        starts_synthesised=trace.meta.get("time", {}).get("origin") == "synthesised",
    )


def _check_tokens(kept: pl.DataFrame, place: str) -> None:
    if kept.is_empty():
        raise InputError("no request can be simulated", place=place, expected="requests with status ok")
    for column in ("prompt_tokens", "output_tokens"):
        missing = kept[column].null_count()
        if missing:
            raise InputError(
                f"{missing:,} of {kept.height:,} requests have no {column}",
                place=place,
                expected="token counts for every request that is simulated",
                hint=f"name the field that holds them: agentctl ingest --map {column}=FIELD",
            )
    if (kept["prompt_tokens"] < 1).any():
        raise InputError("a request has an empty prompt", place=place, expected="at least one token")


def _counts(rows: pl.DataFrame, kept: pl.DataFrame, n_fallback: int) -> dict[str, int]:
    """What was left out by reason, and what was assumed by name; zeros are left out."""
    left_out = rows.filter(~pl.col("status").cast(pl.String).is_in(SIMULATED))["status"].cast(pl.String)
    counts = {f"skipped_{status}": int((left_out == status).sum()) for status in sorted(set(left_out))}
    counts["cut_short"] = int((kept["status"].cast(pl.String) != "ok").sum())  # with the output they got
    counts["output_0_as_1"] = int((kept["output_tokens"] < 1).sum())
    counts["causal_fallback"] = n_fallback
    return {name: n for name, n in counts.items() if n}


def _read(rows: pl.DataFrame, simulated: Mask) -> _Log:
    n = rows.height
    links = [rows[column].to_arrow() for column in ("request_id", "parent_request_id", "after_request_id")]
    code, ids = _codes(pl.Series(pa.chunked_array(links)))
    row_of = np.full(len(ids), -1)
    row_of[code[:n]] = np.arange(n)
    parent, after = (np.where(codes < 0, -1, row_of[codes]) for codes in (code[n : 2 * n], code[2 * n :]))
    end = rows["end_s"].fill_null(rows["arrival_s"] + rows["e2e_s"])
    return _Log(
        simulated=simulated,
        session=_codes(rows["session_id"])[0],
        agent=_codes(rows["agent_path"])[0],
        parent=parent,
        after=after,
        arrival=rows["arrival_s"].to_numpy().astype(np.float64),
        end=end.fill_null(np.nan).to_numpy(),
        gap=rows["gap_s"].fill_null(np.nan).to_numpy(),
        overlaps=(rows["gap_kind"].cast(pl.String) == "overlap").fill_null(False).to_numpy(),
    )


def _codes(names: pl.Series) -> tuple[I64, pa.Array]:
    """Numbers in order of first appearance, -1 for null, and the names by number."""
    found = pa.array(names.to_arrow()).dictionary_encode()
    return found.indices.fill_null(-1).to_numpy().astype(np.int64), found.dictionary


def _past_skipped(link: I64, simulated: Mask) -> I64:
    """The first simulated row along the links, -1. Links lead to earlier rows."""
    rows = np.arange(link.size)
    found = np.where(link < rows, link, -1)
    while (skipped := np.flatnonzero((found >= 0) & ~simulated[found])).size:
        at = found[skipped]
        found[skipped] = np.where(link[at] < at, link[at], -1)
    return found


def _releases(log: _Log, parent: I64, replay: str) -> _Releases:
    """What every simulated row waits for. `parent`: the simulated row whose prompt it extends."""
    kind, gap = np.full(log.arrival.size, AT_ARRIVAL, np.int8), np.zeros(log.arrival.size)
    nothing = np.empty(0, np.int64)
    if replay == "timestamps":
        return _Releases(kind, gap, nothing, nothing)
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
    return _Releases(kind, gap, np.concatenate(waits), np.concatenate(for_row), int(falls_back.sum()))


def _row_before(log: _Log) -> I64:
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


def _predecessor(log: _Log, rows: I64) -> tuple[I64, F64, Mask]:
    """(row, gap, whether it overlaps) of what `rows` come after; past skipped rows by the logged times."""
    after, gap, overlaps = log.after[rows], log.gap[rows].copy(), log.overlaps[rows].copy()
    skipped = (after >= 0) & ~log.simulated[after]
    after = np.where(skipped, _past_skipped(log.after, log.simulated)[rows], after)
    since_end = log.arrival[rows] - log.end[after]
    overlapped = skipped & ~(since_end >= 0)  # also where the end is unknown
    gap[skipped] = since_end[skipped]
    gap[overlapped] = (log.arrival[rows] - log.arrival[after])[overlapped]
    overlaps[skipped] = overlapped[skipped]
    return after, gap, overlaps


def _ended_meanwhile(log: _Log, rows: I64, before: I64, after: I64) -> list[tuple[I64, I64]]:
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
