"""A measurement from start to end on the stand-in: what it finds, what it keeps, and how it goes on."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest
from inprocess.conftest import TRUTH

from agentctl.calibrate import Engine, calibrate_steps
from agentctl.calibrate_engine import calibrate_engine
from agentctl.errors import InputError, OutputError, UsageError
from agentctl.estimators.step_logs import read_step_logs
from agentctl.inprocess import stepping
from agentctl.inprocess.plan import ROUNDS
from agentctl.inprocess.run import Asked, measure_engine, power_path
from agentctl.inprocess.step_file import StepFile
from agentctl.inprocess.vllm_engine import VllmEngine
from agentctl.profile import parse_profile

DATA = Path(__file__).parents[1] / "data" / "calibrate"
CONFIG = '{"model_type": "llama", "hidden_size": 512}'
SMALL = {"max_num_batched_tokens": 256, "num_blocks": 200}


@pytest.fixture
def asked(tmp_path):
    (tmp_path / "config.json").write_text(CONFIG)
    return Asked(tmp_path / "config.json", SMALL, seconds=600, max_context=1024)


def test_the_coefficients_of_the_engine_come_back(vllm, asked, tmp_path):
    vllm(noise=0.02)
    file = measure_engine(asked, tmp_path / "steps.jsonl", VllmEngine)
    found = calibrate_engine(file, named=Engine("tiny"))
    assert found.document["held_out"]["mape"] < 0.015  # half of the noise, and some
    for name, value in TRUTH.items():
        assert found.fitted.values[name] == pytest.approx(value, rel=0.05)


def test_the_profile_says_what_was_measured_and_how(vllm, asked, tmp_path):
    vllm()
    found = calibrate_engine(measure_engine(asked, tmp_path / "s.jsonl", VllmEngine), named=Engine("tiny"))
    profile = parse_profile(found.profile, "profile", "tiny")
    assert (profile.kv_blocks, profile.block_tokens, profile.kv_bytes_per_token) == (200, 16, 32)
    assert (profile.max_num_batched_tokens, profile.max_num_seqs, profile.max_model_len) == (256, 16, 4096)
    assert profile.model == "tiny" and profile.gpu is None
    told = profile.provenance
    assert (told["source"], told["method"], told["engine"]) == ("measured", "engine", "vllm 0.32.0")
    assert told["clock"] == "cpu" and told["mode"]["async_scheduling"] is False
    assert "engine" in [section.name for section in found.sections]


def test_its_step_log_gives_the_same_coefficients_to_calibrate_steps(vllm, asked, tmp_path):
    vllm()
    file = measure_engine(asked, tmp_path / "steps.jsonl", VllmEngine)
    inside, steps = calibrate_engine(file), calibrate_steps([file.path])
    assert inside.fitted.values == steps.fitted.values
    assert inside.fitted.held_out == steps.fitted.held_out


def test_the_model_is_handed_over_as_a_folder_of_its_own(vllm, asked, tmp_path, monkeypatch):
    fake = vllm()
    seen = []

    def look(arguments):
        folder = Path(arguments.model)
        seen.append((folder, sorted(one.name for one in folder.iterdir())))
        raise ValueError("enough")

    monkeypatch.setattr(fake, "from_engine_args", look)
    with pytest.raises(UsageError):
        measure_engine(asked, tmp_path / "steps.jsonl", VllmEngine)
    folder, names = seen[0]
    assert names == ["config.json"] and not folder.exists()


def test_interrupted_it_keeps_whole_scenes_and_goes_on_where_it_was(vllm, asked, tmp_path, monkeypatch):
    fake = vllm()
    path = tmp_path / "steps.jsonl"
    play, played = stepping.play, []

    def stopped(engine, scene, prompts):
        if len(played) == 25:
            raise KeyboardInterrupt
        played.append(scene.name)
        return play(engine, scene, prompts)

    monkeypatch.setattr(stepping, "play", stopped)
    with pytest.raises(KeyboardInterrupt):
        measure_engine(asked, path, VllmEngine)
    assert fake.started[0].core.is_down
    kept = StepFile(path).done
    assert len(kept) == 25
    monkeypatch.setattr(stepping, "play", play)
    again = measure_engine(asked, path, VllmEngine)
    assert kept < again.done
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    scenes = {row["scene"] for row in rows} - {"warm-up"}
    assert len(again.done) == ROUNDS * len(scenes)
    assert sum("engine_facts" in row for row in rows) == 2
    assert sum(row["scene"] == "warm-up" for row in rows) == stepping.WARM_STEPS


def test_a_complete_file_starts_no_engine(vllm, asked, tmp_path):
    fake = vllm()
    path, notes = tmp_path / "steps.jsonl", []
    measure_engine(asked, path, VllmEngine)
    measure_engine(asked, path, VllmEngine, notes.append)
    assert len(fake.started) == 1 and "no engine is started" in notes[-1]


def test_a_budget_is_for_all_starts_together(vllm, asked, tmp_path, monkeypatch):
    fake = vllm()
    path, notes = tmp_path / "steps.jsonl", []
    ticks = iter(range(10_000))
    monkeypatch.setattr(stepping.measure, "__defaults__", (None, lambda: 20.0 * next(ticks)))
    measure_engine(asked, path, VllmEngine)
    monkeypatch.undo()
    vllm()
    short = replace(asked, seconds=20.0)  # the stand-in has spent some seconds of its own clock
    assert StepFile(path).spent_s < 20
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[-1]["time_s"] = rows[0]["time_s"] + 19.5
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    measure_engine(short, path, VllmEngine, notes.append)
    assert not fake.started and "a larger --budget goes on" in notes[-1]
    measure_engine(asked, path, VllmEngine, notes.append)
    assert len(fake.started) == 1 and "stepping for 580 s" in notes[-1]


def test_a_disk_that_is_full_is_an_error_in_words(vllm, asked, tmp_path, monkeypatch):
    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

        close = flush = lambda self: self.write("")

    opened = StepFile.open

    def fill(self, facts):
        opened(self, facts)
        self._file = Full()

    monkeypatch.setattr(StepFile, "open", fill)
    vllm()
    with pytest.raises(OutputError, match="No space left"):
        measure_engine(asked, tmp_path / "s.jsonl", VllmEngine)


def test_half_a_line_of_a_killed_run_is_taken_off(vllm, asked, tmp_path):
    vllm()
    path = tmp_path / "steps.jsonl"
    whole = measure_engine(asked, path, VllmEngine).done
    path.write_text(path.read_text() + '{"schema":"agentctl/st')
    assert StepFile(path).done == whole and path.read_text().endswith("\n")


def test_steps_of_another_engine_are_not_mixed_in(vllm, asked, tmp_path):
    vllm()
    path = tmp_path / "steps.jsonl"
    measure_engine(asked, path, VllmEngine)
    other = Asked(asked.model, {**SMALL, "max_num_seqs": 8}, seconds=600, max_context=1024)
    with pytest.raises(UsageError, match="another arguments"):
        measure_engine(other, path, VllmEngine)


def test_a_file_of_something_else_is_refused(vllm, asked, tmp_path):
    vllm()
    path = tmp_path / "steps.jsonl"
    path.write_text('{"schema": "agentctl/steps/1", "seconds": 1}\n')
    with pytest.raises(InputError, match=r"steps.jsonl:1.*no step of a measured engine"):
        measure_engine(asked, path, VllmEngine)


def test_the_budget_ends_it_and_what_there_is_can_be_read(vllm, asked, tmp_path, monkeypatch):
    vllm()
    ticks = iter(range(10_000))
    monkeypatch.setattr(stepping.measure, "__defaults__", (None, lambda: 20.0 * next(ticks)))
    file = measure_engine(asked, tmp_path / "steps.jsonl", VllmEngine)
    assert 20 < len(file.done) <= 30  # 600 s at 20 s a scene
    assert read_step_logs([file.path]).set_aside["warm-up"] == stepping.WARM_STEPS


@pytest.mark.parametrize(("seconds", "context", "told"), [(5, None, "--budget"), (60, 200, "--max-context")])
def test_too_small_a_budget_or_context_is_refused(vllm, asked, tmp_path, seconds, context, told):
    vllm()
    small = Asked(asked.model, SMALL, seconds=seconds, max_context=context)
    with pytest.raises(UsageError) as caught:
        measure_engine(small, tmp_path / "steps.jsonl", VllmEngine)
    assert told in str(caught.value)


def test_the_recorded_measurement_of_a_real_engine_meets_its_bar(tmp_path):
    path = tmp_path / "steps.jsonl"
    path.write_bytes(gzip.decompress((DATA / "vllm_cpu_engine.jsonl.gz").read_bytes()))
    found = calibrate_engine(StepFile(path))
    assert found.document["held_out"]["mape"] < 0.11
    assert found.profile is not None and found.document["engine"]["share_of_wall"] > 0.95
    assert not found.fitted.missing


def test_what_the_gpu_drew_is_in_the_profile(vllm, asked, tmp_path):
    vllm()
    file = measure_engine(asked, tmp_path / "s.jsonl", VllmEngine)
    samples = power_path(file.path)
    rows = [(phase, i) for phase in ("idle", "prefill", "decode") for i in range(30)]
    watts = {"idle": 80.0, "prefill": 650.0, "decode": 420.0}
    lines = [
        {"time_s": 1.8e9 + i / 10, "watts": watts[phase], "clock_mhz": 1980, "gpu": 0, "phase": phase}
        for i, (phase, _) in enumerate(rows)
    ]
    samples.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    found = calibrate_engine(file, power=samples)
    table = parse_profile(found.profile, "profile", "tiny").power
    assert table["prefill_w"] == pytest.approx(650, rel=0.03) and table["idle_w"] == pytest.approx(
        80, rel=0.03
    )
    assert "power" not in calibrate_engine(file, power=tmp_path / "none.jsonl").profile
