"""Fits to steps whose truth is known, and to measured ones whose errors are known."""

import gzip
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.stepping import HIDDEN, noisy_steps, served_steps
from scipy.optimize import least_squares

from agentctl.errors import InputError, UsageError
from agentctl.estimators import batch_errors as judge
from agentctl.estimators.batch_fit import HUBER, Coefficients, fit, weights
from agentctl.estimators.batch_model import fit_batch_model
from agentctl.estimators.batch_terms import EQ9, HINGE, LEGACY, batch_time_of, design, values_of
from agentctl.estimators.batch_time import batch_time
from agentctl.estimators.step_logs import read_step_logs
from agentctl.estimators.steps import Chunk, checked, composed, steps_of

DATA = Path(__file__).parents[1] / "data" / "calibrate"

# The paper's deployed six numbers: intercept, per prefill token, decode, token of all sequences, p^2, s^2.
DEPLOYED = {
    "0.6B TP1": (2.5821e-3, 2.0336e-6, 1.6890e-5, 3.5429e-8, 1.8925e-10, 1.5755e-13),
    "8B TP1": (7.2959e-3, 2.0789e-5, 2.5632e-5, 4.6491e-8, 5.1196e-10, 2.6851e-13),
    "32B TP2": (1.43479e-2, 5.2942e-5, 6.3049e-5, 3.6864e-8, 8.7741e-10, 4.5196e-13),
}
A40 = {"h0": 14.33e-3, "b0": 5.27e-3, "b_decode": 0.056e-3, "b_context": 1.88e-7}  # fitted to its decode grid


def within(found, truth, share):
    return all(found[name] == pytest.approx(truth[name], rel=share) for name in truth)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_hidden_coefficients_are_found_within_five_percent(seed):
    model = fit_batch_model(checked(noisy_steps(seed=seed), "synthetic"))
    assert within(model.values, values_of(HIDDEN, HINGE), 0.05)
    assert model.held_out.mape == pytest.approx(
        0.03 * np.sqrt(2 / np.pi), rel=0.05
    )  # mean |normal|: the noise
    assert model.names == HINGE  # no term that the truth does not have


def test_the_steps_of_a_served_engine_give_its_coefficients_within_five_percent():
    """The reference simulator's own batches, with 3 % of noise and one step in a thousand 50 ms longer."""
    model = fit_batch_model(checked(served_steps(400, seed=1), "served"))
    assert model.names == HINGE and within(model.values, values_of(HIDDEN, HINGE), 0.05)
    assert 2 <= model.stalls <= 20 and model.stall_delay_s == pytest.approx(0.05, rel=0.1)


def test_stalls_are_kept_apart_and_their_delay_is_told():
    steps = noisy_steps(stalls=0.01)
    model = fit_batch_model(checked(steps, "synthetic"))
    assert 0.3 * 0.01 < model.stalls / len(steps) < 1.2 * 0.01  # among long prefills 50 ms are no stall
    assert model.stall_delay_s == pytest.approx(0.05, rel=0.1)
    assert within(model.values, values_of(HIDDEN, HINGE), 0.05)
    assert model.held_out_with_stalls.mape > model.held_out.mape


def test_steps_that_err_everywhere_are_no_stalls():
    steps = noisy_steps(400, stalls=0.2)
    assert fit_batch_model(steps).stalls == 0


def test_the_separate_slopes_of_measured_kernels_are_found():
    truth = HIDDEN._replace(b_context_mixed=8.0e-8, b_past=4.0e-8)
    model = fit_batch_model(noisy_steps(c=truth, noise=0.02, stalls=0))
    assert set(model.names) == {*HINGE, "b_context_mixed", "b_past"}
    assert within(model.values, values_of(truth, model.names), 0.06)


@pytest.mark.parametrize("name", DEPLOYED)
def test_the_deployed_six_numbers_come_back_from_their_own_steps(name):
    steps = noisy_steps(noise=0, stalls=0)
    steps = replace(steps, seconds=design(steps, LEGACY) @ np.array(DEPLOYED[name]))
    model = fit_batch_model(steps, "legacy")
    assert within(model.values, dict(zip(LEGACY, DEPLOYED[name], strict=True)), 1e-4)
    assert model.held_out.mape < 1e-6


