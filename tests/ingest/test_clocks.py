"""Clocks that cannot be right are reported, and change nothing."""

import json

import numpy as np
import pytest

from agentctl.ingest.build import ingest
from agentctl.ingest.clocks import Steps
from agentctl.ingest.options import IngestOptions

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def warnings(arrivals: list[float], lasts: list[float | None] | None = None, batch: int = 100) -> list[str]:
    """Of a file with these arrivals and durations in seconds."""
    steps = Steps()
    for k in range(0, len(arrivals), batch):
        columns = {"arrival_ns": np.rint(np.array(arrivals[k : k + batch]) * 1e9).astype(np.int64)}
        if lasts:
            columns["e2e_s"] = np.array(lasts[k : k + batch], dtype=np.float64)
        steps.see(columns)
    return steps.warnings("log")


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_a_file_in_order_of_arrivals_or_ends_either_way_round_has_no_steps(batch):
    rng = np.random.default_rng(1)
    arrivals = np.cumsum(rng.exponential(5.0, 200))
    lasts = rng.exponential(60.0, 200)
    for order in (np.arange(200), np.argsort(arrivals + lasts)):
        for way in (1, -1):
            rows = order[::way]
            assert warnings(arrivals[rows].tolist(), lasts[rows].tolist(), batch) == []


@pytest.mark.parametrize("batch", [1, 3, 100])
@pytest.mark.parametrize("way", [1, -1])
def test_a_clock_that_was_set_back_is_one_step(batch, way):
    arrivals = [10.0 * k for k in range(30)] + [10.0 * k - 3600 + 300 for k in range(30)]
    assert warnings(arrivals[::way], batch=batch) == [
        "log: time steps back once, by up to 3,590.0 s: several logs put together, or a clock that was set?"
    ]


def test_a_few_seconds_out_of_order_are_how_several_processes_write():
    arrivals = [float(k + (9 if k % 4 == 0 else 0)) for k in range(100)]
    assert warnings(arrivals) == []


def test_a_step_forward_may_be_a_quiet_night():
    assert warnings([0.0, 1.0, 40_000.0, 40_001.0]) == []


def test_a_file_in_no_order_has_no_steps_to_speak_of():
    arrivals = np.random.default_rng(2).uniform(0, 1e5, 500).tolist()
    assert warnings(arrivals) == []


def test_unknown_ends_count_as_arrivals():
    arrivals = [0.0, 100.0, 200.0, 50.0, 300.0]
    assert len(warnings(arrivals, [None] * 5)) == 1
    assert warnings(arrivals, [None, None, None, 145.0, None]) == []  # it ended at 195: written then


def test_a_file_of_two_days_put_together_the_wrong_way_is_reported_and_sorted(tmp_path):
    days = [
        "".join(f"2023-11-{day} 10:00:{s:02d}.0000000,{s + 1},1\n" for s in range(40)) for day in (17, 16)
    ]
    (tmp_path / "log.csv").write_text(HEADER + "".join(days))
    (tmp_path / "right.csv").write_text(HEADER + "".join(days[::-1]))
    report = ingest([tmp_path / "log.csv"], tmp_path / "a.trace")
    assert report.document["warnings"] == [
        "log.csv: time steps back once, by up to 86,439.0 s: several logs put together, or a clock that was "
        "set?"
    ]
    assert report.sections[0].warnings == tuple(report.document["warnings"])
    right = ingest([tmp_path / "right.csv"], tmp_path / "b.trace")
    assert right.document["warnings"] == []
    columns = ["arrival_s", "prompt_tokens"]
    assert report.trace.requests(columns).equals(right.trace.requests(columns))


FIELDS = {
    "arrival_s": "at", "e2e_ms": "took", "prompt_tokens": "n", "output_tokens": "out", "session_id": "s",
}  # fmt: skip


def dialogue(skew_s: float) -> list[dict]:
    """Ten sessions of two turns: the second quotes the answer to the first, which ends at 2 s."""
    rows = []
    for k in range(10):
        start = 100 * k
        rows += [
            {"at": start, "took": 2000, "n": 100, "out": 50, "s": k},
            {"at": start + 5 - skew_s, "took": 1000, "n": 160, "out": 50, "s": k},
        ]
    return rows


@pytest.mark.parametrize(("skew", "n"), [(0, 0), (2.9, 0), (3.05, 0), (4.5, 10)])
def test_a_prompt_that_quotes_an_answer_before_its_end_tells_of_two_clocks(tmp_path, skew, n):
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in dialogue(skew)))
    report = ingest([tmp_path / "log.jsonl"], tmp_path / "a.trace", IngestOptions(map=FIELDS))
    found = [text for text in report.document["warnings"] if "two hosts" in text]
    expected = (
        "10 requests arrive up to 1.5 s before the answer that the prompt could hold had ended: do the "
        "clocks of two hosts differ?"
    )
    assert found == ([expected] if n else [])


def test_a_branch_that_is_too_short_to_hold_the_answer_is_no_evidence(tmp_path):
    rows = [row | {"n": 120} if row["n"] == 160 else row for row in dialogue(4.5)]
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = ingest([tmp_path / "log.jsonl"], tmp_path / "a.trace", IngestOptions(map=FIELDS))
    assert report.document["warnings"] == []
