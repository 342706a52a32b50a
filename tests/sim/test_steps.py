"""Closed-form times of a run against adding up its steps."""

from hypothesis import given
from hypothesis import strategies as st

from agentctl.sim.steps import Steps

TICK = 2.0**-30
ticks = st.integers(0, 2**24).map(lambda n: n * TICK)


def added(start, first, slope, host, n):
    now = start
    for i in range(n):
        now += max(first + i * slope, host)
    return now


@given(ticks, ticks.filter(lambda x: x > 0), ticks, ticks, st.integers(1, 60))
def test_the_end_of_every_step_is_the_sum_of_those_before(start, first, slope, host, n):
    steps = Steps(start, first, slope, host)
    assert [steps.end(i) for i in range(1, n + 1)] == [
        added(start, first, slope, host, i) for i in range(1, n + 1)
    ]


@given(ticks, ticks.filter(lambda x: x > 0), ticks, ticks, st.integers(1, 60), ticks)
def test_a_step_has_ended_at_the_instant_of_its_end(start, first, slope, host, n, wait):
    steps = Steps(start, first, slope, host)
    assert steps.n_ended(start + wait, n) == sum(steps.end(i) <= start + wait for i in range(1, n + 1))
    assert all(steps.n_ended(steps.end(i), n) == i for i in range(1, n + 1))


def test_the_host_decides_the_first_steps_and_the_gpu_the_others():
    steps = Steps(start=10.0, first=1.0, slope=0.5, host=2.0)  # 2, 2, 2, 2.5, 3 ...
    assert [steps.end(i) for i in range(1, 6)] == [12.0, 14.0, 16.0, 18.5, 21.5]


def test_a_gpu_that_never_catches_up_leaves_every_step_to_the_host():
    assert Steps(start=0.0, first=1.0, slope=0.0, host=2.0).end(1000) == 2000.0
