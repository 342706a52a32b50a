"""`agentctl calibrate steps`: logs in; a profile, its error, and what the steps do not show out."""

import gzip
import json
from pathlib import Path

import pytest

from agentctl.profile import load_profile

DATA = Path(__file__).parents[1] / "data" / "calibrate"
IN_PROCESS = DATA / "vllm_cpu_inproc.jsonl.gz"


@pytest.fixture
def decodes_only(tmp_path):
    """The steps of the in-process log that have no prefill."""
    with gzip.open(IN_PROCESS, "rt") as file:
        rows = [json.loads(line) for line in file]
    path = tmp_path / "decodes.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows if not any(part[2] for part in row["b"])))
    return path


def test_the_profile_holds_what_was_fitted_and_what_it_is_worth(agentctl, tmp_path):
    done = agentctl("calibrate", "steps", IN_PROCESS, "-o", "cpu.toml", "--kv-blocks", 500, "--block-tokens",
                    128, "--llm", "tiny", "--gpu", "none", "--tp", 1, "--json")  # fmt: skip
    assert done.code == 0
    told = json.loads(done.out)
    profile = load_profile(tmp_path / "cpu.toml")
    assert told["schema"] == "agentctl/calibrate/1" and told["source"] == "steps"
    assert profile.batch_time.b0 == told["coefficients"]["b0"]["value"] > 0
    assert profile.fit["mape"] == told["held_out"]["mape"] < 0.1
    assert (profile.kv_blocks, profile.block_tokens, profile.model) == (500, 128, "tiny")
    covariance = profile.fit["covariance"]
    position = covariance["names"].index("b0")
    assert covariance["matrix"][position][position] ** 0.5 == pytest.approx(
        told["coefficients"]["b0"]["standard_error"]
    )
    assert set(profile.fit["by_region"]) >= {"decode only", "mixed"}
    assert profile.fit["box"]["prefill_tokens"] == [0, 1022]  # beside a decode or two, of 1,024
    assert profile.provenance["source"] == "measured"
    assert len(profile.provenance["inputs"][IN_PROCESS.name]) == 64
    assert profile.provenance["recorded"].startswith(
        "2026-11-"
    )  # when the log was written, not when it was read
    steps = told["steps"]
    assert steps["read"] == steps["fitted"] + steps["stalls"] + sum(steps["set_aside"].values())


def test_the_same_log_makes_the_same_bytes(agentctl, tmp_path):
    outputs = [agentctl("calibrate", "steps", IN_PROCESS, "-o", f"{n}.toml").out for n in "ab"]
    assert outputs[0] == outputs[1]
    assert (tmp_path / "a.toml").read_bytes() == (tmp_path / "b.toml").read_bytes()


def test_the_answer_comes_first_and_the_next_command_last(agentctl):
    sized = ("--kv-blocks", 500, "--block-tokens", 128)
    done = agentctl("calibrate", "steps", IN_PROCESS, "-o", "cpu.toml", *sized)
    assert done.out.startswith("On steps that it had not seen, hinge errs by ")
    assert "b_attention" in done.out and "decode only" in done.out
    assert done.err == "written: cpu.toml; next: agentctl recommend TRACE --profile cpu.toml\n"
    done = agentctl("calibrate", "steps", IN_PROCESS, "-o", "half.toml", *sized[:2])
    assert "next: a simulation needs the KV cache, too: again with --block-tokens N" in done.err


def test_the_report_asks_where_the_model_is_wrong(agentctl, tmp_path):
    assert agentctl("calibrate", "steps", IN_PROCESS, "--html", "cpu.html").code == 0
    page = (tmp_path / "cpu.html").read_text()
    assert "Where is the model wrong?" in page and "calibrate-residuals" in page


def test_eq9_makes_a_profile_of_the_papers_form(agentctl, tmp_path):
    assert agentctl("calibrate", "steps", IN_PROCESS, "--model", "eq9", "-o", "p.toml").code == 0
    c = load_profile(tmp_path / "p.toml").batch_time
    assert c.model == "eq9" and c.b_prefill == c.b_decode


def test_terms_can_be_asked_for(agentctl, tmp_path):
    assert agentctl("calibrate", "steps", IN_PROCESS, "--terms", "b_past", "-o", "p.toml").code == 0
    assert load_profile(tmp_path / "p.toml").batch_time.b_past > 0
    assert agentctl("calibrate", "steps", IN_PROCESS, "--terms", "none", "-o", "q.toml").code == 0
    assert load_profile(tmp_path / "q.toml").batch_time.b_past == 0


