"""The frozen workload shows the published facts, whatever the seed; the same seed gives the same bytes."""

from __future__ import annotations

import numpy as np
import pytest

from agentctl.analyzers import load, locality, quality, reuse
from agentctl.analyzers.base import AnalyzeOptions
from agentctl.errors import OutputError, UsageError
from agentctl.synth.agentic import FACTS, PARAMETERS, agentic
from agentctl.synth.dataset import synthesise
from agentctl.trace import META_FILE, NODES_FILE, REQUESTS_FILE, Trace

RANGE = {fact.name: (fact.low, fact.high) for fact in FACTS}
ENGINES = int(PARAMETERS["engines"].value)


@pytest.fixture(scope="module", params=[0, 7])
def trace(request, tmp_path_factory) -> Trace:
    path = tmp_path_factory.mktemp("agentic") / "agentic.trace"
    return synthesise(agentic(), path, seed=request.param).trace


def small(path, **options):
    return synthesise(agentic(), path, sessions=60, **options)


@pytest.fixture(scope="module")
def measured(trace) -> dict[str, list[float]]:
    """Every fact as our analyzers see it, by each reading that the finding allows."""
    options = AnalyzeOptions(engines=(ENGINES,), reuse_within_s=(100.0,), top_sessions=(0.25,))
    reused, loaded = reuse.analyze(trace, options), load.analyze(trace, options)
    per_min = np.array(loaded.arrivals_curve.y)
    full = per_min[per_min.size // 2 :]  # as many sessions end as start
    assert reused.intra_session is not None
    return {
        "F1": [reused.ideal_token_ratio, reused.last_half.token_ratio],
        "F2": [reused.intra_session, reused.intra_session_any_holder],
        "F3": [reused.by_turn[0].ideal_token_ratio, reused.inter_session],  # of first prompts; of all reuse
        "F4": [locality.analyze(trace, options).reuse_within[0].token_ratio],
        "F5": [loaded.top_sessions[0].token_ratio],
        "F6": [float(full.mean()) / ENGINES],
    }


@pytest.mark.parametrize("name", RANGE)
def test_each_published_fact_is_met_within_its_range(measured, name):
    low, high = RANGE[name]
    for value in measured[name]:
        assert low <= value <= high, (name, value)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_another_workload(tmp_path):
    for name, seed in (("one", 3), ("two", 3), ("other", 4)):
        small(tmp_path / f"{name}.trace", seed=seed)
    for file in (META_FILE, REQUESTS_FILE, NODES_FILE):
        one, two, other = ((tmp_path / f"{n}.trace" / file).read_bytes() for n in ("one", "two", "other"))
        assert one == two
        assert one != other


def test_the_rate_moves_starts_and_nothing_else_of_a_session(tmp_path):
    slow = small(tmp_path / "slow.trace", sessions_per_min=10).trace.requests()
    fast = small(tmp_path / "fast.trace", sessions_per_min=20).trace.requests()
    first = slow.filter(slow["turn_index"] == 0)["arrival_s"].to_numpy()
    faster = fast.filter(fast["turn_index"] == 0)["arrival_s"].to_numpy()
    assert np.allclose(first, 2 * faster, atol=1e-5)
    prompts = {
        name: table.filter(table["turn_index"] == 0)["prompt_tokens"].to_list()
        for name, table in (("slow", slow), ("fast", fast))
    }
    assert prompts["slow"] == prompts["fast"]


def test_a_later_prompt_holds_the_one_before_and_its_answer(trace):
    rows = trace.requests().sort("session_id", "turn_index", maintain_order=True)
    later = rows["turn_index"].to_numpy()[1:] > 0
    grown = np.diff(rows["prompt_tokens"].to_numpy()) - rows["output_tokens"].to_numpy()[:-1]
    has_parent = rows["parent_request_id"].is_not_null().to_numpy()[1:]
    assert (grown[has_parent] > 0).all()
    assert has_parent[later].mean() > 0.9, "but for prompts at the limit"
    assert rows["prompt_tokens"].max() <= PARAMETERS["longest_prompt"].value


def test_blocks_are_the_whole_blocks_of_the_prompt_and_nodes_are_numbered_by_first_use(trace):
    rows, tree = trace.requests(), trace.tree
    tip = rows["tip_node"].to_numpy()
    assert (rows["n_blocks"].to_numpy() == rows["prompt_tokens"].to_numpy() // trace.block_tokens).all()
    assert (tree.depth[tip] == rows["n_blocks"].to_numpy()).all()
    nodes = np.arange(1, tree.parent.size)
    assert (tree.parent[1:] < nodes).all()
    assert (tree.depth[1:] == tree.depth[tree.parent[1:]] + 1).all()
    assert (np.diff(tree.first_row[1:]) >= 0).all()
    assert np.unique(tree.hash[1:]).size == nodes.size


def test_a_gap_leads_back_to_the_request_before_it_in_the_session(trace):
    rows = trace.requests()
    place = {name: row for row, name in enumerate(rows["request_id"])}
    arrival = rows["arrival_s"].to_numpy()
    for row, (after, gap) in enumerate(zip(rows["after_request_id"], rows["gap_s"], strict=True)):
        assert (after is None) == (gap is None)
        if after is not None:
            assert place[after] < row
            assert arrival[place[after]] + gap <= arrival[row] + 1e-5
            assert rows["session_id"][place[after]] == rows["session_id"][row]
        if row > 2000:
            break


def test_the_quality_checks_find_no_fault_in_it(trace):
    result = quality.analyze(trace, AnalyzeOptions())
    assert trace.meta["synth"]["workload"] == "agentic/1"
    assert result is not None


def test_every_parameter_names_its_source():
    for name, number in PARAMETERS.items():
        assert number.source and number.unit, name


@pytest.mark.parametrize(
    "bad", [{"sessions": 0}, {"sessions_per_min": 0.0}, {"sessions_per_min": float("nan")}]
)
def test_numbers_that_make_no_workload_are_refused(tmp_path, bad):
    with pytest.raises(UsageError):
        synthesise(agentic(), tmp_path / "x.trace", **bad)


def test_an_older_dataset_is_kept_unless_told_otherwise(tmp_path):
    small(tmp_path / "x.trace")
    with pytest.raises(OutputError, match="already exists"):
        small(tmp_path / "x.trace")
    small(tmp_path / "x.trace", force=True)
