"""The paper's six numbers as models that are simulated: the presets are their mapping, with its error."""

from __future__ import annotations

import numpy as np
import pytest

from agentctl.estimators.batch_time import batch_time
from agentctl.estimators.six_terms import BUDGET, MOST_SEQS, SixTerms, grid, hinge_of
from agentctl.profile import load_profile

PRESETS = ("h100-qwen3-0.6b-sfs", "h100-qwen3-8b-sfs", "h100-qwen3-32b-tp2-sfs")
TERMS = ("b0", "b_prefill", "b_decode", "b_context", "b_attention")
KV_BYTES = (28 * 4096, 36 * 4096, 64 * 4096)  # layers x 8 heads x 128 x K and V x 2 bytes


def six_of(profile):
    return SixTerms(**profile.provenance["six_terms"])


def published(six, chunk, decodes, context):
    """Seconds of a chunk from the beginning of a prompt beside decodes on one context, by the six numbers."""
    after = context + 1
    tokens, squares = chunk + decodes * after, chunk**2 + decodes * after**2
    return (
        six.intercept + six.prefill * chunk + six.decode * decodes + six.sum_tokens * tokens
        + six.prefill_sq * chunk**2 + six.sum_sq * squares
    )  # fmt: skip


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_holds_the_mapping_of_its_six_numbers_and_its_error(name):
    profile = load_profile(name)
    found = hinge_of(six_of(profile), profile.kv_blocks * profile.block_tokens)
    for term in TERMS:
        assert getattr(profile.batch_time, term) == pytest.approx(getattr(found.batch_time, term), rel=1e-5)
    assert profile.fit["mapping_mape"] == pytest.approx(found.mape, abs=1e-4) and found.mape < 0.01
    assert profile.fit["mapping_worst"] == pytest.approx(found.worst_ape, abs=1e-4)
    assert profile.fit["rows"] == found.rows
    assert f"{100 * found.mape:.1f} % off on average" in profile.provenance["statement"]


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize(("chunk", "decodes", "context"), [(10_000, 0, 0), (0, 40, 3_000), (1_300, 25, 900)])
def test_a_preset_is_no_further_from_the_six_numbers_off_the_grid_than_it_says(name, chunk, decodes, context):
    profile = load_profile(name)
    pairs = chunk * (chunk + 1) / 2
    simulated = batch_time(profile.batch_time, chunk, pairs, 0, int(chunk > 0), decodes, decodes * context)
    told = published(six_of(profile), chunk, decodes, context)
    assert simulated == pytest.approx(told, rel=profile.fit["mapping_worst"])


def test_a_model_without_squares_of_sequences_is_found_again():
    six = SixTerms(0.005, 1e-5, 2e-5, 4e-8, 3e-10, 0.0)
    found = hinge_of(six, 100_000)
    c = found.batch_time
    assert c.b_attention == pytest.approx(2 * six.prefill_sq, rel=1e-4)  # p^2 is twice the pairs, but for p
    assert c.b_prefill == pytest.approx(six.prefill + six.sum_tokens - six.prefill_sq, rel=1e-4)
    assert c.b_decode == pytest.approx(six.decode + six.sum_tokens, rel=1e-4)
    assert c.b_context == pytest.approx(six.sum_tokens, rel=1e-4)
    assert found.worst_ape < 1e-6


def test_the_grid_keeps_the_engine_limits_and_has_all_kinds_of_batches():
    steps = grid(300_000)
    assert steps.tokens.max() <= BUDGET and (steps.n_prefill + steps.n_decode).max() <= MOST_SEQS
    assert steps.sequence_tokens.max() <= 300_000
    assert set(np.unique(steps.kind)) == {0, 1, 2}
    rows = np.column_stack([steps.prefill_tokens, steps.n_prefill, steps.n_decode, steps.decode_context])
    assert np.unique(rows, axis=0).shape == rows.shape


def test_presets_have_the_paper_s_engine_limits_and_the_models_kv():
    for name, kv_bytes in zip(PRESETS, KV_BYTES, strict=True):
        profile = load_profile(name)
        limits = (profile.max_num_seqs, profile.max_num_batched_tokens, profile.max_model_len)
        assert limits == (512, 32_768, 131_072)
        assert profile.kv_bytes_per_token == kv_bytes
        gib = profile.kv_blocks * profile.block_tokens * kv_bytes / 2**30
        assert gib < 0.9 * 79.6 * profile.tensor_parallel - 2 * profile.tensor_parallel