def test_deployed_context_slopes_are_the_bandwidth_of_an_h100():
    """KV bytes per token and GPU over the slope; 3.35 TB/s is the data sheet's."""
    kv_bytes = {"0.6B TP1": 114_688, "8B TP1": 147_456, "32B TP2": 262_144 / 2}
    found = {name: round(kv_bytes[name] / DEPLOYED[name][3] / 1e12, 2) for name in DEPLOYED}
    assert found == {"0.6B TP1": 3.24, "8B TP1": 3.17, "32B TP2": 3.56}


def a40_grid():
    """Decodes only, batch 1 to 128, context 128 to 32k, 92 cells within the engine's 308,448 KV tokens."""
    sizes = [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128]
    contexts = [128, 512, 1024, 2048, 4096, 8192, 16384, 32768]
    cells = [(n, c) for n in sizes for c in contexts if n * c <= 308_448]
    rng = np.random.default_rng(0)
    columns = np.array([cells[number % len(cells)] for number in rng.permutation(3 * len(cells))], float)
    n, context = columns.T
    steps = steps_of(
        len(n), prefill_tokens=0 * n, n_prefill=0 * n, prefill_pairs=0 * n, prefill_context=0 * n, n_decode=n,
        decode_context=n * context, seconds=n,
    )  # fmt: skip
    truth = np.maximum(A40["h0"], A40["b0"] + A40["b_decode"] * n + A40["b_context"] * n * context)
    return replace(steps, seconds=truth * np.exp(0.03 * rng.standard_normal(len(n))))


def test_the_hinge_of_the_a40_decode_grid_is_found_where_a_line_errs_three_times_as_much():
    steps = a40_grid()
    hinge = fit_batch_model(steps, "hinge", terms=["h0"])
    line = fit_batch_model(steps, "hinge", terms=[])
    assert within(hinge.values, {"h0": A40["h0"], "b_context": A40["b_context"]}, 0.03)
    assert hinge.held_out.mape < 0.033 < 0.085 < line.held_out.mape  # 3.3 and 10.3 % on the measured grid
    assert "h0" in fit_batch_model(steps).names  # chosen without being asked for


@pytest.mark.parametrize(("kv_tokens", "measured_ms"), [(65_536, 17.8), (98_304, 23.8), (131_072, 30.3)])
def test_the_a40_hinge_meets_the_published_cells(kv_tokens, measured_ms):
    c = batch_time_of("hinge", {**A40, "b_prefill": 0.0})
    assert batch_time(c, 0, 0, 0, 0, 8, kv_tokens) * 1e3 == pytest.approx(measured_ms, rel=0.05)


def test_the_fit_is_where_scipys_minimum_is():
    """Another solver of the same objective: bounded least squares with Huber's loss."""
    steps = noisy_steps(600, stalls=0.01)
    found = fit(steps, HINGE)
    rows = design(steps, HINGE) / steps.seconds[:, None]
    scale, root = 1 / np.sqrt((rows**2).mean(axis=0)), np.sqrt(weights(steps))

    # the weight goes outside of the loss: scipy's loss takes one residual, so its threshold is scaled with it
    def loss(z):
        limit = (HUBER * root) ** 2
        big = z > limit
        rho = np.where(big, 2 * np.sqrt(z * limit) - limit, z)
        first = np.where(big, np.sqrt(limit / np.maximum(z, 1e-300)), 1.0)
        return np.array([rho, first, np.where(big, -0.5 * first / np.maximum(z, 1e-300), 0.0)])

    other = least_squares(
        lambda x: root * (rows @ (x * scale) - 1), np.full(len(HINGE), 0.5), bounds=(0, np.inf), loss=loss,
        xtol=1e-14, ftol=1e-14, gtol=1e-14,
    )  # fmt: skip
    assert found.values == pytest.approx(other.x * scale, rel=1e-3)


@given(st.integers(0, 10_000))
@settings(max_examples=20, deadline=None)
def test_coefficients_are_never_negative_and_scale_with_the_unit_of_time(seed):
    steps = noisy_steps(120, seed=seed)
    rng = np.random.default_rng(seed)
    steps = replace(steps, seconds=steps.seconds * np.exp(rng.normal(0, 0.5, len(steps))))
    found = fit(steps, (*HINGE, "b_past"))
    assert (found.values >= 0).all()
    doubled = fit(replace(steps, seconds=2 * steps.seconds), (*HINGE, "b_past"))
    assert doubled.values == pytest.approx(2 * found.values, rel=1e-6, abs=1e-15)


