"""From what a client saw to a profile: what it holds, and how far it is from a load that was not fitted."""

import json

import pytest
from oracles.client_log import client_rows
from oracles.endpoint_server import Server
from oracles.virtual_time import run

from agentctl.calibrate import Engine
from agentctl.calibrate_endpoint import Asked, calibrate_endpoint, measure, measured_from
from agentctl.calibrate_endpoint_mixed import judge_mixed
from agentctl.calibrate_endpoint_sections import sections_of
from agentctl.endpoint.client import Dialect
from agentctl.endpoint.measured import new_measured, read_measured
from agentctl.endpoint.rows import Read, rows_of
from agentctl.errors import InputError, UsageError
from agentctl.estimators.batch_terms import batch_time_of
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.endpoint_fit import Row, fit_endpoint
from agentctl.profile import load_profile

TRUE = BatchTime(
    b0=5e-3, b_prefill=3e-5, b_decode=1e-4, b_context=3e-7, b_context_mixed=3e-7, b_attention=1e-8
)
KINDS = {
    "B": ("cold", "cold"),
    "C": ("suffix", "suffix"),
    "A": ("plateau", "decode"),
    "V": ("mixed", "mixed"),
}


def probed(path, **server):
    asked = Asked(100, max_context=2048, max_width=6)

    async def go():
        async with Server(TRUE, **server) as endpoint:
            return await measured_from(f"{endpoint.url}/v1", path, asked, cpu_time=lambda: 0.0)

    return run(go())


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    return probed(tmp_path_factory.mktemp("probe") / "m.jsonl")


def test_a_profile_holds_the_coefficients_and_what_they_are_worth(measured, tmp_path):
    found = calibrate_endpoint(measured, Engine(gpu="none", kv_blocks=500, block_tokens=16))
    (tmp_path / "p.toml").write_text(found.toml())
    profile = load_profile(tmp_path / "p.toml")
    for name in ("b0", "b_prefill", "b_decode", "b_context", "b_context_mixed", "b_attention"):
        assert getattr(profile.batch_time, name) == pytest.approx(getattr(TRUE, name), rel=1e-3)
    assert (profile.model, profile.kv_blocks, profile.max_num_batched_tokens) == ("tiny", 500, 512)
    assert profile.fit["request_overhead_s"] == pytest.approx(0.003, rel=1e-3)
    assert profile.provenance["source"] == "measured" and profile.provenance["method"] == "endpoint"
    assert len(profile.provenance["inputs"]["m.jsonl"]) == 64
    assert json.loads(json.dumps(found.document))["requests"]["read"] == len(measured.requests)


def test_a_mixed_load_that_was_not_fitted_is_predicted_with_its_waiting(measured):
    mixed = calibrate_endpoint(measured).mixed
    assert mixed.ttft_mape < 1e-3 and mixed.e2e_mape < 1e-3
    assert mixed.ttft_mape_alone > 0.05  # so requests did wait for each other


def test_the_recorded_engine_is_predicted_under_load():
    """Real requests to vLLM: what the bars of this command are measured against."""
    requests = []
    for number, row in enumerate(client_rows()):
        tag = row["tag"].split(":")[0]
        if tag in KINDS:
            kind, role = KINDS[tag]
            cached = row["usage"]["prompt_tokens_details"]["cached_tokens"]
            requests.append({
                "step": row["tag"] if tag in "AV" else f"{tag}{number}", "kind": kind, "role": role,
                "request": str(number), "status": "ok", "asked_tokens": row["plen"], "prefix_tokens": cached,
                "max_tokens": row["mx"], "sent": row["t0"] - 1.7959e9, "chunks_s": row["ts"],
                "prompt_tokens": row["usage"]["prompt_tokens"], "cached_tokens": cached,
                "completion_tokens": row["usage"]["completion_tokens"],
            })  # fmt: skip
    read = rows_of(requests, {})
    fitted = fit_endpoint(read.rows, budget=1024)
    batch_time = batch_time_of("hinge", {k: v for k, v in fitted.values.items() if k != "delta"})
    mixed = judge_mixed(read.mixed, fitted, batch_time, Engine(block_tokens=128))
    assert mixed.requests == 48
    assert mixed.ttft_mape < 0.15 and mixed.e2e_mape < 0.15
    assert mixed.ttft_mape < mixed.ttft_mape_alone / 3


def test_what_was_not_seen_makes_no_profile(tmp_path):
    found = calibrate_endpoint(probed(tmp_path / "m.jsonl", fault="coalesce", good=3))
    assert found.profile is None and "b_decode" in found.document["missing"]
    assert found.mixed.ttft_mape is None and found.mixed.why
    with pytest.raises(InputError, match="b_decode"):
        found.toml()
    assert any("no profile" in warning for warning in found.sections[0].warnings)


def test_hits_that_are_not_reported_leave_the_mixed_load_unjudged(tmp_path):
    found = calibrate_endpoint(probed(tmp_path / "m.jsonl", fault="no-cached", good=0))
    assert found.mixed.ttft_mape is None and "cached tokens" in found.mixed.why
    assert found.profile is not None


def test_hits_that_are_reported_only_where_there_are_some_are_enough(tmp_path):
    mixed = calibrate_endpoint(probed(tmp_path / "m.jsonl", fault="no-zeros")).mixed
    assert mixed.ttft_mape < 1e-3


def test_the_same_rows_make_the_same_bytes(measured):
    again = calibrate_endpoint(read_measured(measured.path))
    assert again.toml() == calibrate_endpoint(measured).toml()


def test_a_file_of_another_plan_is_not_continued(tmp_path):
    path = tmp_path / "m.jsonl"
    asked = Asked(requests=60)
    facts = {"max_context": 1024, "trials": 1, "dialect": Dialect().as_header()}
    opened = new_measured(path, asked.plan(1024), "tiny", facts)
    opened.open()
    opened.close()
    with pytest.raises(UsageError, match="another budget"):
        measure("http://127.0.0.1:9/v1", path, Asked(requests=200))
    with pytest.raises(UsageError, match="another budget"):
        measure("http://127.0.0.1:9/v1", path, Asked(requests=60, prompts="text"))


def test_stairs_of_captured_graphs_are_named():
    """Widths are padded to 1, 8 and 16: decodes of 9 cost as much as those of 16."""
    rows = [
        Row("cold", f"c{new}", 8e-3 + 3e-5 * new + 5e-9 * new * (new + 1), new=new)
        for new in (8, 64, 512, 2048)
    ]
    for n, padded in ((1, 1), (2, 8), (6, 8), (8, 8), (9, 16), (16, 16)):
        for each in (64, 1024):
            rows.append(
                Row("plateau", f"p{n}-{each}", 5e-3 + 6e-4 * padded + 3e-7 * n * each, 1, n, n * each)
            )
    fitted = fit_endpoint(rows)
    told = sections_of(fitted, Read(tuple(rows), {}, (), len(rows)), judge_mixed([], fitted, TRUE, Engine()))
    assert any("captured graphs" in warning for warning in told[0].warnings)
