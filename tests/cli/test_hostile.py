"""What a careless or a hostile user gives: an error that helps, never a traceback, never a harmed file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time

import pytest

ROW = {"timestamp": 0, "input_length": 40, "output_length": 1, "hash_ids": [1, 2, 3]}
PROFILE = ("--profile", "h100-qwen3-8b")


def refused(done, code: int) -> str:
    assert (done.code, done.out) == (code, ""), done.err
    assert done.err.startswith("error: ") and "unexpected" not in done.err, done.err
    return done.err.removeprefix("error: ")


@pytest.fixture
def log(tmp_path):
    (tmp_path / "day.jsonl").write_text(json.dumps(ROW) + "\n")
    return tmp_path / "day.jsonl"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--session-rate", "inf"), "--session-rate: is inf; expected a finite number"),
        (("--session-rate", "0"), "--session-rate: is 0.0; expected a finite number above 0"),
        (("--session-rate", "1e-320"), "--session-rate: 1e-320 sessions a minute spread 14 sessions"),
        (("--block-tokens", "9" * 30), f"--block-tokens: is {'9' * 30}; expected 1 to 1048576"),
        (("--block-tokens", "7"), "--block-tokens: is 7, but the log says that its blocks have 64 tokens"),
        (("--format", "weca"), "--format: no format is called 'weca'\n\nhint: did you mean `weka`?"),
        (("--map", "arrival=\udcff"), "--map: "),
    ],
)
def test_ingest_explains_what_it_cannot_use(agentctl, weka, arguments, message):
    assert refused(agentctl("ingest", weka, "-o", "day.trace", *arguments), 2).startswith(message)


@pytest.mark.parametrize(
    "arguments",
    [
        ("analyze", "--engines", f"1,{'9' * 20}"),
        ("simulate", *PROFILE, "--engines", "9" * 20),
        ("recommend", *PROFILE, "--engines", f"4..{'9' * 20}"),
    ],
)
def test_a_cluster_beyond_any_memory_is_refused_at_once(agentctl, log, arguments):
    command, *options = arguments
    assert "expected at most 65536" in refused(agentctl(command, log, *options), 2)


def test_force_does_not_cost_anybody_the_logs(agentctl, log, tmp_path):
    (tmp_path / "logs").mkdir()
    log.rename(tmp_path / "logs" / "day.jsonl")
    for command in (("ingest",), ("simulate", *PROFILE), ("recommend", *PROFILE)):
        message = refused(agentctl(*command, "logs/day.jsonl", "-o", "logs", "--force"), 1)
        assert message.startswith("logs: is a folder without "), message
        assert (tmp_path / "logs" / "day.jsonl").exists()


@pytest.mark.parametrize(
    ("command", "output"), [("ingest", "-o"), ("simulate", "-o"), ("recommend", "-o"), ("analyze", "--html")]
)
@pytest.mark.parametrize("name", ["-", "", ".", "/dev/null", "o\udcff"])
def test_an_output_that_is_no_name_is_refused(agentctl, log, tmp_path, command, output, name):
    options = PROFILE if command in ("simulate", "recommend") else ()
    refused(agentctl(command, log, *options, output, name, "--force"), 1)
    assert list(tmp_path.iterdir()) == [log]


def test_a_log_may_have_a_name_that_is_not_utf8(agentctl, weka, tmp_path):
    name = os.fsdecode(b"w\xff.jsonl.gz")
    (tmp_path / name).write_bytes(weka.read_bytes())
    done = agentctl("simulate", name, *PROFILE, "-o", "run", "-q")
    assert (done.code, done.err) == (0, "")
    assert agentctl("report", "run", "--html", "again.html").out == done.out
    assert (tmp_path / "again.html").read_bytes() == (tmp_path / "run" / "report.html").read_bytes()


def test_a_dataset_among_logs_is_called_one(agentctl, log, weka):
    assert agentctl("ingest", weka, "-o", "weka.trace").code == 0
    message = refused(agentctl("analyze", log, "weka.trace"), 1)
    assert message.startswith("weka.trace: is a dataset; expected log files, or one dataset alone")


def test_a_missing_file_is_noticed_before_the_others_are_read(agentctl, log):
    log.write_text("bad\n")
    message = refused(agentctl("ingest", log, "gone.jsonl", "-o", "day.trace", "--format", "mooncake"), 1)
    assert message.startswith("gone.jsonl: cannot be opened")


def test_where_no_record_is_good_setting_them_aside_is_no_cure(agentctl, log):
    log.write_text(json.dumps({**ROW, "input_length": -3}) + "\n")
    message = refused(agentctl("ingest", log, "-o", "day.trace"), 1)
    assert "hint: no record is good: is it the right format?" in message
    message = refused(agentctl("ingest", log, "-o", "day.trace", "--max-bad", 1), 1)
    assert message.startswith("day.jsonl: no usable record is left")


def test_an_interrupt_at_the_terminal_reaches_the_workers_of_ingest_too_and_nobody_speaks(
    tmp_path, weka, program
):
    """A terminal sends it to the whole group of processes, those that are just starting included."""
    os.mkfifo(tmp_path / "never.jsonl")  # a log that never comes
    (tmp_path / "day.jsonl.gz").write_bytes(weka.read_bytes())
    before = sorted(tmp_path.iterdir())
    run = subprocess.Popen(
        [*program, "ingest", "day.jsonl.gz", "never.jsonl", "--workers", "2", "-o", "day.trace"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    while sorted(tmp_path.iterdir()) == before:
        assert run.poll() is None
        time.sleep(0.05)
    time.sleep(1.0)
    os.killpg(run.pid, signal.SIGINT)
    out, err = run.communicate(timeout=30)
    assert (run.returncode, out, err) == (130, b"", b"")
    assert sorted(tmp_path.iterdir()) == before
