"""`agentctl recommend --router`: what is asked for, what is written, what a mistake says."""

from __future__ import annotations

import json

SHORT = (
    "--profile", "h100-qwen3-8b", "--engines", "4", "--policies", "smetric,round-robin", "--replicates", "4",
    "--no-sensitivity", "--slo", "ttft < 2s + 62.5us*prompt_tokens @ 70%",
)  # fmt: skip


def test_the_run_folder_holds_what_to_deploy_and_the_report_says_so(agentctl, weka, tmp_path):
    done = agentctl("recommend", weka, *SHORT, "--router", "llm-d@0.10.0", "-o", "run")
    assert done.code == 0, done.err
    document = json.loads((tmp_path / "run" / "result.json").read_bytes())
    written = {str(one.relative_to(tmp_path / "run")) for one in (tmp_path / "run" / "deploy").rglob("*.*")}
    assert written == set(document["deploy"]["files"])
    assert "deploy/router/epp-config.yaml" in written
    assert document["verdict"]["policy"].startswith("llm-d:")
    again = agentctl("report", "run")
    assert again.code == 0
    assert "How is it deployed?" in (tmp_path / "run" / "report.html").read_text()


def test_an_unknown_router_is_a_usage_error_with_a_cure(agentctl, weka):
    done = agentctl("recommend", weka, *SHORT, "--router", "llmd")
    assert done.code == 2
    assert done.out == ""
    assert "--router: 'llmd' is no target" in done.err
    assert "did you mean `llm-d`?" in done.err


def test_an_unknown_version_names_those_that_are_known(agentctl, weka):
    done = agentctl("recommend", weka, *SHORT, "--router", "llm-d@9")
    assert done.code == 2
    assert "version '9' of llm-d is not known; expected 0.10.0" in done.err


def test_a_log_that_does_not_fit_the_engines_is_refused_at_once(agentctl, weka, tmp_path):
    (tmp_path / "c.toml").write_text(
        'schema = "agentctl/cluster/1"\n[[pool]]\nname = "main"\nengines = 4\nprofile = "h100-qwen3-8b"\n'
        "max_model_len = 4096\n"
    )
    done = agentctl("recommend", weka, "--cluster", "c.toml", "--router", "dynamo")
    assert done.code == 2
    assert "[pool] main: max_model_len is 4,096, and a request of the trace has" in done.err
    assert "raise max_model_len" in done.err
