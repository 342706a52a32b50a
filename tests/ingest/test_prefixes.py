"""Known beginnings of prompts: with and without cutting them out, a log gives the same in every byte."""

import json
import re
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentctl.formats.base import Reading, ReadOptions
from agentctl.ingest import source as source_module
from agentctl.ingest.hashing import HashOptions
from agentctl.ingest.prefixes import BLOCK_BYTES, Prefixes
from agentctl.ingest.prompts import Prompt
from agentctl.ingest.read import read_file
from agentctl.ingest.texts import Texts
from agentctl.ingest.trie import Trie

CALL = {"timestamp": 1794474012.5, "status_code": 200}
TOOLS = [{"type": "function", "function": {"name": "f", "description": "d" * 1500}}]
TEXTS = (
    "",
    "hi",
    "x" * 300,
    "y" * 1100,
    "z" * 2500,
    'a"}, {"',
    '"messages": [',
    "\\",
    "é",
    "\U0001f600",
    "\u2028",
)
ODD = ["plain", 12, 123, None, [1, 2], "", {"a": {"messages": [1]}}]

message = st.builds(
    lambda role, text: {"role": role, "content": text},
    st.sampled_from(["system", "user", "assistant"]),
    st.lists(st.sampled_from(TEXTS), max_size=3).map("".join),
)
turn = st.lists(message | st.sampled_from(ODD), min_size=1, max_size=3)


@st.composite
def bodies(draw):
    """Prompts of conversations that go on, fork, change in the middle, shrink and are sent again."""
    known = [draw(turn)]
    for _ in range(draw(st.integers(1, 12))):
        messages = list(draw(st.sampled_from(known)))
        how = draw(st.sampled_from(["on", "on", "on", "again", "edit", "shorter"]))
        if how == "on":
            messages += draw(turn)
        elif how == "edit" and messages:
            messages[draw(st.integers(0, len(messages) - 1))] = draw(message)
        elif how == "shorter":
            del messages[draw(st.integers(0, len(messages))) :]
        known.append(messages)
    return known


@st.composite
def logs(draw):
    """A log of them: tools or none, systems apart, other orders, spacings and escapes, and damaged lines."""
    separators = draw(st.sampled_from([(", ", ": "), (",", ":"), (" ,\t", " : ")]))
    ascii_, lines = draw(st.booleans()), [json.dumps({**CALL, "messages": ["a"], "usage": {}}).encode()]
    for number, messages in enumerate(draw(bodies())):
        body = {"model": "m", "messages": messages}
        if draw(st.booleans()):
            body["tools"] = TOOLS[: draw(st.integers(0, 1))]
        if draw(st.integers(0, 5)) == 0:
            body["system"] = "apart " * 300
        if draw(st.integers(0, 5)) == 0:
            body["cache_salt"] = "s"
        if draw(st.integers(0, 3)) == 0:
            body = dict(reversed(body.items()))
        call = {**CALL, "request_id": str(number), "request": body, "response": {}}
        if draw(st.integers(0, 9)) == 0:
            call = {"metadata": {"messages": messages}, **call}
        escaped = ascii_ if draw(st.integers(0, 7)) else not ascii_
        line = json.dumps(call, separators=separators, ensure_ascii=escaped).encode()
        damage = draw(st.sampled_from(["no"] * 12 + ["cut", "utf8", "half", "type", "blank"]))
        if damage == "cut":
            line = line[: draw(st.integers(1, len(line) - 1))]
        elif damage == "utf8":
            line = line.replace(b"role", b"r\xffle", 1)
        elif damage == "half":
            line = line.replace(b"role", rb"\ud800", 1)
        elif damage == "type":
            line = line.replace(b'"m"', b"7", 1)
        lines.append(b"" if damage == "blank" else line)
    return draw(st.sampled_from([b"\n", b"\r\n"])).join(lines) + draw(st.sampled_from([b"", b"\n"]))


def outcome(log: bytes, monkeypatch, fold: bool, format_name: str = "openai_chat", **hashing):
    """All that ingest learns of a log from its reader and its text."""
    with tempfile.TemporaryDirectory() as folder, monkeypatch.context() as patch:
        patch.setattr(source_module, "CHUNK_BYTES", 4096)
        patch.setattr(source_module, "SAMPLE_BYTES", 4096)
        if not fold:
            patch.setattr(Reading, "folding", lambda *_: None)
        path, spool = Path(folder, "log.jsonl"), Path(folder, "spool.arrow")
        path.write_bytes(log)
        options = ReadOptions(hashing=HashOptions(salt=b"s" * 32, is_ephemeral=False, **hashing))
        texts = Texts(options.hashing)
        report = read_file(str(path), format_name, options, Trie(), spool, texts)
        with pa.memory_map(str(spool)) as file:
            rows = pa.ipc.open_file(file).read_all().to_pylist()
        tries = texts.messages, texts.units
        trees = [values.tolist() for tree in tries for values in (tree.parent, tree.hash)]
        return rows, trees, list(texts.sizes), report.quarantine.places, report.n_lines, report.n_blank_lines


