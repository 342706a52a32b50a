"""Watts by phase: what samples are means of is recovered, what they cannot tell is not told."""

import json

import numpy as np
import pytest

from agentctl.errors import ConfigError, InputError
from agentctl.estimators.power import (
    Spans,
    parse_power,
    phase_power,
    power_table,
    spans_of_requests,
    spans_of_steps,
)
from agentctl.estimators.power_samples import PHASES, read_power
from agentctl.estimators.steps import steps_of

WATTS = np.array([75.0, 610.0, 290.0, 480.0, 0.0])  # idle, prefill, decode, mixed, busy
TEN_HERTZ = 0.1


def spans(seed=0, n=600):
    """Phases of 0.1 to 2 s, one after the other; those of idle are left out."""
    random = np.random.default_rng(seed)
    edge = np.concatenate(([100.0], 100.0 + np.cumsum(random.uniform(0.1, 2, n))))
    phase = random.integers(0, 4, n)
    phase[[0, -1]] = 2  # the log begins and ends with work
    busy = phase > 0
    return Spans(edge[:-1][busy], edge[1:][busy], phase[busy])


def energy(log, until, watts=WATTS):
    """Joules since the log's first step."""
    spent = np.array([log.seconds(phase, until) for phase in range(1, 5)])
    return watts[1:] @ spent + watts[0] * (until - log.start[0] - spent.sum(axis=0))


def written(path, log, scale=(1.0,), noise=0.0, seed=1, width=TEN_HERTZ, **more):
    """Samples of one GPU for each of `scale`, from 5 s before the log to 5 s after it."""
    random = np.random.default_rng(seed)
    rows = []
    for gpu, factor in enumerate(scale):
        time = np.arange(log.start[0] - 5, log.end[-1] + 5, width)
        watts = factor * np.diff(energy(log, time)) / width
        watts = np.concatenate(([watts[0]], watts)) * (1 + noise * random.normal(size=time.size))
        rows += [
            {"time_s": float(t), "watts": float(w), "gpu": gpu, **more}
            for t, w in zip(time, watts, strict=True)
        ]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def test_the_power_of_each_phase_is_recovered_from_samples_that_cross_borders(tmp_path):
    log = spans()
    found = phase_power(read_power([written(tmp_path / "p.jsonl", log)]), log, "steps")
    for name, watts in zip(PHASES[:4], WATTS, strict=False):
        assert found.by_phase[name].watts == pytest.approx(watts, rel=1e-6)
    assert set(found.by_phase) == set(PHASES[:4])
    assert 98 <= found.n_outside <= 101


def test_gpus_of_one_engine_are_added(tmp_path):
    log = spans()
    samples = read_power([written(tmp_path / "p.jsonl", log, scale=(1.0, 0.5))])
    found = phase_power(samples, log, "steps")
    assert samples.n_gpus == found.n_gpus == 2
    assert found.by_phase["decode"].watts == pytest.approx(1.5 * 290, rel=1e-6)


def test_intervals_hold_the_truth(tmp_path):
    held = total = 0
    for seed in range(15):
        log = spans(seed, 200)
        samples = read_power([written(tmp_path / f"{seed}.jsonl", log, noise=0.2, seed=seed)])
        for name, watts in zip(PHASES[:4], WATTS, strict=False):
            one = phase_power(samples, log, "steps").by_phase[name]
            held, total = held + (one.low <= watts <= one.high), total + 1
    assert held >= 0.9 * total


def test_a_phase_that_never_was_is_not_measured(tmp_path):
    log = spans()
    log = Spans(log.start[log.phase != 1], log.end[log.phase != 1], log.phase[log.phase != 1])
    samples = read_power([written(tmp_path / "p.jsonl", log)])
    found = phase_power(samples, log, "steps")
    assert found.by_phase["prefill"].watts is None
    table = power_table(found, samples.inputs)
    assert "prefill_w" not in table and table["fit"]["unmeasured"]["prefill"] == "no sample was taken in it"
    assert parse_power(table, "p.toml: [power]").prefill_w is None
    assert parse_power(table, "p.toml: [power]").decode_w == pytest.approx(290, rel=1e-6)


def test_phases_that_are_always_together_in_a_sample_are_not_told_apart(tmp_path):
    """10 ms of prefill, 20 of decode, over and over, sampled each 300 ms."""
    start = 100 + 0.01 * np.repeat(np.arange(0, 6000, 3), 2) + np.tile([0, 0.01], 2000)
    log = Spans(start, start + np.tile([0.01, 0.02], 2000), np.tile([1, 2], 2000))
    found = phase_power(read_power([written(tmp_path / "p.jsonl", log, width=0.3)]), log, "steps")
    assert found.by_phase["prefill"].watts is None and found.by_phase["decode"].watts is None
    assert "together" in str(found.by_phase["decode"].why)


