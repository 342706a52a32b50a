"""What a pool draws, on whose authority, and what is refused."""

import math
from dataclasses import replace

import pytest

from agentctl.cluster import Cluster, Pool, check_simulated
from agentctl.errors import ConfigError
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.power_model import PowerModel, presets
from agentctl.pool_power import power_of
from agentctl.profile import Profile

# Qwen3-8B: 8.2 billion parameters in 16 bits
BATCH = BatchTime("hinge", 6.55e-3, 17.3e-6, 17.3e-6, 45.9e-9, 45.9e-9, 0.94e-9)
MEASURED = {"idle_w": 110.0, "prefill_w": 650.0, "decode_w": 290.0, "mixed_w": 520.0}


def pool(gpu, power=None, **keys):
    profile = Profile(BATCH, gpu=gpu, power=power or {}, tensor_parallel=keys.pop("tp", 1))
    return Pool("main", profile, 1000, 16, **keys)


def test_every_published_gpu_says_on_what_authority():
    assert {name: one.source for name, one in presets().items()} == {
        "a40": "fitted",
        "h200-sxm": "literature",
    }
    assert all(one.statement for one in presets().values())


@pytest.mark.parametrize("gpu", ["h100-sxm", "a100-80-sxm", "b200-sxm", "mi300x", "something-else", None])
def test_the_power_of_a_gpu_of_which_nothing_is_published_is_unknown(gpu):
    why = power_of(pool(gpu))
    assert isinstance(why, str) and "nothing is published" in why


def test_measured_watts_stand_above_published_ones_and_make_any_gpu_known():
    known = power_of(pool("h100-sxm", MEASURED))
    assert isinstance(known, PowerModel)
    assert (known.source, known.idle_w, known.phases.decode_w) == ("measured", 110, 180)
    both = power_of(pool("h200-sxm", MEASURED))
    assert (both.source, both.clock_source) == ("measured", "literature")


def test_watts_that_were_not_measured_there_are_called_what_they_are():
    assert power_of(pool("h100-sxm", {**MEASURED, "source": "literature"})).source == "literature"
    with pytest.raises(ConfigError, match="source"):
        power_of(pool("h100-sxm", {**MEASURED, "source": "a friend"}))


def test_a_phase_that_was_not_measured_is_unknown_and_busy_stands_for_all():
    without = {key: value for key, value in MEASURED.items() if key != "mixed_w"}
    assert math.isnan(power_of(pool("h100-sxm", without)).phases.mixed_w)
    busy = power_of(pool("h100-sxm", {"idle_w": 100.0, "busy_w": 400.0})).phases
    assert (busy.prefill_w, busy.decode_w, busy.mixed_w) == (300, 300, 300)
    assert "no idle_w" in power_of(pool("h100-sxm", {"decode_w": 300.0}))


def test_a_published_gpu_reads_its_weights_at_most_in_the_time_of_an_empty_batch():
    """16 GB at 85 % of 4.8 TB/s are 4 ms; the rest of b0 is launches."""
    assert power_of(pool("h200-sxm")).weights_s == pytest.approx(3.5e-3, rel=0.2)
    slow = replace(pool("a40"), profile=Profile(BATCH._replace(b_prefill=4e-5), gpu="a40"))
    assert power_of(slow).weights_s == BATCH.b0


def test_all_gpus_of_an_engine_draw():
    one, two = power_of(pool("h200-sxm")), power_of(pool("h200-sxm", tp=2, power_cap_w=400.0))
    assert (two.idle_w, two.pairs_w, two.cap_w) == (2 * one.idle_w, 2 * one.pairs_w, 800)


def test_nothing_on_a_published_gpu_draws_more_than_its_board_may():
    for gpu, tdp in (("a40", 300), ("h200-sxm", 700)):
        model = power_of(pool(gpu))
        assert model.idle_w + model.most_w <= tdp


def test_a_cap_at_the_board_power_and_the_highest_clock_change_nothing():
    for gpu, keys in (
        ("h200-sxm", {"power_cap_w": 700.0, "sm_clock_mhz": 1980.0}),
        ("h100-sxm", {"power_cap_w": 700.0}),
    ):
        assert power_of(pool(gpu, **keys)) == power_of(pool(gpu))
    assert power_of(pool("h200-sxm")).is_free
    assert not power_of(pool("h200-sxm", power_cap_w=600.0)).is_free
    assert power_of(pool("h200-sxm", sm_clock_mhz=990.0)).lock == 0.5


def test_a_cap_above_all_that_was_measured_is_inert_on_any_gpu():
    assert power_of(pool("h100-sxm", MEASURED, power_cap_w=660.0)).is_free


@pytest.mark.parametrize(
    ("gpu", "power", "keys", "message"),
    [
        ("h100-sxm", None, {"power_cap_w": 400.0}, "what a cap of 400 W does to a h100-sxm is not known"),
        ("h100-sxm", MEASURED, {"power_cap_w": 400.0}, "what a cap of 400 W"),
        ("h100-sxm", None, {"sm_clock_mhz": 1200.0}, "what a lock at 1200 MHz does"),
        (None, None, {"sm_clock_mhz": 1200.0}, "GPU without a name"),
        ("h200-sxm", None, {"sm_clock_mhz": 100.0}, "expected 345 to 1980 MHz"),
        ("h200-sxm", {"watts": 3.0}, {}, "unknown key"),
        ("h200-sxm", None, {"power_cap_w": 120.0}, "more than 120 W, which the GPU draws with nothing to do"),
        ("h200-sxm", None, {"power_cap_w": 50.0, "tp": 2}, "more than 120 W"),
    ],
)  # fmt: skip
def test_what_a_cap_does_where_nobody_knows_is_refused_never_ignored(gpu, power, keys, message):
    with pytest.raises(ConfigError, match=message):
        check_simulated(Cluster((pool(gpu, power, **keys),)))


def test_the_published_saving_of_a_locked_clock_in_decode_is_met():
    """A decode that draws 300 W at 1,980 MHz and memory sets the pace: up to 32 % less when locked."""
    model = power_of(pool("h200-sxm", sm_clock_mhz=990.0))
    above = 300 - model.idle_w
    clocked = model.memory_clock_share * above
    saved = clocked * (1 - model.lock**model.clock_exponent) / 300
    assert saved == pytest.approx(0.32, abs=0.01)


def test_a_lock_and_a_cap_are_kept_apart():
    model = power_of(pool("a40", power_cap_w=200.0))
    assert (model.cap_w, model.lock) == (200, 1.0)
    assert replace(model, cap_w=math.inf).is_free
