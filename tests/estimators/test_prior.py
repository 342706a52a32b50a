"""Physics against what was published of real engines and kernels."""

from __future__ import annotations

import csv
import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from agentctl.calibrate_prior import ERROR
from agentctl.errors import UsageError
from agentctl.estimators.gpus import gpu_named, gpus
from agentctl.estimators.model_config import read_config
from agentctl.estimators.model_shape import shape_of
from agentctl.estimators.prior import BAND, COMPARED, HOST_BAND, SMALL_BAND, Serving, prior_of
from agentctl.estimators.step_logs import read_step_logs
from agentctl.estimators.steps import DECODE_ONLY

DATA = Path(__file__).parents[1] / "data"
SECONDS = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}
WIDER = 1.1  # prior.py moves the ends out by a tenth: its shares were chosen on these same rows


def shape(model: str):
    return shape_of(read_config(DATA / "prior" / f"{model}.json"), model)


def prior(model: str, gpu: str, **serving):
    return prior_of(shape(model), gpu_named(gpu), Serving(**serving))


def ratios(small: bool) -> dict[str, list[float]]:
    """{coefficient: measured over predicted} of the published engines."""
    found: dict[str, list[float]] = {}
    with (DATA / "prior" / "references.csv").open() as file:
        for row in csv.DictReader(file):
            if (row["model"] == "qwen3-0.6b") != small:
                continue
            predicted = prior(row["model"], row["gpu"], tensor_parallel=int(row["tp"])).batch_time
            row["b_context_mixed_ns"] = row["b_context_mixed_ns"] or row["b_context_ns"]  # fitted as one
            for column in list(row)[4:]:
                name, unit = column.rsplit("_", 1)
                if row[column]:
                    value = float(row[column]) * SECONDS[unit]
                    found.setdefault(name, []).append(value / getattr(predicted, name))
    return found


@pytest.mark.parametrize("small", [False, True])
def test_the_intervals_are_as_wide_as_the_published_engines_make_them(small):
    """For small models an end that no reference moves stays where the larger ones put it."""
    band = SMALL_BAND if small else BAND
    for name, values in ratios(small).items():
        low, high = min(values) / WIDER, max(values) * WIDER
        if small:
            low, high = min(low, BAND[name][0]), max(high, BAND[name][1])
        assert band[name] == pytest.approx((low, high), rel=0.012), name


def test_the_middle_of_the_references_is_the_prediction():
    for name, values in ratios(small=False).items():
        if name not in ("b_context_mixed", "b_decode"):
            assert float(np.exp(np.mean(np.log(values)))) == pytest.approx(1, abs=0.05), name


def test_every_gpu_of_the_references_counts_as_compared():
    with (DATA / "prior" / "references.csv").open() as file:
        assert {row["gpu"] for row in csv.DictReader(file)} == set(COMPARED)


def batch_errors(steps, c) -> np.ndarray:
    """Predicted over measured, less one, of each step."""
    context = np.where(steps.n_prefill > 0, c.b_context_mixed, c.b_context) * steps.decode_context
    gpu = c.b0 + c.b_prefill * steps.prefill_tokens + c.b_decode * steps.n_decode + context
    return np.maximum(c.h0, gpu + c.b_attention * steps.prefill_pairs) / steps.seconds - 1


def test_batches_of_an_h100_are_predicted_within_the_error_that_is_told():
    steps = read_step_logs([DATA / "calibrate" / "h100_qwen3_8b.csv.gz"]).steps
    errors = np.abs(batch_errors(steps, prior("qwen3-8b", "h100-sxm").batch_time))
    assert errors.mean() == pytest.approx(ERROR[0], abs=0.003)
    assert errors[steps.kind == DECODE_ONLY].mean() < 0.06


def test_measured_kernels_of_an_rtx_pro_6000_are_predicted_within_the_error_that_is_told(tmp_path):
    for packed in (DATA / "calibrate" / "rtx_pro_6000").glob("*.gz"):
        (tmp_path / packed.stem).write_bytes(gzip.decompress(packed.read_bytes()))
    steps = read_step_logs([tmp_path], n_layers=32).steps
    errors = np.abs(batch_errors(steps, prior("llama-3.1-8b", "rtx-pro-6000-server").batch_time))
    assert errors.mean() == pytest.approx(ERROR[1], abs=0.003)


def test_the_pool_is_what_memory_leaves_by_hand():
    """81,559 MiB x 0.9 less 16.06 GB of weights and 2 GiB, in blocks of 16 x 131,072 bytes."""
    found = prior("llama-3.1-8b", "h100-sxm")
    left = 81_559 * 2**20 * 0.9 - 8_030_261_248 * 2 - 2 * 2**30
    assert found.kv_blocks == int(left / (16 * 131_072))
    low, high = found.kv_blocks_interval
    assert low < found.kv_blocks < high


def test_a_pool_that_an_engine_printed_lies_in_the_interval():
    """Qwen3-235B-A22B-FP8 on four H100: 178,880 tokens (vllm-project/vllm issue 21348)."""
    large = replace(
        shape("qwen3-30b-a3b"), layers=94, hidden=4096, heads=64, mlp_width=12288,
        experts=replace(shape("qwen3-30b-a3b").experts, width=1536, layers=94),
    )  # fmt: skip
    assert large.parameters / 1e9 == pytest.approx(235, abs=0.2)
    assert large.active_parameters / 1e9 == pytest.approx(22, abs=0.3)
    found = prior_of(large, gpu_named("h100-sxm"), Serving(tensor_parallel=4, weights="fp8"))
    low, high = found.kv_blocks_interval
    assert low * 16 <= 178_880 <= high * 16
    assert found.kv_bytes_per_token_per_gpu == 94 * 2 * 128 * 2  # one KV head on each


