"""Prompts, headers and secrets of a log appear nowhere that agentctl writes or says, whatever the format.

Every reader takes part: its samples are those of oracles/samples.py, the test data among them.
"""

from __future__ import annotations

import io
import json
import re
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from oracles.canaries import ENCODED, Poisoned, digests, marks_in, poison
from oracles.samples import FORMATS, MORE_OPTIONS, samples

from agentctl.cli.main import main
from agentctl.formats.base import readers

# Names that a dataset keeps as the log gives them: requests, sessions, tenants, models, engines. A mark in
# any other field must not survive; with --hash-ids only SHOWN may.
KEPT = {
    *("request_id", "x_request_id", "x_correlation_id", "x-request-id", "gen_ai.request.id", "rid"),
    *(
        "gen_ai.response.id",
        "response_id",
        "chat_id",
        "parent_chat_id",
        "session_id",
        "sessionId",
        "session.id",
        "Session ID",
    ),
    *("conversation_id", "gen_ai.conversation.id", "exgentic.session.id", "x-smg-routing-key", "routing_key"),
    *("user", "user.id", "userId", "user_api_key_team_alias", "prompt_cache_key"),
    *("service.name", "k8s.pod.name", "upstream_host", "endpoint"),
    *("id", "who"),  # as mapped by the user for `generic`
    *(
        "number behind/to",
        "number behind/id",
        "number behind/request",
        "number behind/rid",
    ),  # where a log of text names them
}
SHOWN = {
    *("model", "Model", "model_id", "llm.model_name", "gen_ai.request.model", "gen_ai.response.model"),
    *("incomingModelName", "targetModel", "gen_ai.response.finish_reasons", "gen_ai.response.finish_reason"),
}


