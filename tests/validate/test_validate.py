"""A log that the simulator itself wrote is reproduced to the bit; one of another engine is found out."""

from __future__ import annotations

import gzip
import json
import tomllib
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from oracles.simulated_log import COLUMNS, PROFILE, SPEED, asked, dataset, scaled, written

from agentctl.calibrate import Engine, calibrate_steps
from agentctl.calibrate_prior import RUNS, calibrate_prior
from agentctl.cluster import KvTier, cluster_of
from agentctl.errors import ConfigError, InputError, UsageError
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.policies.base import load_policy
from agentctl.profile import parse_profile
from agentctl.sim.driver import simulate
from agentctl.validate import back_test, validate
from agentctl.validate.compare import load_at_arrival
from agentctl.workload import compile_workload

DATA = Path(__file__).parents[1] / "data"


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return written(tmp_path_factory.mktemp("log"))


@pytest.fixture(scope="module")
def test(log):
    return validate(log, profile=PROFILE)


def test_a_log_of_the_simulator_itself_has_no_error(test):
    document = test.document
    assert document["schema"] == "agentctl/validate/1"
    assert document["verdict"]["status"] == "OK" and test.exit_code == 0
    assert document["placement"] == {
        "by": "log",
        "policy": None,
        "engines": ["engine-0", "engine-1"],
        "guessed": 0,
    }
    for name in ("ttft_s", "e2e_s", "tpot_s"):
        assert document["latencies"][name]["mape"]["value"] < 1e-6
        assert document["latencies"][name]["n"] >= 390
        for error in document["latencies"][name]["error"].values():
            assert abs(error["value"]) < 1e-6
    assert document["latencies"]["queue_s"]["logged"]["p95"] > 0.05  # it did queue
    assert abs(document["latencies"]["queue_s"]["gap_s"]["value"]) < 1e-6
    assert document["hit_ratio"]["gap"]["value"] == 0 and document["hit_ratio"]["logged"] > 0.3
    assert test.outcome.num_rows == 400


def test_bins_of_load_sum_to_the_whole(log):
    slower = replace(PROFILE, batch_time=SPEED._replace(b0=7e-3))
    document = validate(log, profile=slower).document
    bins = document["load_bins"]
    assert len(bins) > 2 and sum(one["requests"] for one in bins) == document["requests"]
    for name in ("ttft_s", "e2e_s", "tpot_s"):
        whole = document["latencies"][name]
        parts = [one["latencies"][name] for one in bins]
        assert sum(part["n"] for part in parts) == whole["n"]
        for what in ("bias", "mape"):
            total = sum(part["n"] * part[what]["value"] for part in parts)
            assert total / whole["n"] == pytest.approx(whole[what]["value"])
    ends = [one["load"] for one in bins]
    assert all(before[1] < after[0] for before, after in pairwise(ends))


def test_times_that_are_a_quarter_too_long_are_found_and_fail(log):
    result = validate(log, profile=scaled(1.25))
    document = result.document
    assert document["verdict"]["status"] == "FAIL" and result.exit_code == 3
    assert document["latencies"]["tpot_s"]["bias"]["value"] == pytest.approx(0.25, abs=0.05)
    assert document["latencies"]["e2e_s"]["bias"]["value"] > 0.2  # and longer queues on top
    assert "does not reproduce" in document["verdict"]["statement"]
    assert any("profile's engine is slower" in text for text in document["warnings"])


@pytest.mark.parametrize(("factor", "status"), [(1.02, "OK"), (1.04, "WARN"), (0.7, "FAIL")])
def test_the_verdict_follows_the_error(log, factor, status):
    found = back_test(log, cluster_of(scaled(factor), 2))
    assert found.status == status
    assert (found.error.value > 0) == (factor > 1)


def test_another_cache_is_found_in_the_hits(log):
    found = back_test(log, cluster_of(replace(PROFILE, kv_blocks=120), 2))
    assert found.hit_gap < -0.02 and found.status in ("WARN", "FAIL")