def test_more_gpus_are_faster_and_hold_more():
    one, two = (prior("qwen3-32b", "h100-sxm", tensor_parallel=n) for n in (1, 2))
    assert two.kv_blocks > 2 * one.kv_blocks
    for name in ("b0", "b_prefill", "b_context", "b_attention"):
        whole, half = getattr(one.batch_time, name), getattr(two.batch_time, name)
        assert whole / 2 <= half < whole, name


def test_half_the_bits_halve_what_is_read_and_nothing_else():
    full, half = (prior("llama-3.1-8b", "a100-80-sxm", kv=kv) for kv in ("bf16", "fp8"))
    assert half.batch_time.b_context == full.batch_time.b_context / 2
    assert half.kv_bytes_per_token == full.kv_bytes_per_token / 2
    assert half.batch_time._replace(b_context=0, b_context_mixed=0) == full.batch_time._replace(
        b_context=0, b_context_mixed=0
    )


def test_fp8_weights_are_computed_faster_only_where_the_gpu_can():
    hopper, ampere = (
        [prior("llama-3.1-8b", gpu, weights=w) for w in ("bf16", "fp8")]
        for gpu in ("h100-sxm", "a100-80-sxm")
    )
    assert hopper[1].batch_time.b_prefill == pytest.approx(hopper[0].batch_time.b_prefill / 2, rel=1e-3)
    assert ampere[1].batch_time.b_prefill == ampere[0].batch_time.b_prefill
    assert "a100-80-sxm has no matrix units for fp8: computed in bf16" in ampere[1].warnings


def test_experts_make_the_fixed_time_as_uncertain_as_the_number_of_tokens():
    found = prior("qwen3-30b-a3b", "h100-sxm")
    low, high = found.interval["b0"]
    assert high / low > 5
    assert any("experts" in warning for warning in found.warnings)


def test_engines_like_the_references_carry_no_warning():
    assert prior("qwen3-8b", "h100-sxm").warnings == ()


def test_a_model_that_does_not_fit_says_how_much_is_missing():
    with pytest.raises(
        UsageError, match=r"65.5 GB of each GPU and leave room for 0 KV blocks of 16 tokens in 38.7 GB"
    ) as caught:
        prior("qwen3-32b", "a100-40-sxm")
    assert "--tp" in str(caught.value.hint)


def test_the_host_may_hide_or_rule():
    assert prior("qwen3-0.6b", "a40").interval["h0"] == pytest.approx((0, 14.33e-3), rel=0.01)
    assert HOST_BAND[0] == 0


@pytest.mark.parametrize("name", ["h100-sxm", "H100_SXM", "NVIDIA H100 SXM"])
def test_names_of_gpus_are_read_as_people_write_them(name):
    assert gpu_named(name).name == "h100-sxm"


@pytest.mark.parametrize(
    ("name", "hint"), [("h100-sxn", "did you mean `h100-sxm`?"), ("h100", "there are h100-pcie, h100-sxm")]
)
def test_an_unknown_gpu_is_an_error_with_a_suggestion(name, hint):
    with pytest.raises(UsageError, match="--gpu") as caught:
        gpu_named(name)
    assert caught.value.hint == hint


@pytest.mark.parametrize("gpu", gpus().values(), ids=lambda gpu: gpu.name)
def test_data_sheets_hold_dense_peaks_and_plausible_memory(gpu):
    """Half the bits, twice the peak; what the driver reports is near the sheet's gigabytes."""
    for narrow, wide in ((gpu.fp8_tflops, gpu.bf16_tflops), (gpu.fp4_tflops, gpu.fp8_tflops)):
        assert narrow is None or narrow == pytest.approx(2 * wide, rel=0.02)
    assert gpu.memory / (gpu.memory_gb * 2**30) == pytest.approx(0.97, abs=0.04)
    assert 40 < gpu.bf16_tflops * 1e3 / gpu.bandwidth_gbps < 420  # FLOPs per byte


def documented() -> list[list[str]]:
    """The rows of the page's table, without its head."""
    page = (DATA.parents[1] / "docs" / "priors.md").read_text()
    table = page[page.index("| of | model") :].split("\n\n")[0]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_the_page_shows_the_ratios_of_every_reference():
    names = ("b0", "b_prefill", "b_decode", "b_context", "b_attention")
    shown: dict[str, list[float]] = {}
    for row in documented():
        for name, cell in zip(names, row[4:], strict=True):
            if row[1] != "qwen3-0.6b" and cell != "–":
                shown.setdefault(name, []).append(float(cell))
    found = ratios(small=False)
    assert {name: len(values) for name, values in shown.items()} == {name: len(found[name]) for name in names}
    for name in names:
        assert shown[name] == pytest.approx(found[name], abs=0.0051), name


def test_three_of_44_published_values_fall_outside_of_what_the_others_give():
    outside = []
    found = ratios(small=False)
    del found["b_context_mixed"]
    for name, values in found.items():
        for place, value in enumerate(values):
            others = values[:place] + values[place + 1 :]
            if not min(others) / WIDER <= value <= max(others) * WIDER:
                outside.append(name)
    assert sum(map(len, found.values())) == 44
    assert outside == ["b_prefill", "b_decode", "b_attention"]
