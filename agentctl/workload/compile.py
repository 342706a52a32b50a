"""From a trace dataset to a workload: which requests are simulated, and who waits for whom.

Simulated are requests with status ok, and aborted and timed-out ones with the output tokens they got. Errors,
rejections and answers of a proxy's cache never held an engine; they are counted and left out, and what came
after them comes after what they came after.

The request that releases a turn (`after_request_id`) and the one whose prompt it extends
(`parent_request_id`) are different things; the latter matters to the cache only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import polars as pl

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

SIMULATED = ("ok", "aborted", "timeout")
COLUMNS = [
    "request_id", "session_id", "agent_path", "turn_index", "parent_request_id", "after_request_id", "gap_s",
    "gap_kind", "arrival_s", "e2e_s", "end_s", "prompt_tokens", "output_tokens", "status", "tip_node",
"priority", ]  # fmt: skip


class Release(NamedTuple):
    """When a request arrives: see Requests. `is_fallback`: the log does not tell what it waited for."""

    kind: int = AT_ARRIVAL
    gap: float = 0.0
    deps: tuple[int, ...] = ()
    is_fallback: bool = False


def compile_workload(trace: Trace, replay: str | None = None) -> Workload:
    """The workload of a dataset in one replay mode.

    replay  timestamps: as logged; causal: as logged, but not before what the log shows as ended has ended;
            thinktime: the logged gap after it; closed-loop: the same, and sessions start when others end.
            Default: thinktime where the log knows gaps, else timestamps

    Raises InputError when token counts are missing or nothing can be simulated, UsageError for another
    replay.
    """
    rows = trace.requests(COLUMNS).with_row_index("row")
    kept = rows.filter(pl.col("status").cast(pl.String).is_in(SIMULATED))
    if replay is None:
        replay = "thinktime" if kept["after_request_id"].is_not_null().any() else "timestamps"
    if replay not in REPLAYS:
        raise UsageError(f"replay is {replay!r}", expected=" or ".join(REPLAYS))
    place = str(trace.path)
    _check_tokens(kept, place)
    log = _Log(rows, kept)
    releases = [log.release(row, replay) for row in log.rows]
    session, session_ids = _number(kept["session_id"].to_list())
    parent = np.array([log.parent(row) for row in log.rows], dtype=np.int32)
    deps = [release.deps for release in releases]
    requests = Requests(
        arrival=kept["arrival_s"].to_numpy().astype(np.float64),
        prompt_tokens=kept["prompt_tokens"].to_numpy().astype(np.int64),
        output_tokens=np.maximum(kept["output_tokens"].to_numpy().astype(np.int64), 1),
        session=session,
        turn=kept["turn_index"].to_numpy().astype(np.int32),
        parent=parent,
        release=np.array([release.kind for release in releases], dtype=np.int8),
        gap=np.array([release.gap for release in releases], dtype=np.float64),
        deps_start=np.cumsum([0, *(len(d) for d in deps)], dtype=np.int64),
        deps=np.array([dep for d in deps for dep in d], dtype=np.int32),
        tip=kept["tip_node"].fill_null(0).to_numpy().astype(np.uint32),
        confirmed_child=first_children(parent),
        priority=kept["priority"].fill_null(0).to_numpy().astype(np.int32),
    )
    return Workload(
        requests=requests,
        tree=trace.tree,
        block_tokens=trace.block_tokens,
        request_ids=kept["request_id"].to_list(),
        session_ids=session_ids,
        replay=replay,
        counts=_counts(rows, kept, sum(release.is_fallback for release in releases)),
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


def _number(ids: Sequence[str]) -> tuple[Any, list[str]]:
    """Numbers in order of first appearance, and the ids by number."""
    number: dict[str, int] = {}
    codes = np.array([number.setdefault(name, len(number)) for name in ids], dtype=np.int32)
    return codes, list(number)


class _Log:
    """The links of the log between rows. Requests are numbered in the order of the simulated rows."""

    def __init__(self, rows: pl.DataFrame, kept: pl.DataFrame) -> None:
        row_of = {name: row for row, name in enumerate(rows["request_id"].to_list())}

        def linked(column: str) -> list[int]:
            return [row_of.get(name, -1) for name in rows[column].to_list()]

        self.rows: list[int] = kept["row"].to_list()
        self._number = {row: n for n, row in enumerate(self.rows)}
        self._after, self._parent = linked("after_request_id"), linked("parent_request_id")
        self._arrival = rows["arrival_s"].to_list()
        end = rows["end_s"].fill_null(rows["arrival_s"] + rows["e2e_s"])
        self._end = [math.nan if value is None else value for value in end.to_list()]
        self._gap = [math.nan if value is None else value for value in rows["gap_s"].to_list()]
        self._overlaps = (rows["gap_kind"].cast(pl.String).fill_null("") == "overlap").to_list()
        self._agent = rows["agent_path"].cast(pl.String).to_list()
        self._session = rows["session_id"].to_list()
        self._earlier = self._previous()
        self._seen: dict[str, list[int]] = {}  # simulated rows of a session so far, filled by `release`

    def _previous(self) -> list[int]:
        """For every row the simulated row before it in its agent line, -1."""
        last: dict[tuple[str, str | None], int] = {}
        previous = []
        for row, line in enumerate(zip(self._session, self._agent, strict=True)):
            previous.append(last.get(line, -1))
            if row in self._number:
                last[line] = row
        return previous

    def parent(self, row: int) -> int:
        """The request whose prompt this one extends; through requests that are not simulated."""
        above = self._parent[row]
        while above >= 0 and above not in self._number:
            above = self._parent[above]
        return self._number.get(above, -1)

    def release(self, row: int, replay: str) -> Release:
        """What request `row` waits for; called in order of the rows."""
        seen = self._seen.setdefault(self._session[row], [])
        release = Release() if replay == "timestamps" or not seen else self._after_others(row, seen)
        seen.append(row)
        if replay == "causal" and release.kind == AFTER_END:
            return release._replace(kind=AT_ARRIVAL, gap=0.0)
        if replay == "causal" and release.kind == AFTER_START:
            return Release()  # the log shows that it did not wait
        return release

    def _after_others(self, row: int, seen: list[int]) -> Release:
        after, gap, overlaps = self._after[row], self._gap[row], self._overlaps[row]
        if after >= 0 and after not in self._number:
            after, gap, overlaps = self._past_skipped(row)
        parent = self._row_of_parent(row)
        unknown_end = parent >= 0 and parent != after and math.isnan(self._end[parent])
        if after < 0 or math.isnan(gap) or (unknown_end and not overlaps):
            before = parent if parent >= 0 else self._earlier[row]
            return Release(deps=(self._number[before],) if before >= 0 else (), is_fallback=True)
        if overlaps:
            return Release(AFTER_START, gap, (self._number[after],))
        waited_for = {after, *self._ended_meanwhile(row, after, seen)}
        return Release(AFTER_END, gap, tuple(sorted(self._number[other] for other in waited_for)))

    def _row_of_parent(self, row: int) -> int:
        number = self.parent(row)
        return self.rows[number] if number >= 0 else -1

    def _past_skipped(self, row: int) -> tuple[int, float, bool]:
        """(after, gap, overlaps) past requests that are not simulated, by the logged times."""
        after = self._after[row]
        while after >= 0 and after not in self._number:
            after = self._after[after]
        if after < 0:
            return -1, math.nan, False
        since_end = self._arrival[row] - self._end[after]
        if since_end >= 0:
            return after, since_end, False
        return after, self._arrival[row] - self._arrival[after], True

    def _ended_meanwhile(self, row: int, after: int, seen: list[int]) -> list[int]:
        """Main line: the turn before, and the sub-agents' requests that ended since it arrived.

        `after` ended last of the session, so that the gap counts from the last of all these.
        """
        if self._agent[row] is not None:
            return []
        before = self._earlier[row]
        since = self._arrival[before] if before >= 0 else -math.inf
        until = max(self._arrival[row], self._end[after])
        ended = [other for other in reversed(seen) if self._agent[other] is not None]
        waited_for = [other for other in ended if since < self._end[other] <= until]
        if before >= 0 and self._end[before] <= until:
            waited_for.append(before)
        return waited_for