def test_what_a_tier_gives_is_a_hit_as_engines_report_it(log):
    small = cluster_of(replace(PROFILE, kv_blocks=120, kv_bytes_per_token=1), 2)
    tier = KvTier("host", "engine", 10**9, 1e18, 1e18, unit_tokens=16, use_if_faster=False)
    gaps = [back_test(log, replace(small, kv_tiers=tiers)).hit_gap for tiers in ((), (tier,))]
    assert gaps[0] < gaps[1] - 0.01


def test_requests_that_no_simulated_engine_can_hold_fail(log):
    document = validate(log, profile=replace(PROFILE, max_model_len=700)).document
    assert document["rejected"] > 10 and document["verdict"]["status"] == "FAIL"
    assert "can never fit" in document["verdict"]["statement"]


def test_where_no_request_fits_the_limits_are_named(log):
    document = validate(log, profile=replace(PROFILE, max_model_len=8)).document
    assert document["verdict"]["status"] == "UNVALIDATED"
    assert "none of the 400 requests" in document["verdict"]["statement"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ttft": 1e3, "e2e": 1e3}, "in another unit than seconds"),
        ({"ttft": 1e3}, "ended before their first token: have ttft_s and e2e_s the same unit"),
    ],
)
def test_milliseconds_are_not_taken_for_another_gpu(tmp_path, change, says):
    def measured(row):
        return {"ttft": 0.05, "e2e": 0.1 + 0.01 * row["out"]}

    rows = [row | {key: v * change.get(key, 1) for key, v in measured(row).items()} for row in asked(60)]
    told = validate(dataset(tmp_path, rows), profile=PROFILE).document["warnings"]
    assert any(says in text for text in told) and not any("another GPU" in text for text in told)


def test_the_verdict_names_what_was_compared_alone(tmp_path):
    statement = validate(written(tmp_path, ttft=False), profile=PROFILE).document["verdict"]["statement"]
    assert ": end-to-end p50 and p95 are the same as in the log" in statement and "TTFT" not in statement


def test_without_placement_only_a_current_policy_can_be_compared(tmp_path):
    log = written(tmp_path, engine=False)
    none = validate(log, profile=PROFILE, engines=2)
    assert none.document["verdict"]["status"] == "UNVALIDATED" and none.exit_code == 0
    assert "--current" in none.document["verdict"]["statement"]
    assert validate(log, profile=PROFILE, engines=2, strict=True).exit_code == 3
    right = validate(log, profile=PROFILE, engines=2, current="lmetric").document
    wrong = validate(log, profile=PROFILE, engines=2, current="round-robin").document
    assert right["placement"]["policy"] == "lmetric"
    assert right["latencies"]["e2e_s"]["mape"]["value"] < 1e-6 < wrong["latencies"]["e2e_s"]["mape"]["value"]


def test_a_log_without_latencies_is_unvalidated(tmp_path):
    log = dataset(tmp_path, asked())
    document = validate(log, profile=PROFILE).document
    assert document["verdict"]["status"] == "UNVALIDATED"
    assert "no measured latency" in document["verdict"]["statement"]


def test_an_engine_whose_cache_was_never_full_needs_no_number_of_blocks(log):
    free = replace(PROFILE, kv_blocks=None)
    assert abs(validate(log, profile=free, kv_blocks=900).document["verdict"]["error"]["value"]) < 1e-6
    unlimited = validate(log, profile=free, kv_blocks="unlimited").document
    assert unlimited["cluster"]["pools"][0]["kv_blocks"] > 5000
    assert unlimited["hit_ratio"]["gap"]["value"] > 0  # nothing was evicted


def test_hits_that_are_simulated_as_logged_judge_nothing(tmp_path):
    """A log with cached tokens and no blocks: what the engine found is given to the simulator."""
    log = written(tmp_path, blocks=False)
    document = validate(log, profile=PROFILE).document
    assert document["hit_ratio"] is None and "as the log counts them" in document["hit_ratio_missing"]
    assert document["latencies"]["ttft_s"]["mape"]["value"] < 0.1  # hits in whole blocks: nearly the same run
    unplaced = written(tmp_path, name="unplaced", blocks=False, engine=False)
    other = validate(unplaced, profile=PROFILE, engines=2, current="lmetric").document
    assert other["hit_ratio"] is None and "not simulated" in other["hit_ratio_missing"]


