"""The one place where an error becomes words and an exit code."""

import io
import os
import shlex
import signal
import subprocess
import time

import pytest

from agentctl.cli.boundary import Terminated, explain
from agentctl.errors import (
    AgentctlError,
    BadRecordsError,
    ConfigError,
    InputError,
    ObjectiveNotMetError,
    OutputError,
    UnknownFormatError,
    UsageError,
)

CODES = {
    AgentctlError: 1,
    InputError: 1,
    UnknownFormatError: 1,
    BadRecordsError: 1,
    OutputError: 1,
    UsageError: 2,
    ConfigError: 2,
    ObjectiveNotMetError: 3,
}


def explained(error):
    out = io.StringIO()
    return explain(error, out), out.getvalue()


def raised(error):
    try:
        raise error
    except type(error) as caught:
        return caught


@pytest.mark.parametrize(("error", "code"), CODES.items())
def test_every_error_has_its_exit_code(error, code):
    assert explained(error("x"))[0] == code


def test_an_error_names_place_fact_expectation_and_way_out():
    error = InputError(
        "prompt_tokens is -3", place="a.jsonl:17", expected="a number >= 0", hint="--max-bad 1"
    )
    assert explained(error)[1] == (
        "error: a.jsonl:17: prompt_tokens is -3; expected a number >= 0\n\nhint: --max-bad 1\n"
    )


def test_an_error_without_a_hint_is_one_line():
    assert (
        explained(OutputError("already exists", place="day.trace"))[1] == "error: day.trace: already exists\n"
    )


def test_a_file_name_cannot_write_to_the_terminal():
    assert "\x1b" not in explained(InputError("does not exist", place="a\x1b[2J"))[1]


def test_a_bug_shows_its_trail_but_no_value():
    code, text = explained(raised(KeyError("Authorization: Bearer secret")))
    assert code == 1
    assert "KeyError" in text and "test_boundary.py" in text and "report" in text
    assert "secret" not in text


def test_a_bug_shows_its_message_when_asked(monkeypatch):
    monkeypatch.setenv("AGENTCTL_TRACEBACK", "1")
    assert "the whole story" in explained(raised(KeyError("the whole story")))[1]


def test_a_file_that_cannot_be_opened_is_no_bug():
    code, text = explained(PermissionError(13, "Permission denied", "day.jsonl"))
    assert (code, text) == (1, "error: day.jsonl: Permission denied\n")


def test_interrupted_and_terminated_runs_say_nothing():
    assert explained(KeyboardInterrupt()) == (130, "")
    assert explained(Terminated()) == (143, "")


@pytest.mark.parametrize(("stop", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_leaves_nothing_behind(tmp_path, program, stop, code):
    run = subprocess.Popen(
        [*program, "ingest", "-", "-o", "day.trace"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not any(tmp_path.iterdir()):  # the output's lock and temporary folder: it waits for its input now
        assert run.poll() is None
        time.sleep(0.05)
    time.sleep(0.2)
    run.send_signal(stop)
    out, err = run.communicate(timeout=20)
    assert (run.returncode, out, err) == (code, b"", b"")
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_has_seen_enough_ends_the_run_without_a_word(tmp_path, program):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*program, "policies"], cwd=tmp_path, stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_result_that_finds_no_room_on_standard_output_is_an_error(tmp_path, program):
    with open("/dev/full", "wb") as full:  # noqa: PTH123
        done = subprocess.run([*program, "policies"], cwd=tmp_path, stdout=full, stderr=subprocess.PIPE)
    message = b"error: standard output: cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr) == (1, message)


@pytest.mark.parametrize(("closed", "code"), [("policies >&-", 0), ("policies 2>&-", 0), ("polices 2>&-", 2)])
def test_a_closed_stream_swallows_what_would_go_there(tmp_path, program, closed, code):
    done = subprocess.run(["sh", "-c", f"{shlex.join(program)} {closed}"], cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stderr) == (code, b"")