@dataclass
class Spoken:
    """All that came out of some commands: their words and codes, and the folder that they wrote to."""

    folder: Path
    words: str = ""
    codes: list[int] = field(default_factory=list)

    def forget(self) -> None:
        self.words = ""
        for path in sorted(self.folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()


@pytest.fixture
def command(tmp_path, monkeypatch, capfd):
    """Run commands in an empty folder and keep everything that they say."""
    monkeypatch.chdir(tmp_path)
    spoken = Spoken(tmp_path)

    def run(*arguments: str) -> Spoken:
        handler = signal.getsignal(signal.SIGTERM)
        spoken.codes.append(main(list(arguments)))
        signal.signal(signal.SIGTERM, handler)
        out, err = capfd.readouterr()
        spoken.words += out + err
        return spoken

    return run


def everything(spoken: Spoken) -> dict[str, bytes]:
    """By name: what was said, and every file but the logs; tables also unpacked, with their statistics."""
    found = {"words": spoken.words.encode()}
    for path in sorted(path for path in spoken.folder.rglob("*") if path.is_file()):
        if path.suffix == ".log":
            continue
        found[str(path)] = path.read_bytes()
        found[f"name of {path}"] = path.name.encode()
        if path.suffix == ".parquet":
            found[f"{path} unpacked"] = unpacked(path)
        if path.suffix == ".arrow":
            table = pa.ipc.open_file(path).read_all()
            found[f"{path} as text"] = repr(table.to_pylist()).encode()
    return found


def unpacked(path: Path) -> bytes:
    """All values of a Parquet file without compression or dictionaries, its metadata and statistics."""
    file = pq.ParquetFile(path)
    plain = io.BytesIO()
    pq.write_table(file.read(), plain, compression="none", use_dictionary=False)
    groups = [file.metadata.row_group(n).to_dict() for n in range(file.metadata.num_row_groups)]
    return plain.getvalue() + repr((file.metadata.to_dict(), groups, file.schema_arrow.metadata)).encode()


def escaped(spoken: Spoken, poisoned: Poisoned, kept: set[str]) -> dict[str, str]:
    """Fields whose marks came out, in any writing, and where, unless a place of the mark is in `kept`."""
    found = {}
    for place, data in everything(spoken).items():
        for number in marks_in(data):
            fields = {"an encoded text"} if number == ENCODED else poisoned.fields(number)
            if not any(last_key(path) in kept for path in fields):
                found |= dict.fromkeys(fields, place)
    return found


def unkeyed(spoken: Spoken, poisoned: Poisoned) -> set[bytes]:
    """Digests that anybody could make of the log's texts, among the numbers and hexadecimal words."""
    found = set()
    for data in everything(spoken).values():
        found |= {
            bytes.fromhex(word.decode())[:8] for word in re.findall(rb"\b(?:[0-9a-f]{2}){8,64}\b", data)
        }
    for path in spoken.folder.rglob("*.parquet"):
        table = pq.read_table(path)
        for name in {"hash", "cache_group"} & set(table.schema.names):
            values = table[name].drop_null().to_numpy().astype("<u8")
            found |= {value.tobytes() for value in values} | {value.tobytes()[::-1] for value in values}
    return found & digests(poisoned.texts)


def last_key(path: str) -> str:
    path = re.sub(r"\[\d*\]", "", path)
    return path if path.startswith("number behind") else path.rsplit("/", 1)[-1]


@pytest.mark.parametrize("name", FORMATS)
def test_every_reader_has_a_sample(name):
    assert samples(name), f"add a sample for {name}: a file in tests/data, or one in oracles/samples.py"


@pytest.mark.parametrize("name", FORMATS)
def test_no_text_of_a_log_comes_out_anywhere(command, name, monkeypatch):
    """Runs that go well, give up over bad records, set them aside and hide names; a report and a trace."""
    monkeypatch.setattr("agentctl.ingest.build.shutil.rmtree", lambda *_, **__: None)  # keep the spools
    n_rows = 0
    for number, sample in enumerate(samples(name)):
        poisoned = poison(sample)
        good, bad = f"good{number}", f"bad{number}"
        Path(f"{good}.log").write_bytes(poisoned.good)
        Path(f"{bad}.log").write_bytes(poisoned.bad)
        options = ["--format", name, *MORE_OPTIONS.get(name, [])]
        options += ["--json-document"] if poisoned.is_document else []
        spoken = command("ingest", f"{good}.log", "-o", f"{good}.trace", "--max-bad", "99999", "-v", *options)
        if spoken.codes[-1] == 0:
            n_rows += json.loads(Path(f"{good}.trace/dataset.json").read_text())["records"]["rows"]
            if number == 0:
                command("analyze", f"{good}.trace", "--html", f"{good}.html", "-v")
            command("export", f"{good}.trace", "--anonymize", "-o", f"{good}.jsonl")
        command("ingest", f"{bad}.log", "-o", f"{bad}.trace", "--json", *options)
        command("ingest", f"{bad}.log", "-o", f"{bad}.trace", "--max-bad", "99999", *options)
        assert escaped(spoken, poisoned, KEPT | SHOWN) == {}
        assert unkeyed(spoken, poisoned) == set()
        spoken.forget()
        Path(f"{good}.log").write_bytes(poisoned.good)
        command("ingest", f"{good}.log", "-o", f"{good}.trace", "--max-bad", "99999", "--hash-ids", *options)
        assert escaped(spoken, poisoned, SHOWN) == {}
        spoken.forget()
    has_requests = bool(readers()[name].CARRIES)  # a log of engine events has none
    assert n_rows > 0 or not has_requests, f"no mark was in a record that counts: add a sample for {name}"


TEXT_FORMATS = [name for name in FORMATS if "prompts" in readers()[name].CARRIES]


@pytest.mark.parametrize("name", TEXT_FORMATS)
def test_hashes_of_text_depend_on_a_salt_that_is_nowhere_in_the_dataset(command, name):
    """Nobody can test a guess without it: two salts have no hash in common, one gives the same bytes."""
    n_hashes = 0
    for sample in samples(name):
        poisoned = poison(sample)
        Path("a.log").write_bytes(poisoned.good)
        options = ["--format", name, "--max-bad", "99999", "--force"]
        options += MORE_OPTIONS.get(name, [])
        options += ["--json-document"] if poisoned.is_document else []
        for salt in ("one", "two"):
            command("ingest", "a.log", "-o", f"{salt}.trace", "--salt", f"{salt}.salt", *options)
        spoken = command("ingest", "a.log", "-o", "again.trace", "--salt", "one.salt", *options)
        if spoken.codes[-1]:
            continue  # no record that counts in this sample
        hashes = [
            set(pq.read_table(f"{salt}.trace/prefix_nodes.parquet")["hash"].to_pylist())
            for salt in ("one", "two")
        ]
        assert hashes[0].isdisjoint(hashes[1])
        n_hashes += len(hashes[0])
        secret = Path("one.salt").read_bytes()
        assert len(secret) == 32 and Path("one.salt").stat().st_mode & 0o077 == 0
        for place, data in everything(spoken).items():
            is_salt = place.endswith(".salt")
            assert is_salt or (secret not in data and secret.hex().encode() not in data), place
        for file in ("requests.parquet", "prefix_nodes.parquet", "dataset.json"):
            assert Path(f"one.trace/{file}").read_bytes() == Path(f"again.trace/{file}").read_bytes()
    assert n_hashes > 0, f"no text of {name} was hashed: add a sample"


def fail_with(data: object):
    """A function that fails as libraries do (and as a worker of a pool does): the data in all its words."""

    def fail(*_, **__):
        error = ValueError(f"cannot use {data!r}")
        error.add_note(f"while reading {data!r}")
        raise error from RuntimeError(f"Traceback (most recent call last): {data!r}")

    return fail


FAULTS = {
    "while a line is decoded": "agentctl.ingest.lines.LineDecoder.decode",
    "while rows are spooled": "agentctl.ingest.read.Spool.append",
    "while sessions are found": "agentctl.ingest.assemble.group",
    "while a table is written": "agentctl.ingest.build.write_requests",
    "while the result is described": "agentctl.ingest.build.describe",
}


@pytest.mark.parametrize("when", FAULTS)
def test_a_fault_of_ours_tells_where_it_happened_and_nothing_of_the_log(command, monkeypatch, when):
    """Messages of libraries quote the data they choke on: the type and the trail are shown, no message."""
    poisoned = poison(samples("openai_chat")[0], n_lines=3)
    Path("a.log").write_bytes(poisoned.good)
    monkeypatch.setattr(FAULTS[when], fail_with(poisoned.texts))
    spoken = command("ingest", "a.log", "-o", "a.trace", "-v")
    assert spoken.codes == [1]
    assert "error: unexpected ValueError inside agentctl" in spoken.words
    assert "AGENTCTL_TRACEBACK=1 shows the whole message (it may quote the log)" in spoken.words
    assert marks_in(spoken.words.encode()) == set()
    assert escaped(spoken, poisoned, KEPT | SHOWN) == {}, "what was left behind"


def test_the_whole_message_is_shown_to_who_asks_for_it(command, monkeypatch):
    """The one way in which text can come out, and it says so; values of variables are not shown even then."""
    poisoned = poison(samples("openai_chat")[0], n_lines=3)
    Path("a.log").write_bytes(poisoned.good)
    monkeypatch.setenv("AGENTCTL_TRACEBACK", "1")
    monkeypatch.setattr(FAULTS["while rows are spooled"], fail_with("a value of the log"))
    spoken = command("ingest", "a.log", "-o", "a.trace")
    assert "Traceback" in spoken.words and "a value of the log" in spoken.words
    assert escaped(spoken, poisoned, set()) == {}
