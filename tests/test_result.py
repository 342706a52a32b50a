"""A run folder is read back as it was written, and nothing else is taken for one."""

from __future__ import annotations

import json

import pytest

from agentctl.errors import InputError
from agentctl.present import Section
from agentctl.result import RunResult, read_result

RESULT = RunResult({"schema": "agentctl/simulate/1"}, (Section("verdict", "", "It holds."),))


def test_a_run_is_read_as_it_was_written(tmp_path):
    RESULT.write(tmp_path / "run")
    assert read_result(tmp_path / "run") == RESULT


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"null",
        b"[]",
        b"{}",
        b"\xff\xfe",
        b"[" * 100_000,
        json.dumps({"schema": "agentctl/simulate/1"}).encode(),
        *(
            json.dumps({"schema": "agentctl/simulate/1", "sections": [], **wrong}).encode()
            for wrong in (
                {"schema": "agentctl"},
                {"schema": 5},
                {"schema": "agentctl/simulate/2"},
                {"sections": {}},
                {"sections": [{"name": "verdict"}]},
                {"provenance": []},
                {"exit_code": "much"},
                {"exit_code": 255},
            )
        ),
    ],
)
def test_what_is_no_result_is_refused_with_its_place(tmp_path, content):
    (tmp_path / "result.json").write_bytes(content)
    with pytest.raises(InputError, match="expected a folder made by -o RUN/") as caught:
        read_result(tmp_path)
    assert caught.value.place == str(tmp_path / "result.json")


@pytest.mark.parametrize(("name", "fact"), [("gone", "does not exist"), ("file", "is not a folder")])
def test_a_run_that_is_no_folder_is_named_itself(tmp_path, name, fact):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=fact) as caught:
        read_result(tmp_path / name)
    assert caught.value.place == str(tmp_path / name)
