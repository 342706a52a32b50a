"""`agentctl calibrate prior` as a user meets it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from agentctl.profile import load_profile

DATA = Path(__file__).parents[1] / "data" / "prior"


@pytest.fixture
def config(tmp_path):
    return shutil.copy(DATA / "qwen3-32b.json", tmp_path / "config.json")


def test_a_profile_is_written_and_can_be_simulated(agentctl, config, weka, tmp_path):
    done = agentctl(
        "calibrate", "prior", "--model", "config.json", "--gpu", "h100-sxm", "--tp", 2, "-o", "p.toml"
    )
    assert done.code == 0, done.err
    assert done.out.startswith("By physics, not measured: 2 x h100-sxm prefill about ")
    assert "next: agentctl recommend TRACE --profile p.toml" in done.err
    profile = load_profile(tmp_path / "p.toml")
    assert (profile.gpu, profile.tensor_parallel, profile.kv_bytes_per_token) == ("h100-sxm", 2, 262_144)
    assert profile.provenance["source"] == "prior"
    assert set(profile.fit["interval"]) >= {"b0", "b_prefill", "b_decode", "b_context", "b_attention"}
    run = agentctl("simulate", weka, "--profile", "p.toml", "--policy", "round-robin", "--json", "-q")
    assert run.code == 0, run.err


def test_with_json_every_coefficient_has_its_interval(agentctl, config):
    done = agentctl("calibrate", "prior", "--model", "config.json", "--gpu", "h200-sxm", "--json")
    document = json.loads(done.out)
    assert (document["schema"], document["source"]) == ("agentctl/calibrate/1", "prior")
    assert document["model"]["parameters"] == 32_762_123_264
    for one in document["coefficients"].values():
        assert one["low"] <= one["value"] <= one["high"]
    assert document["kv_blocks"]["low"] < document["kv_blocks"]["value"] < document["kv_blocks"]["high"]


def test_the_folder_of_the_configuration_will_do_and_bytes_repeat(agentctl, config, tmp_path):
    for name in ("a.toml", "b.toml"):
        assert agentctl("calibrate", "prior", "--model", ".", "--gpu", "gb200", "-o", name, "-q").code == 0
    assert (tmp_path / "a.toml").read_bytes() == (tmp_path / "b.toml").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--gpu", "h100-sxn"), "error: --gpu: 'h100-sxn' is not in the table of GPUs\n\nhint: did you mean"),
        (("--gpu", "h100-sxm", "--tp", 3), "error: --tp: 64 heads, 8 of KV cannot be split over 3 GPUs"),
        (("--gpu", "a100-40-sxm"), "error: --tp: the weights take 65.5 GB of each GPU"),
        (("--gpu", "h100-sxm", "--dtype", "fp9"), "error: --dtype: is 'fp9'\n\nhint: did you mean `fp8`?"),
        (("--gpu", "h100-sxm", "--kv-dtype", "int4"), "error: --kv-dtype: is 'int4'"),
        (("--gpu", "h100-sxm", "--memory-utilization", 2), "error: --memory-utilization"),
    ],
)
def test_what_cannot_be_served_is_a_usage_error(agentctl, config, arguments, said):
    done = agentctl("calibrate", "prior", "--model", "config.json", *arguments, "-o", "p.toml")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(said)


def test_a_configuration_that_lacks_a_key_is_an_error_that_names_it(agentctl, config, tmp_path):
    keys = json.loads(Path(config).read_text())
    del keys["hidden_size"]
    (tmp_path / "config.json").write_text(json.dumps(keys))
    done = agentctl("calibrate", "prior", "--model", "config.json", "--gpu", "h100-sxm")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "error: config.json: hidden_size: missing; expected a config.json of Hugging Face"
    )
    assert "hint: take the file as it was published" in done.err


def test_a_name_with_quotes_and_line_ends_stays_one_value(agentctl, config, tmp_path):
    keys = json.loads(Path(config).read_text()) | {"_name_or_path": 'a"\n[power]\nx = "\x1b[2J'}
    (tmp_path / "config.json").write_text(json.dumps(keys))
    done = agentctl("calibrate", "prior", "--model", "config.json", "--gpu", "h200-sxm", "-o", "p.toml")
    assert done.code == 0 and "\x1b" not in done.out + done.err
    assert load_profile(tmp_path / "p.toml").model == keys["_name_or_path"]


def test_a_profile_in_use_is_kept(agentctl, config, tmp_path):
    (tmp_path / "p.toml").write_text("mine")
    done = agentctl("calibrate", "prior", "--model", "gone.json", "--gpu", "h100-sxm", "-o", "p.toml")
    assert (done.code, (tmp_path / "p.toml").read_text()) == (1, "mine")
    assert done.err.startswith("error: p.toml: already exists")


def test_the_page_says_what_the_terminal_says_and_nothing_of_where_files_lie(agentctl, config, tmp_path):
    done = agentctl("calibrate", "prior", "--model", config, "--gpu", "h200-sxm", "--html", "p.html")
    assert done.code == 0, done.err
    page = (tmp_path / "p.html").read_text()
    assert "By physics, not measured: 1 x h200-sxm" in page and str(tmp_path) not in page
