"""Whom every request waits for, row by row as the rules are told, against the columns that compile them."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles.datasets import write_dataset

from agentctl.workload import AFTER_END, AFTER_START, AT_ARRIVAL, compile_workload
from agentctl.workload.compile import SIMULATED

QUIET = settings(deadline=None, max_examples=100, suppress_health_check=list(HealthCheck))


@st.composite
def logs(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Two sessions with two sub-agents, many ties, unknown ends, skipped rows and links of all kinds."""
    n = draw(st.integers(1, 10))
    arrivals = sorted(draw(st.lists(st.integers(0, 12), min_size=n, max_size=n)))
    rows = []
    for k, arrival in enumerate(arrivals):
        earlier = [f"r{j}" for j in range(k)]
        row = {
            "arrival_s": float(arrival),
            "session_id": draw(st.sampled_from("aab")),
            "agent_path": draw(st.sampled_from([None, None, "x", "y"])),
            "e2e_s": draw(st.sampled_from([None, 0.0, 1.0, 2.0, 5.0, 20.0])),
            "status": draw(st.sampled_from(["ok", "ok", "ok", "timeout", "error", "proxy_cache"])),
            "prompt_tokens": 5,
            "output_tokens": 3,
        }
        if draw(st.integers(0, 2)) == 0:
            row["after_request_id"] = draw(st.sampled_from([None, *earlier]))
            row["gap_s"] = draw(st.sampled_from([None, 0.5, 2.0]))
            row["gap_kind"] = draw(st.sampled_from([None, "tool", "overlap"]))
        if draw(st.integers(0, 2)) == 0:
            row["parent_request_id"] = draw(st.sampled_from([None, *earlier]))
        rows.append(row)
    rows[0]["status"] = "ok"
    return rows


class Judge:
    """The rules of `compile_workload`, for one row at a time."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows
        self.number = {row["request_id"]: n for n, row in enumerate(rows)}

    def simulated(self, r: int) -> bool:
        return self.rows[r]["status"] in SIMULATED

    def linked(self, r: int, column: str) -> int | None:
        """Along the links to a row that is simulated."""
        name = self.rows[r][column]
        while name is not None and not self.simulated(self.number[name]):
            name = self.rows[self.number[name]][column]
        return None if name is None else self.number[name]

    def end(self, r: int) -> float:
        e2e = self.rows[r]["e2e_s"]
        return math.nan if e2e is None else self.rows[r]["arrival_s"] + e2e

    def release(self, r: int) -> tuple[int, float, list[int], bool]:
        """(release, gap, rows that it waits for, whether that is a guess) with think times."""
        row = self.rows[r]
        session = [j for j in range(r) if self.simulated(j) and self.same(r, j, "session_id")]
        if not session:
            return AT_ARRIVAL, 0.0, [], False
        line = [j for j in session if self.same(r, j, "agent_path")]
        after, parent = self.linked(r, "after_request_id"), self.linked(r, "parent_request_id")
        gap, overlaps = row["gap_s"], row["gap_kind"] == "overlap"
        if after is not None and row["after_request_id"] != self.rows[after]["request_id"]:
            gap = row["arrival_s"] - self.end(after)
            overlaps = not gap >= 0
            gap = row["arrival_s"] - self.rows[after]["arrival_s"] if overlaps else gap
        parent_runs_on = parent not in (None, after) and math.isnan(self.end(parent))
        if after is None or gap is None or (parent_runs_on and not overlaps):
            guess = parent if parent is not None else line[-1] if line else None
            return AT_ARRIVAL, 0.0, [] if guess is None else [guess], True
        if overlaps:
            return AFTER_START, gap, [after], False
        waits = {after}
        if row["agent_path"] is None:
            since = self.rows[line[-1]]["arrival_s"] if line else -math.inf
            until = max(row["arrival_s"], self.end(after))
            waits |= {j for j in session if self.rows[j]["agent_path"] and since < self.end(j) <= until}
            waits |= {j for j in line[-1:] if self.end(j) <= until}
        return AFTER_END, gap, sorted(waits), False

    def same(self, a: int, b: int, column: str) -> bool:
        return self.rows[a][column] == self.rows[b][column]


@pytest.mark.parametrize("replay", ["thinktime", "causal"])
@QUIET
@given(rows=logs())
def test_every_request_waits_for_those_that_the_rules_name(tmp_path_factory, replay, rows):
    trace = write_dataset(tmp_path_factory.mktemp("log") / "t.trace", rows)
    judge = Judge(trace.requests().to_dicts())
    w = compile_workload(trace, replay)
    q, guesses = w.requests, 0
    kept = [r for r in range(len(rows)) if judge.simulated(r)]
    number = {r: n for n, r in enumerate(kept)}
    for n, r in enumerate(kept):
        kind, gap, waits, is_guess = judge.release(r)
        guesses += is_guess
        if replay == "causal":
            kind, gap, waits = AT_ARRIVAL, 0.0, [] if kind == AFTER_START else waits
        deps = q.deps[q.deps_start[n] : q.deps_start[n + 1]].tolist()
        assert (q.release[n], q.gap[n], deps) == (kind, gap, [number[j] for j in waits])
        parent = judge.linked(r, "parent_request_id")
        assert q.parent[n] == (-1 if parent is None else number[parent])
    assert w.counts.get("causal_fallback", 0) == guesses
