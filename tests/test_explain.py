"""What `simulate` says of decisions: those asked for, a sample of all, and the loads that came of them."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from oracles import crowded
from oracles.comparison import policy_of
from oracles.datasets import write_dataset
from oracles.random_clusters import cases, make_case
from oracles.reference_simulator import BatchCoefficients, Limits, Request
from oracles.reference_tiers import Tier
from oracles.tiering import with_tiers

from agentctl.cluster import parse_cluster
from agentctl.errors import UsageError
from agentctl.explain import explain_requests
from agentctl.files import canonical_json
from agentctl.hot_spots import Prefix, heavy_prefixes, hot_spots, prefill_s
from agentctl.policies.base import load_policy, policy_names
from agentctl.regret import sample_regret
from agentctl.report.terminal import render
from agentctl.sim.content import Content
from agentctl.sim.driver import simulate
from agentctl.simulate import run_simulation

QUIET = settings(deadline=None, max_examples=40, suppress_health_check=list(HealthCheck))
ALL_TO_FIRST = SimpleNamespace(
    name="first", my=None, sees=("running_requests", "hit_tokens"), choose=lambda view, requests, r, my: 0
)

# a prompt of 48 tokens takes 49 ms
CLUSTER = {
    "schema": "agentctl/cluster/1",
    "pool": [{"name": "main", "engines": 2, "block_tokens": 16, "kv_blocks": 100,
              "batch_time": {"model": "hinge", "b0": 1e-3, "b_prefill": 1e-3, "b_decode": 0.0}}],
    "router": {"policy": "prefix-affine"},
}  # fmt: skip
ROWS = [
    {"arrival_s": 0.0, "session_id": "a", "blocks": [1, 2, 3], "output_tokens": 1, "e2e_s": 1.0},
    {"arrival_s": 0.01, "session_id": "b\x1b[31m", "blocks": [1, 4], "output_tokens": 1, "e2e_s": 1.0},
    {"arrival_s": 0.02, "session_id": "c", "blocks": [9], "prompt_tokens": 9000, "output_tokens": 1,
     "e2e_s": 1.0},
    {"arrival_s": 5.0, "session_id": "b\x1b[31m", "blocks": [1, 4, 5], "output_tokens": 1, "e2e_s": 1.0},
]  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    return write_dataset(tmp_path / "small.trace", ROWS, block_tokens=16)


@pytest.fixture
def cluster():
    return parse_cluster(CLUSTER, "c.toml")


def crowd(n_engines=2):
    limits, trace_block, _ = crowded.RUNS[0]
    return make_case(*crowded.sessions(trace_block), trace_block, [limits] * n_engines)


def test_a_decision_is_told_with_what_the_router_saw_and_what_each_engine_would_have_given(trace, cluster):
    ids = run_simulation(trace, cluster).outcome["request_id"].to_pylist()
    result = run_simulation(trace, cluster, explain=[ids[3]])
    (told,) = result.document["explain"]
    assert (told["request_id"], told["turn"], told["status"]) == (ids[3], 1, "done")
    home, away = told["engine"], 1 - told["engine"]
    assert told["best_engine"] == home and told["ttft_regret_s"] == 0
    assert [row["engine"] for row in told["engines"]] == [0, 1]
    assert told["engines"][home]["saw"]["hit_tokens"] == told["engines"][home]["hit_tokens"] == 32
    assert told["engines"][home]["ttft_s"] == pytest.approx(0.017)
    assert told["engines"][away]["ttft_s"] == pytest.approx(
        0.049 - 1e-3 * told["engines"][away]["hit_tokens"]
    )
    assert told["engines"][home]["chosen"] and not told["engines"][away]["chosen"]
    assert set(told["engines"][0]["saw"]) == set(load_policy("prefix-affine").sees)
    assert told["saw"]["metrics_age_s"] is None, "it looks at no metrics"


def test_what_a_log_wrote_is_shown_without_effect_on_a_terminal(trace, cluster):
    ids = run_simulation(trace, cluster).outcome["request_id"].to_pylist()
    text = render(run_simulation(trace, cluster, explain=[ids[3]]).sections, terminal=False)
    assert "\x1b" not in text and r"b\x1b[31m" in text


def test_explanations_change_nothing_else(trace, cluster):
    ids = run_simulation(trace, cluster).outcome["request_id"].to_pylist()
    plain, explained = run_simulation(trace, cluster), run_simulation(trace, cluster, explain=ids, regret=9)
    for key in ("explain", "regret"):
        plain.document.pop(key), explained.document.pop(key)
    assert canonical_json(plain.document) == canonical_json(explained.document)
    assert plain.outcome.equals(explained.outcome)


def test_a_request_that_fits_nowhere_was_never_placed(trace, cluster):
    ids = run_simulation(trace, cluster).outcome["request_id"].to_pylist()
    result = run_simulation(trace, cluster, explain=[ids[2], ids[0]])
    rejected, served = result.document["explain"]
    assert rejected["status"] == "rejected" and rejected["engines"] == [] and rejected["engine"] is None
    assert served["status"] == "done", "in the order asked for"
    assert "rejected" in result.sections[1].sentence


def test_an_unknown_request_is_an_error_that_names_near_ones(trace, cluster):
    ids = run_simulation(trace, cluster).outcome["request_id"].to_pylist()
    with pytest.raises(UsageError, match="4 simulated requests") as caught:
        run_simulation(trace, cluster, explain=[ids[0] + "x"])
    assert ids[0] in caught.value.hint


@QUIET
@given(cases(), st.integers(0, 9))
def test_regret_is_never_negative_and_0_with_one_engine(case, n):
    outcome = simulate(case.workload, case.cluster, ALL_TO_FIRST, concurrency=case.concurrency)
    found = sample_regret(outcome, case.cluster, ALL_TO_FIRST, 0, case.concurrency, n)
    served = int(outcome.done.sum())
    assert (found["requests"], found["of_requests"]) == (min(n, served), served)
    lost = found["ttft_regret_s"]
    if not found["requests"]:
        assert lost["mean"] is None and found["better_by"][0]["share"] is None
    elif case.cluster.n_engines == 1:
        assert lost["mean"] == lost["max"] == 0 and found["worst"] == []
    else:
        assert 0 <= lost["p50"] <= lost["p95"] <= lost["max"]


def test_everything_on_one_of_two_engines_is_regretted():
    case = crowd()
    outcome = simulate(case.workload, case.cluster, ALL_TO_FIRST)
    everyone = sample_regret(outcome, case.cluster, ALL_TO_FIRST, 0, None, case.workload.n_requests)
    assert everyone["ttft_regret_s"]["mean"] > 0 and everyone["ttft_regret_s"]["mean_error"] == 0
    assert {row["best_engine"] for row in everyone["worst"]} == {1}
    some = sample_regret(outcome, case.cluster, ALL_TO_FIRST, 0, None, 20)
    assert some == sample_regret(outcome, case.cluster, ALL_TO_FIRST, 0, None, 20), "the same sample"


@pytest.mark.parametrize(
    "name",
    [one.name for one in map(load_policy, policy_names()) if one.cost is not None and not one.needs_fleet],
)
def test_the_chosen_engine_costs_least(name):
    case = crowd()
    policy = load_policy(name, batch_time=case.cluster.pools[0].profile.batch_time)
    outcome = simulate(case.workload, case.cluster, policy)
    for told in explain_requests(outcome, case.cluster, policy, 0, None, range(0, 120, 7)):
        costs = [row["cost"] for row in told["engines"] if row["cost"] is not None]
        if costs:
            assert told["engines"][told["engine"]]["cost"] == min(costs)


# Hot spots


@QUIET
@given(st.one_of(cases(), cases(sglang=True)))
def test_hot_spots_add_up_to_the_computed_prefill_of_the_run(case):
    outcome = simulate(case.workload, case.cluster, ALL_TO_FIRST, concurrency=case.concurrency)
    found = hot_spots(outcome, case.cluster)
    by_engine = [
        int(outcome.computed_prefill_tokens[outcome.engine == e].sum()) for e in range(outcome.n_engines)
    ]
    assert [sum(row) for row in found["computed_prefill_tokens"]] == by_engine
    for hot in found["hot"]:
        at = round((hot["from_s"] - found["start_s"]) / found["window_s"])
        assert hot["computed_prefill_tokens"] == found["computed_prefill_tokens"][hot["engine"]][at]
        assert hot["prefill_s"] == pytest.approx(found["prefill_s"][hot["engine"]][at])
        assert (
            sum(some["computed_prefill_tokens"] for some in hot["sessions"]) <= hot["computed_prefill_tokens"]
        )
        for prefix in hot["prefixes"]:
            assert (
                prefix["sessions"] > 1 and prefix["computed_prefill_tokens"] <= hot["computed_prefill_tokens"]
            )
    if case.cluster.n_engines == 1:
        assert found["hot"] == []


def test_a_hot_spot_names_the_session_and_the_prefix_behind_it(trace, cluster):
    """Sessions a and b share a block of 16 tokens and come at once: b follows a to its engine and computes 16
    tokens, or goes to the other and computes 32. The 16 tokens at 5 s are b's own."""
    found = run_simulation(trace, cluster, replay="timestamps").document["hot_spots"]
    assert found["window_s"] == 1.0 and len(found["computed_prefill_tokens"][0]) == 6
    late = [hot for hot in found["hot"] if hot["from_s"] == 5.0]
    assert [some["session_id"] for some in late[0]["sessions"]] == ["b\x1b[31m"]
    assert late[0]["prefixes"] == [], "one session is no shared prefix"
    assert late[0]["times_mean"] == 2.0 and late[0]["computed_prefill_tokens"] == 16