@settings(max_examples=150)
@given(logs(), st.booleans())
def test_a_log_gives_the_same_whether_known_text_is_cut_out_or_not(log, tools_first):
    with pytest.MonkeyPatch.context() as patch:
        folded, plain = (outcome(log, patch, fold, tools_first=tools_first) for fold in (True, False))
    for one, other in zip(folded, plain, strict=True):
        assert one == other


def growing(n: int, size: int = 700) -> list[bytes]:
    """Lines of one conversation, which grows by two messages of that many bytes."""
    messages, lines = [], []
    for k in range(n):
        messages += [{"role": "user", "content": f"{k}" * size}, {"role": "assistant", "content": "b" * size}]
        lines.append(json.dumps({**CALL, "request": {"messages": messages}, "response": {}}).encode())
    return lines


def test_of_a_prompt_that_goes_on_only_what_is_new_is_left():
    lines, texts = growing(40), Texts(HashOptions())
    left = []
    for line in lines:
        text = texts.prefixes.fold(line, 1, b"messages")
        left.append(len(text))
        array = text[text.index(b"[") : text.rindex(b"]") + 1]
        texts.add([Prompt(array)])
    assert max(left[1:]) < 2 * 2 * 700 + BLOCK_BYTES + 1500  # a turn, a block and what is around
    assert len(lines[-1]) > 50_000


def test_what_is_cut_out_comes_back_under_other_tools(monkeypatch):
    lines = [line for line in growing(6) for _ in range(2)]
    tools = json.dumps(TOOLS).encode()
    with_tools = b'"tools": ' + tools + b', "messages"'
    lines[1::2] = [line.replace(b'"messages"', with_tools, 1) for line in lines[1::2]]
    log = b"\n".join(lines)
    assert outcome(log, monkeypatch, True) == outcome(log, monkeypatch, False)


def test_an_array_of_the_same_name_elsewhere_stays_what_it_is(monkeypatch):
    """In the schema of a tool, in a system prompt, in an answer, before the messages in the line."""
    inner = [{"messages": ["m" * 3000, "n" * (3000 + k)]} for k in range(3)]
    messages = growing(5)
    lines = []
    for k in range(12):
        body = {
            "tools": [inner[k % 2]],
            "system": [inner[k % 3]],
            "messages": [{"role": "user", "content": "u" * k}],
        }
        choices = [{"message": {"role": "assistant", "content": inner[k % 2]}}]
        lines.append({**CALL, "request": dict(list(body.items())[k % 2 :])})
        lines.append({"response": {"choices": choices}, **CALL, "request": {"messages": body["messages"]}})
    log = b"\n".join([*messages, *(json.dumps(line).encode() for line in lines)])
    assert outcome(log, monkeypatch, True) == outcome(log, monkeypatch, False)


def test_beyond_its_size_it_forgets_and_learns_anew(monkeypatch):
    monkeypatch.setattr("agentctl.ingest.prefixes._MAX_BLOCKS", 20)
    log = b"\n".join(growing(30))
    assert outcome(log, monkeypatch, True) == outcome(log, monkeypatch, False)


def test_a_mark_of_another_run_is_text_like_any_other():
    ours, theirs = Prefixes(), Prefixes()
    line = growing(3)[-1]
    marked = ours.fold(line, 1, b"messages")
    array = marked[marked.index(b"[") : marked.rindex(b"]") + 1]
    assert re.match(rb'\["[0-9a-f]{32} \d+ \d+",', array)
    assert theirs.recall(1, array) is None
    assert ours.recall(1, array) is not None


def test_one_changed_bit_is_another_block():
    """NH is no checksum that some changes cancel out in: every bit, alone or with one elsewhere, counts."""
    lines = growing(2, 2000)
    texts = Texts(HashOptions())

    def array_of(text: bytes) -> bytes:
        return text[text.index(b"[") : text.rindex(b"]") + 1]

    texts.add([Prompt(array_of(texts.prefixes.fold(lines[0], 1, b"messages")))])
    whole = len(texts.prefixes.fold(lines[0], 1, b"messages"))
    assert whole < 3000
    random = np.random.default_rng(1)
    start = lines[0].index(b"[") + 1
    for _ in range(300):
        changed = bytearray(lines[0])
        for at in random.integers(start, start + BLOCK_BYTES, 2):
            changed[at] ^= 1 << int(random.integers(0, 7))
        if bytes(changed) != lines[0] and b"\n" not in changed:
            text = texts.prefixes.fold(bytes(changed), 1, b"messages")
            assert len(text) > len(lines[0]) - 10


@settings(max_examples=40)
@given(bodies(), st.booleans())
def test_litellms_rows_give_the_same_too(known, is_apart):
    def row(number, messages):
        times = {"startTime": f"2026-11-12T09:00:{number:02}Z", "endTime": f"2026-11-12T09:01:{number:02}Z"}
        counts = {"call_type": "acompletion", "prompt_tokens": 5, "completion_tokens": 1}
        body = {"messages": messages, "tools": TOOLS, "system": "apart"} if is_apart else {}
        sent = {"proxy_server_request": body, "messages": {} if is_apart else messages}
        return json.dumps({"request_id": str(number), **times, **counts, **sent}).encode()

    log = b"\n".join(row(number, messages) for number, messages in enumerate(known))
    with pytest.MonkeyPatch.context() as patch:
        one, other = (outcome(log, patch, fold, format_name="litellm") for fold in (True, False))
    assert one == other
