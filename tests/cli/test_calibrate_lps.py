"""`agentctl calibrate lps`: a log or coefficients in; the queue and power tables of a profile out."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from agentctl.calibrate_prior import calibrate_prior
from agentctl.estimators.lps_batch import from_profile
from agentctl.estimators.lps_table import parse_lps
from agentctl.estimators.power import parse_power, spans_of_steps
from agentctl.estimators.power_samples import PHASES
from agentctl.estimators.step_logs import read_step_logs
from agentctl.profile import load_profile

DATA = Path(__file__).parents[1] / "data"
LLAMA = DATA / "llmserving" / "measured_llama.jsonl.gz"


@pytest.fixture
def prior(tmp_path):
    """The prior of the model and the GPU that the measured run was on."""
    found = calibrate_prior(DATA / "prior" / "llama-3.1-8b.json", "rtx-pro-6000-server")
    (tmp_path / "prior.toml").write_text(found.toml())
    return "prior.toml"


def test_a_log_gives_the_queue_and_the_profile_carries_it(agentctl, prior, tmp_path):
    done = agentctl(
        "calibrate", "lps", LLAMA, "--profile", prior, "--max-num-seqs", 128, "-o", "p.toml", "--json"
    )
    assert done.code == 0
    told, profile = json.loads(done.out), load_profile(tmp_path / "p.toml")
    assert told["schema"] == "agentctl/calibrate/1" and told["source"] == "lps"
    assert told["lps"]["fit"]["mape"] < 0.015  # of times in service
    queue = parse_lps(profile.lps, "p.toml: [lps]").model()
    assert queue.limit == 128 and queue.saturation_rate == told["lps"]["saturation_rate_per_s"]
    assert profile.batch_time == load_profile(tmp_path / prior).batch_time  # the rest is as it was
    assert profile.provenance["source"] == "prior"


def test_the_coefficients_give_the_same_queue_as_the_library(agentctl, prior, tmp_path):
    done = agentctl(
        "calibrate", "lps", LLAMA, "--profile", prior, "--from", "profile", "-o", "p.toml", "--json"
    )
    request = json.loads(done.out)["lps"]["mean_request"]
    shape = (request["prompt"], request["output"], request["hit"], request["scv"], request["prompt_scv"])
    expected = from_profile(load_profile(tmp_path / prior), *shape)
    found = parse_lps(load_profile(tmp_path / "p.toml").lps, "p.toml: [lps]").model()
    assert (found.limit, found.scv, found.size) == (expected.limit, expected.scv, expected.size)
    assert np.allclose(found.capacity, expected.capacity, rtol=2e-4)


def test_log_and_coefficients_of_one_engine_agree(agentctl, prior):
    """Physics alone and the measured run: a step with 64 in service within 15 % of each other."""
    done = agentctl("calibrate", "lps", LLAMA, "--profile", prior, "--max-num-seqs", 128, "--json")
    told = json.loads(done.out)["lps"]
    ours, other = ({point["n"]: point["step_s"] for point in told[key]} for key in ("step_s", "other_step_s"))
    assert ours[64] == pytest.approx(other[64], rel=0.15)


def test_another_engines_profile_is_found_out(agentctl):
    done = agentctl("calibrate", "lps", LLAMA, "--profile", "h100-qwen3-8b", "--max-num-seqs", 128)
    assert "of another engine" in done.out


def test_power_is_joined_with_the_log_and_written_beside_the_queue(agentctl, prior, tmp_path):
    """400 W while requests are there, 90 W before and after: the log has no quiet time of its own."""
    rows = [json.loads(line) for line in gzip.decompress(LLAMA.read_bytes()).splitlines()]
    first = min(row["arrival_time"] for row in rows)
    samples = [{"time_s": first + 0.5 * n, "watts": 400.0, "clock_mhz": 2000} for n in range(200)]
    (tmp_path / "w.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in samples))
    done = agentctl(
        "calibrate", "lps", LLAMA, "--profile", prior, "--power", "w.jsonl", "-o", "p.toml", "--json"
    )
    assert done.code == 0, done.err
    power = parse_power(load_profile(tmp_path / "p.toml").power, "[power]")
    assert power.busy_w == pytest.approx(400)
    assert power.idle_w is power.decode_w is None
    assert json.loads(done.out)["power"]["by_phase"]["idle"]["watts"] is None


def test_power_is_joined_with_the_steps_of_the_engine(agentctl, tmp_path):
    """What a GPU of 600, 300, 450 and 80 W in its phases would have drawn over a recorded run."""
    steps = DATA / "calibrate" / "vllm_cpu_inproc.jsonl.gz"
    spans = spans_of_steps(read_step_logs([steps], warm_up=0, max_wait=float("inf")).steps)
    time = np.arange(spans.start[0], spans.end[-1], 0.1)
    spent = np.array([spans.seconds(PHASES.index(phase), time) for phase in ("prefill", "decode", "mixed")])
    joules = np.array([600.0, 300.0, 450.0]) @ spent + 80.0 * (time - time[0] - spent.sum(axis=0))
    watts = np.diff(joules) / np.diff(time)
    rows = [{"time_s": float(t), "watts": float(w)} for t, w in zip(time[1:], watts, strict=True)]
    (tmp_path / "w.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    done = agentctl("calibrate", "lps", "--power", "w.jsonl", "--steps", steps, "--json")
    assert done.code == 0, done.err
    power = json.loads(done.out)["tables"]["power"]
    expected = {"prefill_w": 600.0, "decode_w": 300.0, "mixed_w": 450.0, "idle_w": 80.0}
    told = {name: power[name] for name in expected if name in power}
    assert told == pytest.approx({name: expected[name] for name in told}, rel=1e-3) and len(told) >= 2


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ((), 2, "nothing to calibrate from"),
        ((LLAMA, "-o", "p.toml"), 2, "none was given"),
        ((LLAMA, "--from", "profile"), 2, "expected a profile"),
        ((LLAMA, "--from", "stars"), 2, "expected log or profile"),
        ((LLAMA, "--profile", "nobody"), 2, "neither a file nor a preset"),
        ((DATA / "azure" / "code_first_200.csv", "--from", "log"), 1, "no end-to-end times"),
    ],
)
def test_what_cannot_be_told_is_an_error(agentctl, arguments, code, says):
    done = agentctl("calibrate", "lps", *arguments)
    assert done.code == code and says in done.err


def test_predictive_coefficients_make_no_queue(agentctl, prior, tmp_path):
    text = (tmp_path / prior).read_text().replace("[provenance]", "[provenance]\npredictive_only = true")
    (tmp_path / "only.toml").write_text(text)
    done = agentctl("calibrate", "lps", LLAMA, "--profile", "only.toml", "--from", "profile")
    assert done.code == 2 and "predictive_only" in done.err
    assert agentctl("calibrate", "lps", LLAMA, "--profile", "only.toml").code == 0  # from the log
