"""`agentctl calibrate log` as a user meets it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from agentctl.estimators import simulated_fit
from agentctl.profile import load_profile

DATA = Path(__file__).parents[1] / "data"
META = {
    "engine_kwargs": {
        "model": "meta-llama/Llama-3.1-8B", "max_num_seqs": 128, "max_num_batched_tokens": 2048,
        "max_model_len": None, "tensor_parallel_size": 1,
    }
}  # fmt: skip
LIMITS = ("--max-num-seqs", 128, "--max-num-batched-tokens", 2048, "--kv-blocks", "unlimited")


@pytest.fixture(autouse=True)
def short(monkeypatch):
    """A search of some hundred runs."""
    monkeypatch.setattr(simulated_fit, "SCAN", 32)
    monkeypatch.setattr(simulated_fit, "WIDELY", (0.8, 5))
    monkeypatch.setattr(simulated_fit, "CLOSELY", (0.3, 5))
    monkeypatch.setattr(simulated_fit, "MOST_TRIES", 2)


@pytest.fixture
def log(tmp_path):
    """The first 30 requests of the measured run."""
    lines = gzip.decompress((DATA / "llmserving" / "measured_llama.jsonl.gz").read_bytes()).splitlines()
    (tmp_path / "run.jsonl").write_bytes(b"\n".join(lines[:30]))
    (tmp_path / "meta.json").write_text(json.dumps(META))
    return "run.jsonl"


def test_a_profile_is_written_that_validate_reads(agentctl, log, tmp_path):
    read = ("--meta", "meta.json", "--kv-blocks", "unlimited")
    done = agentctl("calibrate", "log", log, *read, "-o", "p.toml", "--html", "p.html")
    assert done.code == 0, done.err
    assert done.out.startswith(
        "Simulated with these coefficients, the run's 30 requests take as long as logged"
    )
    assert "next: agentctl validate TRACE --profile p.toml" in done.err
    profile = load_profile(tmp_path / "p.toml")
    assert profile.predictive_only and profile.model == "meta-llama/Llama-3.1-8B"
    assert (profile.max_num_seqs, profile.max_num_batched_tokens) == (128, 2048)
    page = (tmp_path / "p.html").read_text()
    assert "When is the simulation wrong?" in page and "profile-likelihood" in page
    assert agentctl("validate", log, "--profile", "p.toml", "-q").code in (0, 3)


def test_with_json_every_coefficient_has_its_interval_and_its_bounds(agentctl, log):
    done = agentctl("calibrate", "log", log, *LIMITS, "--json", "--model", "eq9")
    document = json.loads(done.out)
    assert (document["schema"], document["source"]) == ("agentctl/calibrate/1", "log")
    assert document["predictive_only"]
    assert set(document["coefficients"]) == {"b0", "b_token", "b_context", "b_attention"}
    for one in document["coefficients"].values():
        low, high = one["searched"]
        assert low <= one["value"] <= high
    assert document["run"]["peak_kv_tokens"] > 0
    assert document["errors"]["fitted"]["requests"] == 30


def test_a_given_pool_is_the_one_that_is_written(agentctl, log, tmp_path):
    given = (*LIMITS[:-1], 9000)
    assert agentctl("calibrate", "log", log, *given, "--model", "eq9", "-o", "p.toml", "-q").code == 0
    profile = load_profile(tmp_path / "p.toml")
    assert (profile.kv_blocks, profile.block_tokens) == (9000, 16)
    assert "kv_blocks" not in profile.provenance


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "expected --max-num-seqs, --max-num-batched-tokens, --kv-blocks"),
        (("--meta", "meta.json"), "expected --kv-blocks"),
        (("--kv-blocks", "many"), "--kv-blocks: is 'many'"),
        (("--kv-blocks", "1"), "--kv-blocks: is '1'"),
        (("--meta", "run.jsonl"), "run.jsonl: is not JSON"),
        (("--meta", "none.json"), "none.json: cannot be read"),
        ((*LIMITS, "--model-config", "config.json"), "--model-config: needs the GPU"),
        ((*LIMITS, "--model-config", "c.json", "--gpu", "l4", "--prior", "p"), "two priors are given"),
        ((*LIMITS, "--engines", 2), "--engines: the log does not say which of the 2 engines"),
        ((*LIMITS, "--model", "legacy"), "--model: is 'legacy'"),
        ((*LIMITS, "--prior", "h100"), "profile h100: is neither a file nor a preset"),
        ((*LIMITS, "--requests", 5), "5 requests: too few"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_refused_with_its_flag(agentctl, log, arguments, said):
    done = agentctl("calibrate", "log", log, *arguments)
    assert done.code in (1, 2) and said in done.err, done.err


def test_meta_with_a_wrong_number_is_refused(agentctl, log, tmp_path):
    (tmp_path / "bad.json").write_text(json.dumps({"max_num_seqs": "128"}))
    done = agentctl("calibrate", "log", log, "--meta", "bad.json", "--kv-blocks", "unlimited")
    assert done.code == 1 and "max_num_seqs is not a whole number from 1 to 1000000000" in done.err