def test_steps_without_prefill_make_no_profile(agentctl, decodes_only, tmp_path):
    told = agentctl("calibrate", "steps", decodes_only)
    assert told.code == 0 and "no profile can be written: b_prefill, b_attention" in told.out
    done = agentctl("calibrate", "steps", decodes_only, "-o", "p.toml")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: the steps do not show b_prefill (no step has prefill), b_attention (")
    assert "--prior P" in done.err and not (tmp_path / "p.toml").exists()


def test_a_prior_fills_what_the_steps_do_not_show_and_the_profile_says_so(agentctl, decodes_only, tmp_path):
    assert agentctl("calibrate", "steps", IN_PROCESS, "-o", "all.toml").code == 0
    done = agentctl("calibrate", "steps", decodes_only, "--prior", "all.toml", "-o", "p.toml")
    assert done.code == 0, done.err
    profile, prior = load_profile(tmp_path / "p.toml"), load_profile(tmp_path / "all.toml")
    assert profile.batch_time.b_prefill == prior.batch_time.b_prefill
    assert profile.batch_time.b_context != prior.batch_time.b_context
    assert set(profile.provenance["from_prior"]) == {"b_prefill", "b_attention"}
    assert profile.fit["status"]["b_prefill"] == "prior"


def test_what_the_steps_do_not_show_is_not_taken_from_another_gpus_profile(agentctl, decodes_only, tmp_path):
    done = agentctl("calibrate", "steps", decodes_only, "--prior", "h100-qwen3-8b", "-o", "p.toml")
    assert (done.code, done.out) == (2, "") and not (tmp_path / "p.toml").exists()
    assert "--prior: is of another engine than these steps (b_context (" in done.err
    assert "b_prefill, b_attention would come from it alone" in done.err


def test_batches_that_are_all_alike_tell_each_missing_coefficient_and_why(agentctl, tmp_path):
    row = {"seconds": 0.02, "batch": [[100, 1, 0]] * 4}
    (tmp_path / "alike.jsonl").write_text(f"{json.dumps(row)}\n" * 60)
    done = agentctl("calibrate", "steps", "alike.jsonl", "-o", "p.toml")
    assert done.code == 1 and "b_prefill (no step has prefill)" in done.err
    assert "b_decode, b_context (not separable" in done.err


def test_prefill_that_costs_nothing_is_warned_of(agentctl, tmp_path):
    with gzip.open(IN_PROCESS, "rt") as file:
        rows = [json.loads(line) | {"ms": 20, "wait_ms": 0} for line in file]
    (tmp_path / "flat.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    assert "warning: b_prefill, b_context came out 0" in agentctl("calibrate", "steps", "flat.jsonl").out


def test_a_prior_of_another_engine_is_found_out(agentctl):
    told = agentctl("calibrate", "steps", IN_PROCESS, "--prior", "h100-qwen3-8b")
    assert told.code == 0 and "warning: the prior is of another kind of engine: b_prefill (" in told.out


def test_the_six_term_model_is_fitted_and_never_written(agentctl):
    told = agentctl("calibrate", "steps", IN_PROCESS, "--model", "legacy")
    assert told.code == 0 and "sum_tokens" in told.out
    done = agentctl("calibrate", "steps", IN_PROCESS, "--model", "legacy", "-o", "p.toml")
    assert done.code == 2 and "never simulated" in done.err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["--model", "lin"], 2, "unknown model 'lin'; expected eq9 or hinge or legacy"),
        (["--terms", "b_futur"], 2, "no optional term 'b_futur'"),
        (["--map", "second=ms"], 2, "did you mean `seconds`?"),
        (["--map", "duration_ms=dur"], 1, "has no column 'dur'"),
        ([str(IN_PROCESS)], 2, "is given twice; expected every log once"),
        (["--map", "seconds"], 2, "--map: cannot read 'seconds'; expected OURS=THEIRS"),
        (["--prior", "h100"], 2, "profile h100: is neither a file nor a preset"),
        (["--kv-blocks", "1"], 2, "--kv-blocks"),
    ],
)
def test_what_cannot_be_asked_is_wrong_usage(agentctl, words, code, message):
    done = agentctl("calibrate", "steps", IN_PROCESS, *words)
    assert done.code == code and message in done.err and done.out == ""


def test_a_profile_is_not_overwritten_silently(agentctl, tmp_path):
    (tmp_path / "p.toml").write_text("mine")
    done = agentctl("calibrate", "steps", IN_PROCESS, "-o", "p.toml")
    assert done.code == 1 and (tmp_path / "p.toml").read_text() == "mine"
    assert agentctl("calibrate", "steps", IN_PROCESS, "-o", "p.toml", "--force").code == 0


def test_a_missing_log_is_an_error(agentctl):
    done = agentctl("calibrate", "steps", "nowhere.jsonl")
    assert done.code == 1 and "nowhere.jsonl" in done.err


def test_a_configuration_file_sets_its_options(agentctl, tmp_path):
    (tmp_path / "agentctl.toml").write_text('[calibrate]\nmodel = "eq9"\n')
    told = json.loads(agentctl("calibrate", "steps", IN_PROCESS, "--json").out)
    assert told["model"] == "eq9"
