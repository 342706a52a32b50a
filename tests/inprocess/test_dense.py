"""Dense layers without an engine: what they cost comes back, and what was not measured is the prior's."""

import builtins
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from oracles import fake_torch

from agentctl.calibrate_engine import calibrate_dense
from agentctl.calibrate_prior import calibrate_prior
from agentctl.errors import ConfigError, UsageError
from agentctl.estimators.model_config import read_config
from agentctl.estimators.model_shape import shape_of
from agentctl.inprocess import clocks, dense, torch_layers
from agentctl.inprocess.run import Asked, measure_torch
from agentctl.inprocess.torch_layers import TorchLayers
from agentctl.profile import parse_profile

MODELS = Path(__file__).parents[1] / "data" / "prior"
QWEN = MODELS / "qwen3-0.6b.json"


@pytest.fixture
def torch(monkeypatch):
    def install(**how):
        monkeypatch.setitem(sys.modules, "torch", fake_torch.module(**how))
        monkeypatch.setattr(clocks.CpuClock, "mark", staticmethod(lambda: fake_torch.Tensor.spent))
        calendar = SimpleNamespace(
            time=lambda: 1.8e9 + fake_torch.Tensor.spent, perf_counter=lambda: fake_torch.Tensor.spent
        )
        monkeypatch.setattr(torch_layers, "time", calendar)

    return install


@pytest.fixture
def prior():
    return parse_profile(calibrate_prior(QWEN, "h100-sxm").profile, "prior", "of h100-sxm")


def shape(path=QWEN):
    return shape_of(read_config(path), str(path))


def test_a_batch_costs_its_products_over_all_layers(torch):
    torch()
    model = shape()
    layers = TorchLayers(model)
    query, key = model.heads * model.head_dim, 2 * model.kv_heads * model.head_dim
    each = model.hidden * (query + key) + query * model.hidden + 3 * model.hidden * model.mlp_width
    flops = 2 * (100 * model.layers * each + 7 * model.hidden * model.vocabulary)
    expected = flops * fake_torch.FLOP_S + (4 * model.layers + 1) * fake_torch.LAUNCH_S
    assert layers.step(100, 7).seconds == pytest.approx(expected, rel=1e-9)


def test_dense_terms_come_back_and_those_of_attention_are_the_priors(torch, tmp_path, prior):
    torch()
    file = measure_torch(Asked(QWEN, seconds=600), tmp_path / "steps.jsonl", "bfloat16")
    found = calibrate_dense(file, prior)
    model = shape()
    query, key = model.heads * model.head_dim, 2 * model.kv_heads * model.head_dim
    each = model.hidden * (query + key) + query * model.hidden + 3 * model.hidden * model.mlp_width
    token = 2 * model.layers * each * fake_torch.FLOP_S
    head = 2 * model.hidden * model.vocabulary * fake_torch.FLOP_S
    assert found.fitted.values["b_prefill"] == pytest.approx(token, rel=0.01)
    assert found.fitted.values["b_decode"] == pytest.approx(token + head, rel=0.01)
    batch_time = parse_profile(found.profile, "profile", "dense").batch_time
    assert batch_time.b_context == prior.batch_time.b_context
    assert batch_time.b_attention == prior.batch_time.b_attention


def test_the_profile_names_what_was_not_measured(torch, tmp_path, prior):
    torch()
    file = measure_torch(Asked(QWEN, seconds=600), tmp_path / "steps.jsonl", "bfloat16")
    found = calibrate_dense(file, prior)
    told = found.profile["provenance"]
    assert set(told["from_prior"]) == {
        "b_context", "b_attention", "kv_blocks", "block_tokens", "kv_bytes_per_token"
    }  # fmt: skip
    assert told["mode"]["attention"] == "none: from a prior" and told["engine"] == "torch 2.13.0"
    section = next(one for one in found.sections if one.name == "engine")
    assert any("were not measured" in warning for warning in section.warnings)


def test_a_complete_file_is_not_measured_again(torch, tmp_path):
    torch()
    notes = []
    file = measure_torch(Asked(QWEN, seconds=600), tmp_path / "steps.jsonl", "bfloat16")
    assert len(file.done) == len(dense.sizes(0))
    measure_torch(Asked(QWEN, seconds=600), tmp_path / "steps.jsonl", "bfloat16", notes.append)
    assert "complete" in notes[-1]
    rows = [json.loads(line) for line in file.path.read_text().splitlines()]
    assert all("batch" not in row for row in rows)


def test_sizes_that_would_eat_the_time_are_left_out(torch, tmp_path, monkeypatch):
    torch()
    monkeypatch.setattr(fake_torch, "FLOP_S", 1e-8)  # a token takes 9 s
    monkeypatch.setattr(dense.measure_dense, "__defaults__", (lambda: 0.0,))
    file = measure_torch(Asked(QWEN, seconds=36_000), tmp_path / "steps.jsonl", "bfloat16")
    prefills = {int(name.split("-")[1]) for _, name in file.done if name.startswith("prefill")}
    assert 256 in prefills and 8192 not in prefills


@pytest.mark.parametrize("name", ["mixtral-8x7b.json", "deepseek-v3.json"])
def test_experts_and_latent_attention_are_refused(torch, name):
    torch()
    with pytest.raises(ConfigError, match="not measured apart"):
        TorchLayers(shape(MODELS / name))


def test_without_torch_the_error_names_the_cure(monkeypatch):
    real = builtins.__import__

    def none(name, *rest, **more):
        if name == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", none)
    with pytest.raises(UsageError, match="not installed") as caught:
        TorchLayers(shape())
    assert "agentctl[gpu]" in caught.value.hint


def test_on_a_gpu_events_are_the_clock(torch):
    torch(is_cuda=True)
    layers = TorchLayers(shape())
    assert layers.clock.name == "events" and layers.device_name == "NVIDIA Fake"