def test_a_log_of_two_engines_taken_for_one_says_what_was_assumed(tmp_path):
    document = validate(written(tmp_path, engine=False), profile=PROFILE).document
    assert document["verdict"]["status"] == "FAIL"
    assert any("--engines N --current POLICY" in text for text in document["warnings"])


def test_synthesised_starts_are_unvalidated(tmp_path):
    """Sessions of a log without times of day: how loaded the engines were is not known."""
    sample = Path(__file__).parents[2] / "sample_traces" / "weka_small.jsonl.gz"
    found = back_test(
        ingest([sample], tmp_path / "w.trace").trace, cluster_of(PROFILE), load_policy("lmetric")
    )
    assert found.status == "UNVALIDATED" and "synthesised" in found.why_not


def test_what_the_engines_said_of_themselves_is_compared(log, monkeypatch):
    """Gauges taken from a run of the same engines: no gap in running, waiting or KV."""
    import polars as pl

    run = simulate(
        compile_workload(log, replay="timestamps"),
        cluster_of(PROFILE, 2),
        load_policy("lmetric"),
        observed=True,
    )
    at = run.samples.time_s[20:120]
    parts = [
        pl.DataFrame({
            "ts_s": at, "kind": "gauge", "instance": f"engine-{e}",
            "running": run.samples.running_requests[20:120, e],
            "waiting": run.samples.waiting_requests[20:120, e],
            "kv_usage": run.samples.kv_used_blocks[20:120, e] / run.samples.kv_total_blocks[e],
        }) for e in range(2)
    ]  # fmt: skip
    monkeypatch.setattr(type(log), "events", lambda self: pl.concat(parts))
    state = validate(log, profile=PROFILE).document["engine_state"]
    assert set(state) == {"kv_usage", "running", "waiting"}
    assert all(gauge["n"] == 200 and gauge["mean_gap"] < 1e-9 for gauge in state.values())
    assert state["kv_usage"]["logged"] > 0 and state["running"]["logged"] > 0.1