def test_a_load_from_a_tier_is_no_prefill():
    """A of 64 tokens on engine 0, then B, which extends it by 16, on engine 1: it loads the 64."""
    a, b = Request(64, 1, 0.0, (1, 2, 3, 4)), Request(80, 1, 20.0, (1, 2, 3, 4, 5), session=1)
    limits = Limits(kv_blocks=1000, batch_time=BatchCoefficients(b0=1.0, b_prefill=1 / 16, b_attention=2**-9))
    case = with_tiers(make_case([a, b], [], 16, [limits] * 2), [Tier(read_bytes_per_s=32.0)])
    outcome = simulate(case.workload, case.cluster, policy_of(lambda view, r: r))
    assert outcome.hit_global_tokens.tolist() == [0, 64]
    pairs = (64 * 65 / 2, 16 * 64 + 16 * 17 / 2)
    assert prefill_s(outcome, case.cluster).tolist() == [4 + pairs[0] / 512, 1 + pairs[1] / 512]


def test_a_prefix_is_heavy_without_what_longer_ones_account_for():
    """Line 0 is shared by all; two sessions go on together to its block 5, two leave it after block 2 for
    lines of their own. All weigh the same: the longer prefix carries half, and the shorter the other half."""
    content = Content(
        np.array([0, 1, 2, 4, 6]), np.array([0, 0, 0, 1, 0, 2]), np.array([5, 6, 2, 3, 2, 3]), 3
    )  # fmt: skip
    everyone, session = np.arange(4), np.arange(4, dtype=np.int32)
    found = heavy_prefixes(content, everyone, np.full(4, 99), session, np.ones(4))
    assert found == [Prefix(0, 5, 5), Prefix(0, 2, 2)]
    one_session = heavy_prefixes(content, everyone, np.full(4, 99), np.zeros(4, np.int32), np.ones(4))
    assert one_session == []
    short = heavy_prefixes(content, everyone, np.full(4, 1), session, np.ones(4))
    assert short == [Prefix(0, 1, 1)], "no more than the prompt's blocks"
