"""26: a pickle is refused before anything loads it; the way to its content is shown, not walked by us."""

import ast
import gzip
import io
import json
import os
import pickle  # noqa: TID251  (the attack itself)
import re
import subprocess
import sys
import zipfile
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from agentctl.cli.main import main
from agentctl.errors import InputError
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.ingest.source import Source

PAGE = Path(__file__).parents[2] / "docs" / "sglang_dumps.md"
PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)
PACKINGS = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
}


class Payload:
    """Makes a folder when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def dumps(folder: Path, protocol: int) -> dict[str, bytes]:
    """The payload alone and inside what programs dump: lists, objects, SGLang's dictionary."""
    payload = Payload(folder / "made-by-a-pickle")
    return {
        "alone": pickle.dumps(payload, protocol),
        "list": pickle.dumps([payload], protocol),
        "tuple": pickle.dumps([(payload, 1)], protocol),
        "dict": pickle.dumps({"server_args": payload, "requests": []}, protocol),
        "ordered": pickle.dumps(OrderedDict(a=payload), protocol),
        "object": pickle.dumps(SimpleNamespace(a=payload), protocol),
    }


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_26_a_pickle_under_any_name_is_refused_and_what_it_would_make_is_not_made(
    tmp_path, protocol, packing
):
    for kind, data in dumps(tmp_path, protocol).items():
        path = tmp_path / f"{kind}.jsonl"
        path.write_bytes(PACKINGS[packing](data))
        for format_name in (None, "mooncake", "generic"):
            with pytest.raises(InputError, match=r"is a Python pickle.*never loads") as error:
                ingest([path], tmp_path / "a.trace", IngestOptions(format=format_name))
            assert error.value.hint is not None and PAGE.name in error.value.hint
    assert not (tmp_path / "made-by-a-pickle").exists()
    pickle.loads(dumps(tmp_path, protocol)["tuple"])
    assert (tmp_path / "made-by-a-pickle").exists(), "the payload does nothing: this test would not notice"


@pytest.mark.parametrize("name", ["dump.pkl", "DUMP.PKL", "a.pickle", "a.pkl.gz", "a.joblib"])
def test_26_a_file_that_is_named_like_a_pickle_is_one(tmp_path, name):
    (tmp_path / name).write_bytes(b"(whatever\n")
    with pytest.raises(InputError, match="is a Python pickle"):
        Source(str(tmp_path / name))


def test_26_what_torch_saves_is_an_archive_and_refused_as_one(tmp_path):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", dumps(tmp_path, 2)["dict"])
    (tmp_path / "a.pt").write_bytes(buffer.getvalue())
    with pytest.raises(InputError, match="zip archive"):
        ingest([tmp_path / "a.pt"], tmp_path / "a.trace")
    assert not (tmp_path / "made-by-a-pickle").exists()


@pytest.mark.parametrize(
    "command", [["ingest", "-o", "a.trace"], ["analyze"], ["export", "--anonymize", "-o", "x"]]
)
def test_26_every_command_that_reads_logs_says_so_in_the_same_words(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dump").write_bytes(dumps(tmp_path, 4)["dict"])
    assert main([*command, "dump"]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("error: dump: is a Python pickle")
    assert not (tmp_path / "made-by-a-pickle").exists()


@pytest.mark.parametrize(
    "text",
    [
        b'{"timestamp": 0, "input_length": 40, "output_length": 1}\n',
        b'[{"a": 1}]',
        b"count,tokens\n1,2\n",
        b"connected\nrefused\n(pid=3) INFO 11-12 09:00:12 [a.py:1] Received request\n",
        b"(APIServer pid=1) INFO 11-12 09:00:12 [api_server.py:1] Available routes are:\n",
        b"[2026-11-12 09:00:12] {}\n",
        b"info\nlist\nq\n",
    ],
)
def test_text_is_not_taken_for_a_pickle(tmp_path, text):
    (tmp_path / "log").write_bytes(text)
    Source(str(tmp_path / "log"))


def recipe() -> str:
    (source,) = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    return source


def test_the_recipe_for_the_users_own_environment_is_python_without_a_network():
    imported = [
        node for node in ast.walk(ast.parse(recipe())) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names}
    assert names == {"json", "pickle", "sys"}


def test_the_recipe_gives_lines_like_those_of_the_request_log(tmp_path):
    """Run on a dump of our own making, in a process of its own."""
    obj = SimpleNamespace(rid="r1", text="hello", session_id=None, stream=True, image_data=b"never")
    meta = {"prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 0, "hidden_states": [0.5]}
    rows = [(obj, {"text": "hi", "meta_info": meta}, 1794474012.25, 1794474013.0)]
    (tmp_path / "recipe.py").write_text(recipe())
    for name, dump in (("new.pkl", {"server_args": None, "requests": rows}), ("old.pkl", rows)):
        (tmp_path / name).write_bytes(pickle.dumps(dump))
        run = [sys.executable, tmp_path / "recipe.py", tmp_path / name]
        done = subprocess.run(run, capture_output=True, text=True, check=True)
        written = json.loads(done.stdout)
        assert (written["event"], written["rid"], written["obj"]["text"]) == (
            "request.finished",
            "r1",
            "hello",
        )
        assert written["out"]["meta_info"] == {
            "prompt_tokens": 5, "completion_tokens": 2, "cached_tokens": 0,
            "request_received_ts": 1794474012.25, "request_finished_ts": 1794474013.0, "e2e_latency": 0.75,
        }  # fmt: skip


def test_what_the_recipe_writes_is_read_with_its_prompts_and_sessions(tmp_path):
    prompts = ["You are an agent. " * 20 + "And then? " * 20 * turn for turn in range(3)]
    rows = [
        (
            SimpleNamespace(rid=f"r{turn}", text=prompt, session_id="s", stream=True),
            {"meta_info": {"prompt_tokens": len(prompt) // 4, "completion_tokens": 2, "cached_tokens": 0}},
            1794474012.25 + 10 * turn,
            1794474013.0 + 10 * turn,
        )
        for turn, prompt in enumerate(prompts)
    ]
    (tmp_path / "recipe.py").write_text(recipe())
    (tmp_path / "dump.pkl").write_bytes(pickle.dumps({"server_args": None, "requests": rows}))
    run = [sys.executable, tmp_path / "recipe.py", tmp_path / "dump.pkl"]
    (tmp_path / "dump.jsonl").write_bytes(subprocess.run(run, capture_output=True, check=True).stdout)
    trace = ingest([tmp_path / "dump.jsonl"], tmp_path / "a.trace").trace
    assert trace.requests()["request_id"].to_list() == ["r0", "r1", "r2"]
    assert trace.requests()["session_id"].to_list() == ["s"] * 3
    assert trace.requests()["turn_index"].to_list() == [0, 1, 2]
    assert trace.requests()["e2e_s"].to_list() == [0.75] * 3
    blocks = trace.requests()["n_blocks"].to_list()
    assert 0 < blocks[0] < blocks[1] < blocks[2], "each prompt extends the one before"
    assert len(trace.tree.parent) - 1 < sum(blocks)