def test_standard_errors_cover_the_truth():
    """Of 40 fits, the truth lies within two standard errors about 95 % of the time."""
    truth = np.array(list(values_of(HIDDEN, HINGE).values()))
    inside = []
    for seed in range(40):
        steps = noisy_steps(600, seed=100 + seed, stalls=0)
        found = fit(steps, HINGE)
        inside.append(np.abs(found.values - truth) <= 2 * np.sqrt(np.diag(judge.covariance(steps, found))))
    assert 0.88 <= np.mean(inside) <= 0.99


def test_disturbances_that_neighbours_share_widen_the_standard_errors():
    steps = noisy_steps(2000, stalls=0)
    shared = np.repeat(np.random.default_rng(0).normal(0, 0.08, 100), 20)
    shaken = replace(steps, seconds=steps.seconds * np.exp(shared))
    calm, wide = (judge.covariance(one, fit(one, HINGE))[0, 0] for one in (steps, shaken))
    alone = replace(steps, seconds=steps.seconds * np.exp(np.random.default_rng(0).permutation(shared)))
    assert wide > judge.covariance(alone, fit(alone, HINGE))[0, 0] > calm


def test_no_step_is_predicted_by_a_model_that_saw_its_block():
    steps = noisy_steps(400, noise=0, stalls=0)
    block = judge.blocks_of_time(steps)
    broken = replace(steps, seconds=np.where(block == 3, 3 * steps.seconds, steps.seconds))
    predicted = judge.held_out(broken, HINGE)
    assert predicted[block == 3] == pytest.approx(steps.seconds[block == 3], rel=1e-6)


def test_what_the_steps_do_not_show_has_no_value():
    steps = noisy_steps()
    decodes = steps.at(steps.n_prefill == 0)
    model = fit_batch_model(decodes)
    assert model.values["b_prefill"] is None and model.values["b_attention"] is None
    assert model.missing == ["b_prefill", "b_attention"]
    assert model.coefficients["b_prefill"].status == "no step has prefill"
    filled = fit_batch_model(decodes, prior=values_of(HIDDEN, HINGE))
    assert filled.values["b_prefill"] == HIDDEN.b_prefill
    assert filled.coefficients["b_prefill"].status == "prior" and filled.missing == []


def test_chunks_of_one_length_cannot_tell_tokens_from_pairs():
    rng = np.random.default_rng(0)
    batches = [
        [Chunk(0, 512, True)] * (n % 3) + [Chunk(float(rng.integers(10, 9000)), 1, False)] * (n % 5 + 1)
        for n in range(300)
    ]
    steps = composed(batches, list(rng.uniform(0.01, 0.02, 300)), list(range(300)))
    model = fit_batch_model(steps)
    assert model.coefficients["b_attention"].value is None
    assert model.coefficients["b_attention"].status.startswith("not separable")
    assert "b_attention" in model.missing and model.values["b_prefill"] is not None


def test_a_prior_decides_where_the_data_are_silent_and_not_where_they_speak():
    steps = noisy_steps()
    wrong = {name: 3 * value for name, value in values_of(HIDDEN, HINGE).items()}
    assert within(fit_batch_model(steps, prior=wrong).values, values_of(HIDDEN, HINGE), 0.06)
    few = noisy_steps(40, noise=0.3, seed=5)
    error = {
        prior is not None: abs(fit(few, HINGE, prior).values[2] / HIDDEN.b_decode - 1)
        for prior in (None, values_of(HIDDEN, HINGE))
    }
    assert error[True] <= error[False]


def test_eq9_is_one_slope_for_prefill_and_decode():
    model = fit_batch_model(noisy_steps(), "eq9")
    assert model.names == EQ9
    c = batch_time_of("eq9", model.values)
    assert c.b_prefill == c.b_decode > 0 and c.b_context == c.b_context_mixed and c.b_past == c.h0 == 0