def test_load_counts_those_who_are_there_and_the_one_who_comes():
    arrival, end = np.array([0.0, 1, 2, 5]), np.array([4.0, 3, 9, 6])
    assert load_at_arrival(arrival, end, np.zeros(4, int)).tolist() == [1, 2, 3, 2]
    assert load_at_arrival(arrival, end, np.array([0, 1, 0, 1])).tolist() == [1, 1, 2, 1]


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A measured run of vLLM 0.19, and the prior of its model and GPU under its limits."""
    folder = tmp_path_factory.mktemp("llama")
    trace = ingest([DATA / "llmserving" / "measured_llama.jsonl.gz"], folder / "run.trace").trace
    prior = calibrate_prior(DATA / "prior" / "llama-3.1-8b.json", "rtx-pro-6000-server")
    profile = parse_profile(prior.profile, "profile", "prior")
    return trace, replace(profile, max_num_seqs=128, max_num_batched_tokens=2048)


def test_a_measured_run_under_a_prior_errs_as_it_is_known_to(llama):
    """The same errors as tests/sim/test_prior_runs.py finds without any of this."""
    document = validate(llama[0], profile=llama[1]).document
    assert document["verdict"]["status"] == "OK"
    assert document["latencies"]["e2e_s"]["mape"]["value"] == pytest.approx(RUNS[0], abs=0.005)
    assert document["latencies"]["ttft_s"]["mape"]["value"] == pytest.approx(0.10, abs=0.005)
    assert (
        document["hit_ratio"] is None and "does not say what was cached" in document["verdict"]["statement"]
    )
    assert document["latencies"]["ttft_s"]["logged"]["mean"] == pytest.approx(
        7.097, abs=5e-4
    )  # by its authors
    assert "too narrow" in document["intervals"]["caveat"]


def test_a_measured_run_is_predicted_from_the_kernels_of_its_gpu(llama, tmp_path):
    """Kernel tables of the same GPU and model (vLLM 0.19), no number of the run; host time is not in them."""
    for name in ("attention", "dense", "per_sequence"):
        packed = (DATA / "calibrate" / "rtx_pro_6000" / f"{name}.csv.gz").read_bytes()
        (tmp_path / f"{name}.csv").write_bytes(gzip.decompress(packed))
    terms = ("b_context_mixed", "b_past", "h0")  # those that are chosen when none are named
    engine = Engine(kv_blocks=35_000, block_tokens=16, max_num_seqs=128, max_num_batched_tokens=2048)
    found = calibrate_steps([tmp_path], terms=terms, engine=engine, n_layers=32)
    document = validate(llama[0], profile=parse_profile(tomllib.loads(found.toml()), "p", "kernels")).document
    assert document["latencies"]["e2e_s"]["mape"]["value"] <= 0.08
    assert document["latencies"]["e2e_s"]["bias"]["value"] < -0.05  # as it must be without host time
    assert any("host time" in text for text in document["warnings"])


def test_a_wrong_limit_shows_as_waiting(llama):
    document = validate(llama[0], profile=replace(llama[1], max_num_seqs=256)).document
    assert document["verdict"]["status"] == "FAIL"
    assert validate(llama[0], profile=llama[1], strict=True).exit_code == 0


def test_another_models_profile_is_an_error(tmp_path):
    rows = [row | {"model": "meta/Llama-3.1-8B", "e2e": 1.0} for row in asked(60)]
    COLUMNS_WITH_MODEL = COLUMNS | {"model": "model"}
    path = tmp_path / "m.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    columns = {ours: theirs for ours, theirs in COLUMNS_WITH_MODEL.items() if theirs in rows[0]}
    trace = ingest(
        [path], tmp_path / "m.trace", IngestOptions(format="generic", map=columns, block_tokens=16)
    ).trace
    with pytest.raises(ConfigError, match=r"is of qwen3-8b, the log of llama-3.1-8b"):
        validate(trace, profile=replace(PROFILE, model="Qwen/Qwen3-8B"))
    for name in ("llama-3.1-8b", "org/llama-3.1-8B_FP8"):
        assert validate(trace, profile=replace(PROFILE, model=name)).document["verdict"]["error"]


def test_a_predictive_profile_is_refused_under_other_limits(log):
    only = replace(PROFILE, provenance={"predictive_only": True})
    assert validate(log, profile=only).document["verdict"]["status"] == "OK"
    cluster = cluster_of(PROFILE, 2)
    other = replace(cluster, pools=(replace(cluster.pools[0], max_num_seqs=64),))
    with pytest.raises(ConfigError, match=r"max_num_seqs: is 64.*engines with 8"):
        validate(log, profile=only, cluster=other)


def test_a_profile_fitted_to_this_log_says_so(log):
    fitted = replace(PROFILE, provenance={"inputs": {"trace": log.digest}})
    document = validate(log, profile=fitted).document
    assert document["in_sample"] and any("in sample" in text for text in document["warnings"])


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        ({}, UsageError, "neither is given"),
        ({"profile": replace(PROFILE, kv_blocks=None)}, ConfigError, "kv_blocks: missing"),
        ({"cluster": cluster_of(PROFILE, 2), "kv_blocks": 9}, UsageError, "a profile alone"),
        ({"profile": PROFILE, "engines": 3}, ConfigError, "the log names 2 engines and the cluster has 3"),
    ],
)
def test_what_cannot_be_simulated_is_an_error(log, arguments, error, says):
    with pytest.raises(error, match=says):
        validate(log, **arguments)


def test_missing_token_counts_are_an_error(tmp_path):
    rows = [{key: value for key, value in row.items() if key != "out"} | {"e2e": 1.0} for row in asked(60)]
    with pytest.raises(InputError, match="no output_tokens"):
        validate(dataset(tmp_path, rows), profile=PROFILE)
