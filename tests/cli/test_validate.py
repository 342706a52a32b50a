"""`agentctl validate`: a measured run and a profile in; how far apart they are out."""

import json
from pathlib import Path

import pytest

from agentctl.calibrate_prior import calibrate_prior
from agentctl.profile_file import toml_text

DATA = Path(__file__).parents[1] / "data"
LLAMA = DATA / "llmserving" / "measured_llama.jsonl.gz"


@pytest.fixture
def profile(tmp_path):
    """Writes the prior of the measured run's model and GPU under its limits, with `changed` keys."""
    found = calibrate_prior(DATA / "prior" / "llama-3.1-8b.json", "rtx-pro-6000-server").profile

    def write(**changed):
        tables = {**found, "max_num_seqs": 128, "max_num_batched_tokens": 2048, **changed}
        (tmp_path / "p.toml").write_text(toml_text(tables))
        return "p.toml"

    return write


def test_a_run_folder_holds_all_and_can_be_rendered_again(agentctl, profile, tmp_path):
    done = agentctl("validate", LLAMA, "--profile", profile(), "-o", "run", "--html", "one.html")
    assert done.code == 0
    assert done.out.startswith("The simulator reproduces this log: ")
    assert "end-to-end time p95" in done.out and "TTFT p95" in done.out
    assert {file.name for file in (tmp_path / "run").iterdir()} == {
        "result.json",
        "report.html",
        "outcome.parquet",
    }
    page = (tmp_path / "one.html").read_text()
    assert "Is TTFT distributed as in the log?" in page
    again = agentctl("report", "run")
    assert again.code == 0 and again.out == done.out


def test_the_same_log_gives_the_same_bytes(agentctl, profile):
    one, two = (agentctl("validate", LLAMA, "--profile", profile(), "--json") for _ in range(2))
    assert one.out == two.out
    assert json.loads(one.out)["schema"] == "agentctl/validate/1"


def test_an_engine_that_is_another_ends_with_code_3(agentctl):
    """The preset is an H100's: each token takes half as long as on the GPU of this run."""
    done = agentctl("validate", LLAMA, "--profile", "h100-qwen3-8b")
    assert done.code == 3
    assert "does not reproduce" in done.out and "too short at every load" in done.out
    assert "another GPU" in done.out


def test_nothing_to_compare_is_told_and_strict_fails_it(agentctl, profile):
    azure = DATA / "azure" / "code_first_200.csv"
    done = agentctl("validate", azure, "--profile", profile())
    assert done.code == 0 and done.out.startswith("Not validated: the log has no measured latency")
    assert agentctl("validate", azure, "--profile", profile(), "--strict").code == 3


@pytest.mark.parametrize(
    ("changed", "code", "says"),
    [
        ({"kv_blocks": None}, 2, "kv_blocks: missing"),
        ({"batch_time": {"model": "hinge", "b0": -1.0, "b_prefill": 1e-5}}, 2, "b0: is out of range"),
        ({"batch_time": {"model": "legacy", "b0": 1.0, "b_prefill": 1e-5}}, 2, "never simulated"),
        ({"schema": "agentctl/profile/9"}, 2, "schema"),
    ],
)
def test_a_profile_of_the_wrong_kind_is_an_error(agentctl, profile, changed, code, says):
    done = agentctl("validate", LLAMA, "--profile", profile(**changed))
    assert done.code == code and says in done.err


def test_a_truncated_profile_is_an_error(agentctl, profile, tmp_path):
    name = profile()
    (tmp_path / name).write_text((tmp_path / name).read_text()[:150])
    done = agentctl("validate", LLAMA, "--profile", name)
    assert done.code == 2 and name in done.err


def test_neither_profile_nor_cluster_is_wrong_usage(agentctl):
    done = agentctl("validate", LLAMA)
    assert done.code == 2 and "neither is given" in done.err
