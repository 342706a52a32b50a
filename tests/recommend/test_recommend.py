"""`recommend` end to end on a small trace where the answer follows from the workload."""

import dataclasses

import numpy as np
import pytest
from oracles.datasets import write_dataset
from scipy import stats

from agentctl.cluster import parse_cluster
from agentctl.errors import UsageError
from agentctl.files import canonical_json
from agentctl.profile import load_profile
from agentctl.recommend import recommend
from agentctl.recommend.candidates import base_cluster, candidates_of
from agentctl.recommend.scenario import at_load
from agentctl.result import read_result
from agentctl.workload import compile_workload

ENGINE = {
    "name": "main",
    "engines": 2,
    "block_tokens": 16,
    "kv_blocks": 4000,
    "batch_time": {"model": "hinge", "b0": 5e-3, "b_prefill": 2e-4, "b_decode": 1e-4},
}
CLUSTER = parse_cluster({"schema": "agentctl/cluster/1", "pool": [ENGINE]}, "c.toml")
SLO = ["ttft p90 < 1s"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """16 sessions of 4 turns in 8 minutes; a turn adds 160 tokens to a prompt of 1,600 (0.32 s cold)."""
    rng = np.random.default_rng(5)
    rows = []
    for session, start in enumerate(np.sort(rng.uniform(0, 480, size=16))):
        for turn in range(4):
            blocks = [1000 * session + block for block in range(1, 101 + 10 * turn)]
            row = {"arrival_s": float(start + 8 * turn), "session_id": f"s{session:02}", "blocks": blocks}
            rows.append({**row, "output_tokens": 20, "e2e_s": 2.0})
    return write_dataset(tmp_path_factory.mktemp("traces") / "agents.trace", rows, block_tokens=16)


@pytest.fixture(scope="module")
def result(trace):
    return recommend(
        trace, cluster=CLUSTER, slos=SLO, replicates=3, policies=["round-robin", "smetric", "lmetric"]
    )


def test_the_document_has_the_keys_of_the_contract(result):
    document = result.document
    assert document["schema"] == "agentctl/recommend/1"
    assert {"policy", "status", "statement"} <= set(document["verdict"])
    for candidate in document["candidates"]:
        keys = {"policy", "params", "engines", "peak", "interval", "difference_to_current", "verdict"}
        assert keys <= set(candidate)
        assert len(candidate["replicate_peaks"]) == 3
    assert [check["id"] for check in document["validity"]] == [f"V{n}" for n in range(1, 12)]
    assert document["current"] == "round-robin (not yours)"


def test_a_reader_can_recompute_an_interval_from_the_document(result):
    for candidate in result.document["candidates"]:
        loads = np.array([peak["load"] for peak in candidate["replicate_peaks"]])
        half = stats.t.ppf(0.975, 2) * loads.std(ddof=1)
        whole = candidate["trace_peak"]["load"]
        assert candidate["peak"] == whole
        low, high = candidate["interval"]
        assert low == pytest.approx(max(0.0, whole - half))
        assert high is None or high == pytest.approx(whole + half)


def test_policies_that_find_the_kv_again_hit_more_than_round_robin(result):
    hits = {
        c["policy"]: at["hit_ratio"]
        for c in result.document["candidates"]
        for at in c["at_load"]
        if at["load"] == 1
    }
    assert hits["smetric"] > hits["round-robin"] + 0.1
    assert hits["lmetric"] > hits["round-robin"] + 0.1


def test_the_statement_leads_with_the_answer(result):
    verdict = result.document["verdict"]
    names = [c["policy"] for c in result.document["candidates"]]
    assert verdict["policy"] in names
    if verdict["status"] == "no clear winner":
        assert verdict["statement"].startswith("There is no clear winner")
        assert verdict["tied_with"]
    else:
        assert verdict["status"] == "clear"
        assert verdict["statement"].startswith(verdict["policy"])
    assert result.sections[0].sentence == verdict["statement"]
    assert result.exit_code == 0


def test_few_replicates_are_admitted_in_words(result):
    assert any("rough" in said for said in result.document["assumptions"])


def test_the_same_input_and_seed_give_the_same_bytes_and_can_be_read_again(trace, result, tmp_path):
    again = recommend(
        trace, cluster=CLUSTER, slos=SLO, replicates=3, policies=["round-robin", "smetric", "lmetric"]
    )
    assert canonical_json(again.document) == canonical_json(result.document)
    assert again.sections == result.sections
    assert again.files == result.files
    result.write(tmp_path / "run")
    read = read_result(tmp_path / "run")
    assert read.sections == result.sections
    assert read.exit_code == result.exit_code


def test_objectives_that_nothing_can_hold_end_with_code_3(trace):
    result = recommend(
        trace,
        cluster=CLUSTER,
        slos=["ttft p90 < 100ms"],
        replicates=2,
        sensitivity=False,
        policies=["round-robin", "least-loaded"],
    )
    assert result.exit_code == 3
    assert result.document["verdict"]["status"] == "objective not met"
    assert result.document["verdict"]["statement"].startswith("No candidate holds the objectives")


def test_strict_declines_what_is_not_validated(trace):
    result = recommend(
        trace,
        cluster=CLUSTER,
        slos=SLO,
        replicates=2,
        sensitivity=False,
        policies=["round-robin"],
        strict=True,
    )
    assert result.exit_code == 3
    assert result.document["verdict"]["status"] == "declined"
    assert "V1" in result.document["verdict"]["statement"]


def test_the_fewest_gpus_are_found(trace):
    result = recommend(
        trace, cluster=CLUSTER, slos=["ttft p90 < 2s"], replicates=2, policies=["least-loaded"],
        sensitivity=False, engines=[1, 2, 8], objective="gpus", current="least-loaded",
    )  # fmt: skip
    holding = [
        c["engines"] for c in result.document["candidates"] if c["holds_at_trace_load_with_confidence"]
    ]
    assert 8 in holding
    assert result.document["verdict"]["engines"] == min(holding)


def test_the_current_policy_is_a_row_even_when_it_was_not_asked_for(trace):
    result = recommend(
        trace,
        cluster=CLUSTER,
        slos=SLO,
        replicates=2,
        sensitivity=False,
        policies=["lmetric"],
        current="smetric:slack=0.5",
    )
    rows = {c["policy"]: c for c in result.document["candidates"]}
    assert set(rows) == {"lmetric", "smetric"}
    assert rows["smetric"]["is_current"]
    assert rows["smetric"]["params"]["slack"] == 0.5
    assert result.document["verdict"]["policy"] == "lmetric"  # a reference is never recommended


def test_the_current_policy_may_be_the_router_of_a_cluster_file(tmp_path):
    text = 'schema = "agentctl/cluster/1"\n[[pool]]\nname = "main"\nprofile = "h100-qwen3-8b"\n'
    (tmp_path / "live.toml").write_text(
        text + '[router]\npolicy = "smetric"\n[router.params]\nslack = 0.25\n'
    )
    found, reference, _ = candidates_of({2: CLUSTER}, ["lmetric"], str(tmp_path / "live.toml"))
    assert reference == "smetric"
    assert [c.name for c in found] == ["lmetric", "smetric"]
    assert found[1].policy.params["slack"] == 0.25


def test_a_current_policy_with_other_parameters_is_a_row_of_its_own():
    found, reference, _ = candidates_of({2: CLUSTER}, ["smetric"], "smetric:slack=0.25")
    assert reference == "smetric (current)"
    assert [c.policy.params["slack"] for c in found] == [1.0, 0.25]


def test_a_profile_with_a_cluster_gives_its_batch_times_to_the_clusters_limits():
    profile = load_profile("h100-qwen3-8b")
    pool = base_cluster(profile, CLUSTER).pools[0]
    assert pool.profile.batch_time == profile.batch_time
    assert pool.kv_blocks == 4000
    assert base_cluster(profile, None).n_engines == 4


def test_a_lower_rate_keeps_the_sessions_of_synthesised_starts_and_thins_recorded_ones(trace):
    recorded = compile_workload(trace)
    synthesised = dataclasses.replace(recorded, starts_synthesised=True)
    spread = at_load(synthesised, 0.5, seed=0)
    assert spread.n_sessions == recorded.n_sessions
    span = np.ptp(recorded.session_starts())
    assert np.ptp(spread.session_starts()) == pytest.approx(2 * span)
    assert at_load(recorded, 0.5, seed=0).n_sessions < recorded.n_sessions


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"objective": "peak-laod"}, "did you mean `peak-load`?"),
        ({"cluster": None}, "--profile"),
        ({"current": "smetric:slack"}, "NAME:KEY=NUMBER"),
        ({"replay": "closed-loop"}, "closed"),
    ],
)
def test_mistakes_are_usage_errors(trace, flags, words):
    with pytest.raises(UsageError) as caught:
        recommend(trace, **{"cluster": CLUSTER, **flags})
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_one_session_carries_no_claim(tmp_path):
    row = {"arrival_s": 0.0, "session_id": "alone", "blocks": [1, 2, 3], "output_tokens": 5}
    trace = write_dataset(tmp_path / "one.trace", [row], block_tokens=16)
    result = recommend(
        trace, cluster=CLUSTER, slos=SLO, replicates=2, sensitivity=False, policies=["round-robin", "smetric"]
    )
    assert result.exit_code == 3
    assert result.document["verdict"]["status"] == "declined"
    assert result.document["verdict"]["statement"].startswith(
        "Declined: this trace cannot carry a claim (V2). "
    )


