"""Calibration from a request log alone: measured runs, simulated truth, and logs that cannot carry it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from oracles.client_log import client_trace

from agentctl.calibrate import Engine
from agentctl.calibrate_log import calibrate_log
from agentctl.cluster import cluster_of
from agentctl.engine_meta import Limits
from agentctl.errors import InputError, UsageError
from agentctl.estimators import batch_terms, simulated_fit
from agentctl.estimators.batch_model import fit_batch_model
from agentctl.estimators.batch_time import BatchTime, chunk_pairs
from agentctl.estimators.step_logs import read_step_logs
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.logged import LoggedRun
from agentctl.profile import Profile, parse_profile
from agentctl.toml import read_toml

DATA = Path(__file__).parent / "data"
LLAMA = Limits("unlimited", 16, 2048, 128)
SMALL = Limits(2000, 16, 512, 8)
TRUE = BatchTime("hinge", 6e-3, 8e-5, 2e-4, 3e-7, 3e-7, 4e-9)


# The measured run of a Llama 3.1 8B on one RTX PRO 6000, in sample and from its first half


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    folder = tmp_path_factory.mktemp("llama")
    trace = ingest([DATA / "llmserving" / "measured_llama.jsonl.gz"], folder / "run.trace").trace
    found = calibrate_log(trace, LLAMA)
    (folder / "engine.toml").write_text(found.toml())
    return trace, found, parse_profile(read_toml(folder / "engine.toml"), "engine.toml", "engine")


def test_the_measured_run_is_reproduced_by_the_profile_that_was_written(llama):
    trace, _, profile = llama
    run = LoggedRun(trace, cluster_of(profile))
    ttft, e2e = run.latencies(profile.batch_time)
    logged = run.logged
    assert ttft.mean() == pytest.approx(logged.ttft_s.mean(), rel=0.03)
    assert np.quantile(ttft, 0.9) == pytest.approx(np.quantile(logged.ttft_s, 0.9), rel=0.03)
    assert np.median(np.abs(ttft / logged.ttft_s - 1)) <= 0.03
    assert np.mean(np.abs(e2e / logged.e2e_s - 1)) <= 0.02


def test_its_second_half_is_foretold_from_its_first(llama):
    _, found, _ = llama
    held = found.document["errors"]["held_out"]
    assert held["requests"] == 150
    assert held["e2e_mape"] <= 0.03 and held["ttft_mape"] <= 0.05


def test_the_profile_says_what_it_is_good_for(llama):
    trace, found, profile = llama
    assert profile.predictive_only
    assert profile.provenance["source"] == "fitted-from-log"
    assert profile.provenance["inputs"]["trace"] == trace.digest
    peak = found.document["run"]["peak_kv_tokens"]
    assert 150_000 < peak < 128 * 3000
    assert f"at most {peak:,} tokens were in use" in profile.provenance["kv_blocks"]
    box = profile.fit["box"]
    assert box["in_service"] == [1, 128]  # the engine's limit
    assert box["prompt_tokens"] == box["computed_tokens"]  # nothing was cached
    for low, high in profile.fit["interval"].values():
        assert 0 < low < high


# The client's log of a tiny engine on a CPU, beside the engine's own steps of the same run


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    trace = client_trace(tmp_path_factory.mktemp("client"))
    probes = 1 - 48 / trace.n_requests
    return trace, calibrate_log(trace, Limits("unlimited", 128, 1024, 64), "eq9", ["b_past"], share=probes)


def test_a_client_sees_the_coefficients_that_the_engine_sees(client, monkeypatch):
    monkeypatch.setitem(batch_terms.MODELS, "eq9-past", (*batch_terms.EQ9, "b_past"))
    steps = read_step_logs([DATA / "calibrate" / "vllm_cpu_http.jsonl.gz"]).steps
    inside = fit_batch_model(steps, "eq9-past").values
    _, found = client
    for name in ("b_token", "b_context", "b_attention"):
        assert found.fitted.values[name] == pytest.approx(inside[name], rel=0.15), name
    assert found.batch_time.b_prefill == found.batch_time.b_decode == found.fitted.values["b_token"]


def test_the_load_that_was_held_out_is_foretold_three_times_better_than_without_interference(client):
    trace, found = client
    later = found.document["errors"]["later"]
    assert later["requests"] == 48 and later["ttft_mape"] <= 0.15
    rows = trace.requests(["prompt_tokens", "cached_tokens", "ttft_s"]).tail(48)
    c, alone = found.batch_time, []
    for prompt, cached, _ in rows.iter_rows():
        new, chunks = prompt - cached, -(-(prompt - cached) // 1024)
        past = sum(cached + 1024 * k for k in range(chunks))
        alone.append(c.b0 * chunks + c.b_prefill * new + c.b_attention * chunk_pairs(new, cached)
                     + c.b_past * past)  # fmt: skip
    without = np.mean(np.abs(np.array(alone) / rows["ttft_s"].to_numpy() - 1))
    assert later["ttft_mape"] <= without / 3


def test_its_hits_are_simulated_as_it_saw_them(client):
    _, found = client
    assert found.document["run"]["hits_as_logged"]
    assert any("176,000 of 176,000 cached tokens" in said for said in found.sections[-1].assumptions)


# A simulated truth, and what cannot be fitted


@pytest.fixture
def short(monkeypatch):
    """A search of some hundred runs."""
    monkeypatch.setattr(simulated_fit, "SCAN", 64)
    monkeypatch.setattr(simulated_fit, "WIDELY", (0.8, 10))
    monkeypatch.setattr(simulated_fit, "CLOSELY", (0.3, 25))
    monkeypatch.setattr(simulated_fit, "MOST_TRIES", 3)


def simulated(tmp_path, n=80, gap=0.15, change=lambda row: row, engines=1, name="run"):
    """A log of what the simulator makes of n requests on engines with the coefficients TRUE."""
    rng = np.random.default_rng(1)
    at = 10 + np.cumsum(rng.exponential(gap, n)) if gap < 1 else 10 + gap * np.arange(n)
    rows = [
        {
            "id": f"r{k}", "at": float(at[k]), "ttft": 1.0, "e2e": 2.0, "engine": f"e{rng.integers(engines)}",
            "in": int(rng.integers(20, 1500)), "out": int(rng.integers(2, 80)),
        }
        for k in range(n)
    ]  # fmt: skip
    names = {"request_id": "id", "arrival_s": "at", "prompt_tokens": "in", "output_tokens": "out",
             "instance": "engine", "ttft_s": "ttft", "e2e_s": "e2e", "model": "llm",
             "cached_tokens": "cached"}  # fmt: skip

    def written(rows, name):
        path = tmp_path / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        present = {ours: theirs for ours, theirs in names.items() if any(theirs in row for row in rows)}
        return ingest([path], tmp_path / f"{name}.trace", IngestOptions(format="generic", map=present)).trace

    profile = Profile(TRUE, kv_blocks=2000, block_tokens=16, max_num_seqs=8, max_num_batched_tokens=512)
    outcome = LoggedRun(written(rows, f"{name}-bare"), cluster_of(profile, engines)).simulate()
    for row, arrival, first, end in zip(
        rows, outcome.arrival_s, outcome.first_token_s, outcome.finish_s, strict=True
    ):
        row["ttft"], row["e2e"] = float(first - arrival), float(end - arrival)
    return written([change(row) for row in rows], name)


def test_a_simulated_log_is_reproduced_whatever_engine_served_it(tmp_path, short, monkeypatch):
    monkeypatch.setattr(simulated_fit, "WIDELY", (0.8, 25))
    monkeypatch.setattr(simulated_fit, "CLOSELY", (0.3, 60))
    found = calibrate_log(simulated(tmp_path, n=60, engines=2), SMALL)
    assert found.document["run"]["engines_named"] == ["e0", "e1"]
    assert found.document["errors"]["fitted"]["e2e_mape"] < 0.02
    assert found.document["errors"]["fitted"]["ttft_mape"] < 0.05


def test_the_same_log_flags_and_seed_give_the_same_bytes(tmp_path, short):
    trace = simulated(tmp_path, n=30)
    first, again = calibrate_log(trace, SMALL), calibrate_log(trace, SMALL)
    assert first.toml() == again.toml() and first.document == again.document


def test_limits_that_nobody_gave_are_asked_for_all_at_once(tmp_path):
    trace = simulated(tmp_path)
    with pytest.raises(UsageError) as raised:
        calibrate_log(trace, Limits(block_tokens=16))
    assert raised.value.expected == "--max-num-seqs, --max-num-batched-tokens, --kv-blocks"
    assert "--kv-blocks unlimited" in raised.value.hint


def without(*fields):
    return lambda row: {key: value for key, value in row.items() if key not in fields}


def test_a_log_of_one_request_at_a_time_does_not_show_what_it_does_not_show(tmp_path, short):
    """A request every 5 s, which takes less: no decode ever stood beside another one or a prefill."""
    trace = simulated(tmp_path, n=40, gap=5.0)
    found = calibrate_log(trace, SMALL)
    assert "b_context_mixed" in found.fitted.unseen
    with pytest.raises(InputError, match=r"the log does not show .*b_context_mixed"):
        found.toml()
    assert found.document["batch_time"] is None
    assert found.document["coefficients"]["b_context_mixed"]["status"] == "not seen"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            lambda row: row | {"ttft": row["ttft"] * 1e3, "e2e": row["e2e"] * 1e3},
            "as none does in any engine",
        ),
        (lambda row: row | {"ttft": row["e2e"] + 1}, "ended before their first token"),
        (lambda row: row | {"in": 10**7}, "80 of 80 requests are longer than the engine can hold"),
        (without("ttft", "e2e"), "no request has a measured latency"),
        (without("e2e"), "no request has both a time to first token and"),
        (without("in"), "have no prompt_tokens"),
    ],
)
def test_logs_that_cannot_carry_a_calibration_say_why(tmp_path, change, said):
    with pytest.raises(InputError, match=said):
        calibrate_log(simulated(tmp_path, change=change), SMALL)


def test_what_the_log_says_of_itself_is_in_the_profile_and_the_report(tmp_path, short):
    trace = simulated(tmp_path, change=lambda row: row | {"llm": "Org/Model-7B", "cached": 0})
    found = calibrate_log(trace, replace(SMALL, kv_blocks=120))
    assert found.document["run"]["peak_kv_tokens"] <= 119 * 16
    assert found.profile["model"] == "Org/Model-7B"
    assert calibrate_log(trace, SMALL, engine=Engine("named")).profile["model"] == "named"
    assumed = next(section for section in found.sections if section.name == "assumptions").assumptions
    assert "no prefix hits: the log says that nothing was cached" in assumed


def test_few_requests_are_not_fitted(tmp_path):
    with pytest.raises(InputError, match="12 requests: too few"):
        calibrate_log(simulated(tmp_path, n=12), SMALL)


def test_more_engines_than_the_log_names_need_the_policy_that_placed(tmp_path, short):
    trace = simulated(tmp_path, change=without("engine"))
    with pytest.raises(UsageError, match="does not say which of the 2 engines served"):
        calibrate_log(trace, SMALL, engines=2)
    found = calibrate_log(trace, SMALL, engines=2, policy="round-robin")
    assert found.document["run"]["placed_by"] == "round-robin"


def test_the_prior_of_another_engine_is_found_out(tmp_path, short):
    foreign = Profile(replace_all(TRUE, 0.05), kv_blocks=2000, block_tokens=16)
    found = calibrate_log(simulated(tmp_path), SMALL, prior=foreign)
    assert any("the prior is of another kind of engine" in said for said in found.sections[0].warnings)


def replace_all(c, factor):
    return c._replace(**{name: factor * value for name, value in c._asdict().items() if name != "model"})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"model": "legacy"}, "--model: is 'legacy'"),
        ({"terms": ["b_contxt"]}, "--terms: no term 'b_contxt'"),
        ({"model": "eq9", "terms": ["h0"]}, "--terms: eq9 takes b_past alone"),
    ],
)
def test_models_that_cannot_be_simulated_are_refused(tmp_path, arguments, said):
    with pytest.raises(UsageError, match=said):
        calibrate_log(simulated(tmp_path, n=30), SMALL, **arguments)


def test_later_requests_are_judged_and_not_fitted(tmp_path, short):
    trace = simulated(tmp_path)
    found = calibrate_log(trace, replace(SMALL, kv_blocks="unlimited"), requests=60, share=0.5)
    assert found.document["run"]["requests"] == 60
    assert {name: one["requests"] for name, one in found.document["errors"].items()} == {
        "fitted": 30, "held_out": 15, "later": 30,
    }  # fmt: skip


def test_halves_without_latencies_are_no_halves_to_judge_by(tmp_path):
    def change(row):
        return row if int(row["id"][1:]) >= 40 else without("e2e")(row)

    with pytest.raises(InputError, match="0 of the first 40 requests have e2e_s"):
        calibrate_log(simulated(tmp_path, change=change), SMALL)
