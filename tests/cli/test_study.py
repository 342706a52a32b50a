"""`agentctl study conserve` as a user meets it."""

from __future__ import annotations

import json

import pytest
from oracles.datasets import write_dataset

FEW = ("--rates", "1,2", "--errors", "0.1", "--draws", 2)


def conversation(session, start, prompts, output=5):
    return [
        {
            "arrival_s": start + k,
            "session_id": session,
            "prompt_tokens": prompt,
            "output_tokens": output,
            "e2e_s": 0.5,
        }
        for k, prompt in enumerate(prompts)
    ]


def test_the_papers_comparison_is_run_again(agentctl, tmp_path):
    done = agentctl("study", "conserve", *FEW, "--html", "c.html", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["schema"], told["study"], told["mode"]) == ("agentctl/study/1", "conserve", "paper")
    assert told["conversations"]["sessions"] == 256 and told["conversations"]["left_out"] == {}
    assert told["machine"]["kv_tokens"] == 308_448
    runs = {(one["system"], one["rate_per_s"]): one["metrics"] for one in told["runs"]}
    assert len(runs) == 6 * 2
    first = runs["conserve", 2.0]["ttfet_x_p95"]
    assert first["by_draw"][0] == pytest.approx(3.74, abs=0.01) and len(first["by_draw"]) == 2
    assert first["low"] < first["mean"] < first["high"]
    assert runs["conserve", 2.0]["waited_p95_s"]["unit"] == "s"
    assert "At which rate do the systems part?" in (tmp_path / "c.html").read_text()
    assert agentctl("study", "conserve", *FEW, "--json").out == done.out.replace(" --html c.html", "")


def test_ones_own_sessions_are_cut_to_five_turns_and_counted_out(agentctl, tmp_path):
    rows = [
        *conversation("long", 0.0, [1000, 1100, 1200, 1300, 1400, 9000]),
        *conversation("short", 10.0, [1000, 1100]),
        *conversation("shrinks", 20.0, [1000, 1100, 50, 1300, 1400]),
    ]
    write_dataset(tmp_path / "own.trace", rows)
    told = json.loads(agentctl("study", "conserve", "own.trace", *FEW, "--json").out)["conversations"]
    assert (told["name"], told["sessions"], told["turns"]) == ("own", 1, 5)
    assert told["left_out"] == {"shorter": 1, "not one line that grows": 1}
    # 1000, then 95 new ones and 5 of the output before: prompts and outputs as they were.
    assert told["full_context_tokens"] == 1000 + 1100 + 1200 + 1300 + 1400 + 5 * 5


def test_a_trace_without_conversations_is_an_error(agentctl, tmp_path):
    write_dataset(tmp_path / "one.trace", conversation("a", 0.0, [100, 200]))
    done = agentctl("study", "conserve", "one.trace", *FEW)
    assert (done.code, done.out) == (1, "")
    assert "has no session of 5 turns" in done.err


@pytest.mark.parametrize(("option", "value"), [("--rates", "0,1"), ("--rates", "x"), ("--errors", "1.5")])
def test_what_cannot_be_read_is_told(agentctl, option, value):
    done = agentctl("study", "conserve", option, value)
    assert done.code == 2 and f"{option}: cannot read" in done.err


def test_one_draw_has_no_interval(agentctl):
    done = agentctl("study", "conserve", "--rates", "2", "--errors", "0.1", "--draws", 1)
    assert done.code == 0 and "% interval" not in done.out


def test_every_wait_is_counted_in_the_simulator_of_clusters(agentctl):
    flags = ("--rates", "1", "--errors", "0.1", "--draws", 1, "--honest")
    done = agentctl("study", "conserve", *flags, "--tool-time", "2", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert (told["mode"], len(told["runs"]), len(told["honest_runs"])) == ("honest", 6, 7)
    one = told["honest_runs"][0]
    assert (one["system"], one["policy"], one["decode_engines"]) == ("conserve", "oracle-conserve-pd", 3)
    assert one["metrics"]["waited_p95_s"]["unit"] == "s"
    text = agentctl("study", "conserve", *flags).out
    assert (
        text.startswith("In the simulator of clusters, fed at 1 sessions/s") and "As the paper ran it" in text
    )


def test_paper_mode_has_no_time_for_tools(agentctl):
    done = agentctl("study", "conserve", "--tool-time", "2")
    assert done.code == 2 and "--honest" in done.err