def test_a_report_has_every_part_and_a_candidate_one_colour(result):
    names = [section.name for section in result.sections]
    assert names == [
        "verdict", "why", "load", "latency", "hits", "engines", "hot-spots", "regret", "sensitivity",
        "validity", "assumptions",
    ]  # fmt: skip
    looks = {}
    for section in result.sections:
        for figure in section.figures:
            for curve in figure.curves:
                if curve.name in ("round-robin", "smetric", "lmetric"):
                    looks.setdefault(curve.name, set()).add(curve.colour)
    assert all(len(colours) == 1 for colours in looks.values())
    assert len(set.union(*looks.values())) == 3


def test_the_finalists_are_seen_from_inside_at_the_load_that_the_decision_is_about(result):
    finals = result.document["finalists"]
    verdict = result.document["verdict"]
    assert finals["runs"][0]["policy"] == verdict["policy"]
    assert any(run["policy"] == "round-robin" for run in finals["runs"])
    chosen = next(c for c in result.document["candidates"] if c["policy"] == verdict["policy"])
    assert finals["load"] in [at["load"] for at in chosen["at_load"] if at["score"] >= 0]
    for run in finals["runs"]:
        assert sum(share or 0.0 for share in run["prompt_tokens_from"].values()) == pytest.approx(1.0)


def test_the_requests_of_the_recommended_one_are_in_the_run_folder(result):
    """All of them; the finalists' numbers leave out the warm-up, as the comparison does."""
    finals, verdict = result.document["finalists"], result.document["verdict"]
    chosen = next(c for c in result.document["candidates"] if c["policy"] == verdict["policy"])
    measured = next(at for at in chosen["at_load"] if at["load"] == finals["load"])
    assert result.outcome.num_rows == measured["requests"]
    ttft = finals["runs"][0]["ttft_s"]
    assert (ttft["p50"], ttft["p95"]) == (measured["ttft_p50_s"], measured["ttft_p95_s"])
    assert ttft["n"] < measured["requests"]