def test_unknown_models_and_terms_are_named():
    steps = noisy_steps(60)
    with pytest.raises(UsageError, match="unknown model"):
        fit_batch_model(steps, "linear")
    with pytest.raises(UsageError, match="no optional term 'b_future'"):
        fit_batch_model(steps, terms=["b_future"])
    with pytest.raises(UsageError, match="eq9 has no optional terms"):
        fit_batch_model(steps, "eq9", terms=["b_past"])
    totals = steps_of(60, seconds=steps.seconds, prefill_tokens=steps.prefill_tokens,
                      n_prefill=steps.n_prefill, n_decode=steps.n_decode)  # fmt: skip
    with pytest.raises(InputError, match="sum_tokens, prefill_sq, sum_sq of the six-term model"):
        fit_batch_model(totals, "legacy")
    with pytest.raises(InputError, match="b_past cannot be fitted"):
        fit_batch_model(totals, terms=["b_past"])


def test_a_coefficient_at_its_bound_is_told():
    steps = noisy_steps(stalls=0)
    model = fit_batch_model(steps, terms=["b_past"])
    known = model.coefficients["b_past"]
    assert known.status in ("zero", "weak") or known.value < 3 * known.standard_error


def test_steps_in_process_are_predicted_within_eight_percent():
    log = read_step_logs([DATA / "vllm_cpu_inproc.jsonl.gz"], max_wait=0.02)
    for model in ("eq9", "hinge"):
        found = fit_batch_model(log.steps, model)
        assert found.held_out.mape <= 0.08 and found.held_out_with_stalls.mape <= 0.08
    assert len(log.steps) == 359  # after the first 20, rows that waited at most 2 % of their time


def test_steps_behind_http_are_predicted_within_ten_and_a_half_percent():
    log = read_step_logs([DATA / "vllm_cpu_http.jsonl.gz"], max_wait=1.0)
    assert len(log.steps) == 1180
    for model in ("eq9", "hinge"):
        assert fit_batch_model(log.steps, model).held_out_with_stalls.mape <= 0.105
    found = fit_batch_model(log.steps)
    assert "b_past" in found.names and found.regions["prefill only"].mape < 0.045
    # the reference fit: a 11.5 ms, b 0.297 ms, c 2.44 us, d 0.219 us
    reference = {"b0": 11.5e-3, "b_token": 0.297e-3, "b_context": 2.44e-6, "b_attention": 0.219e-6}
    assert within(fit_batch_model(log.steps, "eq9").values, reference, 0.03)


def test_long_cached_contexts_are_no_stalls_of_a_model_without_a_term_for_them():
    """Chunks after 8,000 tokens take 1.3 times what the base of the hinge says: b_past, not stalls."""
    found = fit_batch_model(read_step_logs([DATA / "vllm_cpu_http.jsonl.gz"]).steps)
    past = found.coefficients["b_past"]
    assert found.box["prefill_context"][1] == 15_872 and found.stalls < 10
    assert past.standard_error < 0.06 * past.value and past.value == pytest.approx(2.7e-6, rel=0.1)


def test_the_h100s_batches_are_predicted_within_seven_percent():
    log = read_step_logs([DATA / "h100_qwen3_8b.csv.gz"])
    found = fit_batch_model(log.steps)
    assert len(log.steps) == 1500 and found.held_out_with_stalls.mape <= 0.07
    assert found.values["b_context"] == pytest.approx(45.9e-9, rel=0.05)


def test_decodes_on_the_rtx_pro_6000_need_a_context_slope_of_their_own(tmp_path):
    for name in ("attention", "dense", "per_sequence"):
        source = DATA / "rtx_pro_6000" / f"{name}.csv.gz"
        with gzip.open(source) as packed, (tmp_path / f"{name}.csv").open("wb") as file:
            shutil.copyfileobj(packed, file)
    log = read_step_logs([tmp_path], n_layers=32)
    split = fit_batch_model(log.steps, terms=["b_context_mixed"])
    assert "b_past" not in split.names and split.regions["decode only"].mape <= 0.05
    assert split.values["b_context"] == pytest.approx(85e-9, rel=0.05)
    one = fit_batch_model(log.steps, terms=[])
    assert one.regions["decode only"].mape > 0.10


def test_a_model_of_nothing_but_its_own_steps_errs_nowhere():
    steps = noisy_steps(400, noise=0, stalls=0)
    model = Coefficients(HINGE, np.array(list(values_of(HIDDEN, HINGE).values())))
    assert model.predict(steps) == pytest.approx(steps.seconds, rel=1e-12)
