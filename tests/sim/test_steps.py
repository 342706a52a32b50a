"""Closed-form times of a run against adding up its steps."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from oracles.kernels import from_python

from agentctl.sim import steps as kernels
from agentctl.sim.state import ENGINE

host_steps, step_end, steps_ended = map(
    from_python, (kernels.host_steps, kernels.step_end, kernels.steps_ended)
)

TICK = 2.0**-30
ticks = st.integers(0, 2**24).map(lambda n: n * TICK)
above_zero = ticks.filter(lambda x: x > 0)


def run_of(start, first, slope, host, steps):
    """One engine whose run takes max(first + i * slope, host) seconds in step i."""
    engines = np.zeros(1, ENGINE).view(np.recarray)
    engine = engines[0]
    engine.run_start, engine.run_first, engine.run_slope, engine.run_host = start, first, slope, host
    engine.run_n_host, engine.run_steps = host_steps(first, slope, host), steps
    return engines


def ends(engines):
    return [step_end(engines[0], i) for i in range(1, int(engines[0].run_steps) + 1)]


def added(start, first, slope, host, n):
    now, sums = start, []
    for i in range(n):
        now += max(first + i * slope, host)
        sums.append(now)
    return sums


@given(ticks, above_zero, ticks, ticks, st.integers(1, 60))
def test_the_end_of_every_step_is_the_sum_of_those_before(start, first, slope, host, n):
    assert ends(run_of(start, first, slope, host, n)) == added(start, first, slope, host, n)


@given(above_zero, ticks, ticks)
def test_the_host_decides_a_step_as_long_as_the_gpu_is_faster(first, slope, host):
    n = int(host_steps(first, slope, host))
    assert n == 0 or first + (n - 1) * slope < host
    assert first + n * slope >= host or (slope == 0 and first < host)


@given(ticks, above_zero, ticks, ticks, st.integers(1, 60), ticks, st.integers(0, 60))
def test_a_step_has_ended_at_the_instant_of_its_end(start, first, slope, host, n, wait, known):
    """Whatever was known before: `known` steps have ended already."""
    engines = run_of(start, first, slope, host, n)
    sums = added(start, first, slope, host, n)
    between = [(a + b) / 2 for a, b in itertools.pairwise(sums)]
    for now in (start + wait, *sums, *between, sums[-1] + wait):
        ended = sum(end <= now for end in sums)
        engines[0].run_ended = min(known, ended)
        assert steps_ended(engines[0], now) == ended


def test_the_host_decides_the_first_steps_and_the_gpu_the_others():
    engines = run_of(start=10.0, first=1.0, slope=0.5, host=2.0, steps=5)  # 2, 2, 2, 2.5, 3
    assert ends(engines) == [12.0, 14.0, 16.0, 18.5, 21.5]


def test_a_gpu_that_never_catches_up_leaves_every_step_to_the_host():
    assert step_end(run_of(start=0.0, first=1.0, slope=0.0, host=2.0, steps=1000)[0], 1000) == 2000.0
