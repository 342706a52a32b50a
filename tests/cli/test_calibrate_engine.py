"""`agentctl calibrate engine` as a user meets it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentctl.cli.calibrate.engine import seconds, values
from agentctl.errors import UsageError
from agentctl.profile import load_profile

TESTS = Path(__file__).parents[1]
STAND_IN = """
import os, sys
from oracles import fake_vllm
sys.modules.update(fake_vllm.modules())
truth = {"b0": 0.001, "b_prefill": 1e-5, "b_decode": 2e-5, "b_context": 1e-7, "b_attention": 1e-9}
fake_vllm.LLMEngine.times = staticmethod(fake_vllm.Times(truth, 0.02))
from types import SimpleNamespace
from agentctl.inprocess import clocks, vllm_engine
busy = lambda: fake_vllm.LLMEngine.started[-1].core.busy
vllm_engine.time = SimpleNamespace(time=lambda: 1.8e9 + busy(), perf_counter=busy)
clocks.CpuClock.mark = staticmethod(busy)
start = fake_vllm.LLMEngine.from_engine_args
def talkative(arguments):
    print("words of a library")
    os.write(1, b"and of one in C")
    return start(arguments)
fake_vllm.LLMEngine.from_engine_args = talkative
from agentctl.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def beside_vllm(tmp_path):
    """Run `agentctl ARGUMENTS` in a process in which `import vllm` finds the stand-in."""
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")}
    paths = os.pathsep.join([str(TESTS), str(TESTS.parent), environment.get("PYTHONPATH", "")])

    def run(*arguments):
        return subprocess.run(
            [sys.executable, "-c", STAND_IN, *map(str, arguments)], cwd=tmp_path, text=True, timeout=120,
            capture_output=True, env={**environment, "PYTHONPATH": paths}, check=False,
        )  # fmt: skip

    return run


def test_a_measurement_ends_in_a_profile_and_the_second_run_starts_no_engine(beside_vllm, tmp_path):
    command = (
        "calibrate",
        "engine",
        "--model",
        "config.json",
        "--engine-arg",
        "num_blocks=200",
        "--max-context",
        600,
    )
    first = beside_vllm(*command, "-o", "p.toml", "--json")
    assert first.returncode == 0, first.stderr
    told = json.loads(first.stdout)
    assert "words of a library" in first.stderr and "and of one in C" in first.stderr
    assert (told["schema"], told["source"]) == ("agentctl/calibrate/1", "engine")
    assert told["engine"]["limits"]["kv_blocks"] == 200
    profile = load_profile(tmp_path / "p.toml")
    assert profile.batch_time.b0 == told["coefficients"]["b0"]["value"] == pytest.approx(0.001, rel=0.05)
    again = beside_vllm(*command, "-o", "q.toml", "--json")
    assert "no engine is started" in again.stderr
    assert (tmp_path / "p.toml").read_text() == (tmp_path / "q.toml").read_text()


def test_without_vllm_it_ends_with_the_cure(agentctl, tmp_path):
    if any((Path(folder) / "vllm").is_dir() for folder in sys.path):
        pytest.skip("vLLM is installed here")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    done = agentctl("calibrate", "engine", "--model", "config.json")
    assert done.code == 2 and done.out == ""
    assert "vLLM is not installed" in done.err and "--backend torch" in done.err
    assert "Traceback" not in done.err and not (tmp_path / "engine.steps.jsonl").exists()


def test_a_model_that_is_nowhere_is_named(agentctl):
    done = agentctl("calibrate", "engine", "--model", "nowhere.json")
    assert done.code == 2 and "nowhere.json" in done.err


def test_arguments_of_the_engine_are_numbers_words_and_json():
    told = values(["max_num_seqs=64", "--dtype=float16", "enable-lora=false", 'hf_overrides={"a": 1}'])
    assert told == {"max_num_seqs": 64, "dtype": "float16", "enable_lora": False, "hf_overrides": {"a": 1}}
    with pytest.raises(UsageError, match="NAME=VALUE"):
        values(["max_num_seqs"])


def test_a_budget_is_seconds():
    assert seconds("300") == seconds("300s") == 300
    for wrong in ("0", "soon", "-5", "nan", "1e9"):
        with pytest.raises(UsageError):
            seconds(wrong)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (("--backend", "tensorrt"), "expected vllm or torch"),
        (("--backend", "torch"), "--gpu NAME (by its data sheet) or --prior PROFILE"),
        (("--backend", "torch", "--gpu", "h100-sxm", "--tp", 2), "measures one GPU"),
        (("--prior", "h100-qwen3-8b"), "vllm is measured whole"),
    ],
)
def test_what_a_backend_cannot_do_is_refused_before_anything_starts(agentctl, flags, told):
    done = agentctl("calibrate", "engine", "--model", "config.json", *flags)
    assert done.code == 2 and told in done.err