def test_requests_tell_busy_from_idle_and_no_more(tmp_path):
    log = spans_of_requests(np.array([100.0, 101, 150, 152]), np.array([120.0, 110, 170, 160]))
    assert log.start.tolist() == [100, 150] and log.end.tolist() == [120, 170]
    watts = np.array([80.0, 0, 0, 0, 400])
    time = np.arange(100, 170.01, 0.5)
    mean = np.diff(energy(log, time, watts)) / 0.5
    rows = [{"time_s": float(t), "watts": float(w)} for t, w in zip(time, [400, *mean], strict=True)]
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = phase_power(read_power([tmp_path / "p.jsonl"]), log, "requests")
    assert found.by_phase["idle"].watts == pytest.approx(80)
    assert found.by_phase["busy"].watts == pytest.approx(400)
    assert set(found.by_phase) == {"idle", "busy"}


def test_samples_may_name_their_phase(tmp_path):
    rows = [{"time_s": 0.1 * n, "watts": 300 + 300 * (n % 2), "phase": ("decode", "prefill")[n % 2],
             "clock_mhz": 1700 + 100 * (n % 2)} for n in range(60)]  # fmt: skip
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    found = phase_power(read_power([tmp_path / "p.jsonl"]), None, "phase")
    decode, prefill = found.by_phase["decode"], found.by_phase["prefill"]
    assert (decode.watts, decode.clock_mhz) == (pytest.approx(300), pytest.approx(1700))
    assert (prefill.watts, prefill.clock_mhz) == (pytest.approx(600), pytest.approx(1800))


def test_steps_are_phases_of_their_kind():
    steps = steps_of(
        3, seconds=[0.1, 0.3, 0.1], time_s=[5.0, 5.2, 5.1], n_prefill=[1, 0, 1], n_decode=[0, 4, 2]
    )
    log = spans_of_steps(steps)
    assert [PHASES[phase] for phase in log.phase] == ["prefill", "mixed", "decode"]
    assert log.end.tolist() == pytest.approx([5.1, 5.2, 5.5])


def test_what_nvidia_smi_writes_is_read(tmp_path):
    lines = ["timestamp, index, power.draw [W], clocks.current.sm [MHz]"]
    lines += [f"2026/11/30 12:10:{n:02d}.500, 0, {300 + n}.25 W, 1980 MHz" for n in range(30)]
    lines += ["2026/11/30 12:10:30.500, 0, [N/A], 1980 MHz"]
    (tmp_path / "smi.csv").write_text("\n".join(lines) + "\n")
    samples = read_power([tmp_path / "smi.csv"])
    assert samples.watts.tolist() == [300.25 + n for n in range(1, 30)]
    assert samples.time_s[0] == 1796040601.5 and samples.is_absolute
    assert set(samples.clock_mhz) == {1980.0} and samples.n_gpus == 1


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"time_s": n, "watts": 300_000} for n in range(30)], "median sample is 3e+05 W"),
        ([{"time_s": n, "watts": 300} for n in range(5)], "5 samples"),
        ([{"time_s": n // 2, "watts": 300} for n in range(40)], "two samples of a GPU at one time"),
        ([{"time_s": n, "volts": 12} for n in range(40)], "no column of watts"),
        ([{"time_s": n, "watts": -1} for n in range(40)], "power is -1 W"),
        ([{"time_s": n, "watts": "much"} for n in range(40)], "is no number"),
        ([{"time_s": n, "watts": 1.0, "phase": "lunch"} for n in range(40)], "is no phase"),
    ],
)
def test_what_is_no_sample_is_an_error(rows, says, tmp_path):
    (tmp_path / "p.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    with pytest.raises(InputError, match=says.replace("+", r"\+")):
        read_power([tmp_path / "p.jsonl"])


def test_samples_of_another_time_are_an_error(tmp_path):
    samples = read_power([written(tmp_path / "p.jsonl", spans())])
    later = Spans(np.array([1e6]), np.array([1e6 + 9]), np.array([2]))
    with pytest.raises(InputError, match="no time in common"):
        phase_power(samples, later, "steps")


def test_the_table_of_a_profile_is_checked():
    with pytest.raises(ConfigError):
        parse_power({"decode_w": -3.0}, "p.toml: [power]")
