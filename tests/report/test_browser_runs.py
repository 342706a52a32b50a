"""The reports of real runs in a real browser, with ids and names in the log that would like to act."""

from __future__ import annotations

import numpy as np
import pytest
from oracles.chromium import PROGRAM, browser
from oracles.datasets import write_dataset
from oracles.pages import EMPTY, FAULTS

from agentctl.analyze import analyze_trace
from agentctl.cli.reports import report_page
from agentctl.cluster import parse_cluster
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.recommend import recommend
from agentctl.simulate import run_simulation

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here: apt-get install chromium")

HOSTILE = "</script><script>window.acted=1</script><img src=x onerror=window.acted=1>\u202e"
ENGINE = {
    "name": HOSTILE,
    "engines": 2,
    "block_tokens": 16,
    "kv_blocks": 4000,
    "batch_time": {"model": "hinge", "b0": 5e-3, "b_prefill": 2e-4, "b_decode": 1e-4},
}
PARTS = {
    "simulate": ["verdict", "regret", "latency", "balance", "course", "hot-spots"],
    "recommend": ["verdict", "why", "load", "pareto", "latency", "hits", "engines", "hot-spots", "regret",
                  "sensitivity", "validity"],
}  # fmt: skip


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """12 sessions of 3 turns in 8 minutes; two of them share their first blocks."""
    rng = np.random.default_rng(5)
    rows = []
    for session, start in enumerate(np.sort(rng.uniform(0, 480, size=12))):
        for turn in range(3):
            blocks = [1000 * (session // 2) + block for block in range(1, 101 + 10 * turn)]
            ids = {"session_id": f"s{session}{HOSTILE}", "request_id": f"{session}.{turn}{HOSTILE}"}
            row = {"arrival_s": float(start + 8 * turn), "blocks": blocks, **ids}
            rows.append({**row, "output_tokens": 20, "e2e_s": 2.0})
    return write_dataset(tmp_path_factory.mktemp("traces") / "agents.trace", rows, block_tokens=16)


@pytest.fixture(scope="module", params=list(PARTS))
def page(request, trace, tmp_path_factory):
    cluster = parse_cluster({"schema": "agentctl/cluster/1", "pool": [ENGINE]}, "c.toml")
    if request.param == "simulate":
        result = run_simulation(trace, cluster, policy="lmetric", regret=5)
    else:
        policies = ["round-robin", "smetric"]
        result = recommend(
            trace, cluster=cluster, policies=policies, engines=[2, 3], slos=["ttft p90 < 1s"], replicates=2
        )
    provenance = {"trace": HOSTILE, "command": f"agentctl {request.param} {HOSTILE}"}
    path = tmp_path_factory.mktemp("pages") / f"{request.param}.html"
    path.write_bytes(report_page({**result.document, "provenance": provenance}, result.sections))
    return path


@pytest.fixture(scope="module")
def tab():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module", params=[1280, 390], ids=lambda width: f"{width}px")
def opened(request, tab, page):
    tab.open(page, request.param)
    return tab


def test_it_has_every_part_and_every_figure_is_drawn(opened, page):
    parts = opened.run("[...document.querySelectorAll('section:not(.closing)')].map((part) => part.id)")
    assert parts == PARTS[page.stem]
    assert opened.run("[...document.querySelectorAll('section.closing')].map((part) => part.id)")[-2:] == [
        "assumptions", "provenance",
    ]  # fmt: skip
    assert opened.run("document.querySelectorAll('.plot').length") >= 6
    assert opened.run(EMPTY) == []


def test_the_verdict_is_the_first_thing_that_is_seen(opened):
    top = opened.run("document.querySelector('.verdict').getBoundingClientRect().top")
    assert top < 400


def test_it_asks_for_nothing_complains_of_nothing_and_does_nothing(opened, page):
    asked = [address for address in opened.requests if not address.startswith("data:")]
    assert asked == [page.resolve().as_uri()]
    assert opened.errors == []
    assert opened.run("window.acted") is None
    assert opened.run("document.querySelectorAll('main img').length") == 0
    assert opened.run("document.body.innerText.includes('\u202e')") is False


def test_it_is_no_wider_than_the_window(opened):
    assert opened.run("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("fault", FAULTS)
def test_no_text_is(opened, fault):
    assert opened.run(FAULTS[fault]) == []


@pytest.mark.parametrize("width", [1280, 390])
def test_an_analysis_can_be_read_too(tab, tmp_path, width):
    """Its axes span many decades."""
    log = "sample_traces/weka_small.jsonl.gz"
    analysis = analyze_trace(ingest([log], tmp_path / "small.trace", IngestOptions()).trace)
    path = tmp_path / "analysis.html"
    path.write_bytes(report_page({**analysis.document, "provenance": {"trace": "small"}}, analysis.sections))
    tab.open(path, width)
    assert tab.errors == []
    assert tab.run(EMPTY) == []
    assert {fault: tab.run(script) for fault, script in FAULTS.items()} == {fault: [] for fault in FAULTS}
