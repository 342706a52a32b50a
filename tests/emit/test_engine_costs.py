"""What routers are told of an engine says what the profile says, and nothing that is not known."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.emit.engine_costs import peak_prefill_tokens_per_s, prefill_seconds, program_scheduling
from agentctl.errors import ConfigError
from agentctl.estimators.batch_time import BatchTime, batch_time
from agentctl.profile import Profile, load_profile, preset_names

H100_8B = BatchTime("hinge", 7.3e-3, 2.08e-5, 2.56e-5, 4.65e-8, 4.65e-8, 9.0e-10)


def test_the_peak_is_a_full_batch_over_its_time():
    profile = Profile(H100_8B, max_num_batched_tokens=8192)
    # 7.3 ms + 8192 * 20.8 us + 8192 * 8193 / 2 pairs * 0.9 ns = 207.9 ms
    assert peak_prefill_tokens_per_s(profile) == pytest.approx(8192 / 0.2078945, rel=1e-4)


def test_a_decode_step_of_the_gpu_is_told_exactly():
    """T = b0 + b_decode n + b_context C is the plane that the router has; a block of KV is never usable."""
    costs = program_scheduling(Profile(H100_8B, kv_blocks=20_001, block_tokens=16, max_num_seqs=128))
    plane = costs["decode_throughput_model"]
    assert plane["fixed_step_seconds"] == pytest.approx(7.3e-3)
    assert plane["batch_step_seconds_per_request"] == pytest.approx(2.56e-5)
    assert plane["context_step_seconds_per_token"] == pytest.approx(4.65e-8)
    assert costs["token_capacity_per_dp_rank"] == 320_000


def test_a_prefill_in_one_chunk_is_told_exactly():
    """b0 + b x + a x (x + 1) / 2 is a polynomial: with chunks longer than any prompt nothing is lost."""
    costs = program_scheduling(Profile(H100_8B, max_num_batched_tokens=1 << 20))["prefill_cost_model"]
    assert costs["intercept_seconds"] == pytest.approx(7.3e-3)
    assert costs["linear_seconds_per_1k_tokens"] == pytest.approx(1e3 * (2.08e-5 + 4.5e-10))
    assert costs["quadratic_seconds_per_1k_tokens_squared"] == pytest.approx(1e6 * 4.5e-10)


@given(
    st.floats(1e-3, 2e-2), st.floats(1e-6, 1e-4), st.floats(0, 1e-4), st.floats(0, 1e-7), st.floats(0, 2e-9),
    st.floats(0, 2e-2),
)  # fmt: skip
def test_no_cost_is_negative_and_a_cost_grows_with_the_work(
    b0, b_prefill, b_decode, b_context, attention, h0
):
    c = BatchTime("hinge", b0, b_prefill, b_decode, b_context, b_context, attention, 0.0, h0)
    profile = Profile(c)
    costs = program_scheduling(profile)
    assert all(value >= 0 for table in costs.values() for value in table.values())
    assert prefill_seconds(profile, 20_000) > prefill_seconds(profile, 10_000)
    assert "token_capacity_per_dp_rank" not in costs, "how much KV there is, is unknown"


@pytest.mark.parametrize("name", preset_names())
def test_the_router_predicts_what_the_presets_do(name):
    """The polynomial and the plane within a tenth where engines work: chunks are whole numbers, and the host
    decides small steps."""
    profile = load_profile(name)
    costs = program_scheduling(profile)
    intercept, linear, quadratic = costs["prefill_cost_model"].values()
    fixed, of_request, of_token = costs["decode_throughput_model"].values()
    for tokens in (4_000, 20_000, 100_000):
        x = tokens / 1000
        told = intercept + linear * x + quadratic * x**2
        assert told == pytest.approx(prefill_seconds(profile, tokens), rel=0.1)
    n, context = 16, 16 * 4_000
    measured = batch_time(profile.batch_time, 0, 0, 0, 0, n, context)
    assert fixed + of_request * n + of_token * context == pytest.approx(measured, rel=0.1)


def test_a_profile_that_only_predicts_configures_nothing():
    profile = Profile(H100_8B, provenance={"predictive_only": True})
    for tell in (peak_prefill_tokens_per_s, program_scheduling):
        with pytest.raises(ConfigError, match="predictive_only") as error:
            tell(profile)
        assert "calibrate steps" in error.value.hint
