"""What must hold of the judge's power model, whatever the numbers, and of the published ones."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.power import Parts, lookup, smooth, step

POWERS = st.builds(
    smooth, st.floats(20, 150), st.floats(50, 600), st.floats(50, 400),
    a=st.sampled_from([1.5, 2.0, 2.6, 3.0]), s=st.sampled_from([0.0, 0.5, 1.0]), f_min=st.floats(0.05, 0.5),
)  # fmt: skip


@st.composite
def parts(draw):
    compute, memory, host = (draw(st.floats(1e-4, 1.0)) for _ in range(3))
    seconds = max(compute + memory * draw(st.floats(0, 1)), memory, host)
    return Parts(T=seconds, multiply=compute, reads=memory, t_h=host)


CAPS = st.floats(10, 900)


@given(POWERS, parts(), st.floats(0, 100))
def test_a_cap_at_or_above_what_is_drawn_changes_nothing(power, one, more):
    free = step(power, one)
    assert step(replace(power, cap=free.watts + more), one) == free
    assert (free.seconds, free.f) == (one.T, 1.0)


@given(POWERS, parts(), CAPS, st.floats(0.3, 1.0))
def test_a_step_keeps_its_time_where_the_clock_suffices_for_its_compute_and_nowhere_else(
    power, one, cap, lock
):
    found = step(replace(power, cap=cap, lock=max(lock, power.f_min)), one)
    if found.f == 1.0:
        assert found.seconds == one.T
    elif not math.isclose(found.f, needed := one.t_c / max(one.t_h, one.t_m), rel_tol=1e-9):
        assert (found.seconds == one.T) == (found.f >= needed)
        assert found.seconds >= one.T


@given(POWERS, parts(), st.lists(CAPS, min_size=2, max_size=2).map(sorted))
def test_a_higher_cap_is_no_slower_and_draws_no_less(power, one, caps):
    low, high = (step(replace(power, cap=cap), one) for cap in caps)
    assert low.seconds >= high.seconds
    assert low.watts <= high.watts * (1 + 1e-12)
    assert low.f <= high.f


@given(POWERS, parts(), CAPS)
def test_a_cap_holds_unless_it_is_below_what_the_lowest_clock_draws(power, one, cap):
    found = step(replace(power, cap=cap), one)
    lowest = step(replace(power, lock=power.f_min), one)
    assert found.watts <= max(cap, lowest.watts) * (1 + 1e-9)
    assert found.f >= power.f_min


@given(POWERS, parts(), st.floats(0, 1))
def test_a_cap_below_idle_and_memory_runs_at_the_lowest_clock(power, one, share):
    power = replace(power, s=0.0)
    without_compute = power.idle + power.reads(one) * one.t_m / one.T
    assert step(replace(power, cap=share * without_compute), one).f == power.f_min


@given(POWERS, parts(), st.lists(st.floats(0.1, 1.0), min_size=2, max_size=2).map(sorted))
def test_a_lower_clock_never_draws_more_watts(power, one, locks):
    low, high = (step(replace(power, lock=lock), one) for lock in locks)
    assert low.watts <= high.watts * (1 + 1e-12)
    assert low.seconds >= high.seconds


A40 = smooth(76, 224, 220, s=0.8, f_min=210 / 1740)
ON_A40 = {"weights": 5.27e-3, "t_h": 14.33e-3}  # Qwen3-0.6B, ConServe's set-up


def prefill(tokens):
    """In one batch, 25,000 tokens a second."""
    return Parts(T=5.27e-3 + 4e-5 * tokens, multiply=4e-5 * tokens, tokens=tokens, kind="prefill", **ON_A40)


def test_an_a40_at_200_watts_prefills_16k_tokens_a_quarter_slower():
    """Published: +26 %, read off a figure."""
    slower = step(replace(A40, cap=200), prefill(16_000)).seconds / prefill(16_000).T
    assert slower - 1 == pytest.approx(0.26, abs=0.10)


@pytest.mark.parametrize(("a", "slower"), [(1.5, 0.48), (2.0, 0.34), (2.6, 0.26), (3.0, 0.22)])
def test_the_exponent_of_the_clock_is_what_the_slow_down_tells(a, slower):
    """(124/224)^(-1/a): nothing but compute."""
    power = smooth(76, 224, 0, a=a, cap=200)
    assert step(power, Parts(T=1.0, multiply=1.0)).seconds - 1 == pytest.approx(slower, abs=0.005)


def test_an_a40_draws_300_watts_in_prefill_and_a_decoder_obeys_a_cap_without_slowing_down():
    assert step(A40, prefill(16_000)).watts == pytest.approx(300, abs=3)
    reads = 1.88e-7 * 260_000  # 17 sessions of 15k tokens
    decode = Parts(T=5.27e-3 + 17 * 5.6e-5 + reads, multiply=17 * 4e-5, reads=reads, tokens=17, **ON_A40)
    assert 270 < step(A40, decode).watts < 300
    capped = step(replace(A40, cap=200), decode)
    assert (capped.watts, capped.seconds) == (pytest.approx(200), decode.T)


def test_the_published_tokens_per_joule_follow_from_decoders_busy_three_quarters_of_the_time():
    """61.9 and 76.0 tokens/J at 300 and 200 W: three decoders and a prefill engine at 300 W."""

    def watts(busy):
        return 300 + 3 * (0.75 * busy + 0.25 * 76)

    assert watts(281) / watts(200) == pytest.approx(76.0 / 61.9, rel=0.02)
    assert pytest.approx(230, abs=1) == 0.75 * 281 + 0.25 * 76


def test_a_table_is_looked_up_by_tokens_and_by_use_of_memory():
    power = lookup(100, [(1, 300.0), (math.inf, 600.0)], [(0.5, 300.0), (1.0, 500.0)], 400.0)
    one = Parts(T=10.0, weights=2.0, reads=3.0, pairs=1.0)
    assert step(power, one).watts == pytest.approx(100 + (200 * 2 + 200 * 3 + 300 * 1) / 10)
    many = Parts(T=10.0, weights=2.0, reads=6.0, multiply=2.0, tokens=9)
    assert step(power, many).watts == pytest.approx(100 + (500 * 4 + 400 * 6) / 10)


def test_a_measured_phase_draws_what_was_measured():
    power = smooth(100, 0, 0, phases={"decode": 250.0, "prefill": 600.0, "mixed": 500.0})
    assert step(power, Parts(T=3.0, reads=1.0, kind="decode")).joules == 750
    assert step(power, Parts(T=3.0, multiply=1.0, kind="mixed")).joules == 1500
