"""Tokenizers from files: exact blocks, one message at a time, and clear words where a package is missing."""

import base64
import json
import sys

import pytest

from agentctl.errors import InputError, UsageError
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.ingest.hashing import HashOptions
from agentctl.ingest.prompts import Prompt
from agentctl.ingest.texts import Texts
from agentctl.ingest.tokens import load_encoder, render


@pytest.fixture
def words(tmp_path):
    """A tokenizer.json that makes a token of each of few words, and the number of each."""
    tokenizers = pytest.importorskip("tokenizers", reason="needs the extra `text`")
    vocabulary = {word: k for k, word in enumerate(["[UNK]", "user", "assistant", "a", "b", "c", "d"])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    path = tmp_path / "tokenizer.json"
    tokenizer.save(str(path))
    return path


@pytest.fixture
def byte_ranks(tmp_path):
    """A .tiktoken file: every byte, then `ab` and `abc`."""
    ranks = [bytes([k]) for k in range(256)] + [b"ab", b"abc"]
    path = tmp_path / "few.tiktoken"
    path.write_bytes(b"".join(base64.b64encode(text) + b" %d\n" % rank for rank, text in enumerate(ranks)))
    return path


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b'{"role": "user", "content": "a\\nb \\u00e9"}', "user\na\nb é\n"),
        (b'{"role": "user", "content": [{"text": "a"}, {"type": "text", "text": "b"}]}', "user\nab\n"),
        (b'{"role": "user", "content": null, "tool_calls": [{"n": 1}]}', 'user\n{"tool_calls":[{"n":1}]}\n'),
        (b'{"role": "user", "content": [{"url": "u"}]}', 'user\n{"url":"u"}\n'),
        (b'"plain"', "plain"),
        (b"no JSON", "no JSON"),
        (b'[{"name": "tool"}]', '[{"name": "tool"}]'),
    ],
)  # fmt: skip
def test_a_message_is_rendered_as_its_role_its_text_and_the_rest(message, text):
    assert render(message) == text


def test_tokens_are_those_of_the_file(words):
    encode = load_encoder(words)
    assert list(encode(b'{"role": "user", "content": "a b"}')) == [1, 3, 4]


def test_ranks_are_read_without_a_download(byte_ranks):
    pytest.importorskip("tiktoken", reason="needs the extra `text`")
    assert list(load_encoder(byte_ranks)(b"abcab")) == [257, 256]


def test_blocks_are_of_the_engines_size_whatever_the_bytes(words):
    options = HashOptions(level="token", tokenizer=words, block_tokens=4)
    texts = Texts(options)
    one = b'{"role": "user", "content": "a b c d a"}'  # 6 tokens
    two = b'{"role":"assistant",  "content":"a"}'  # 2 tokens
    placed = texts.add([Prompt([one, two]), Prompt([one])])
    assert list(texts.sizes) == [0, 4, 2, 2]
    assert placed.unit_node.tolist() == [3, 2]


def test_counts_and_blocks_of_a_log_without_counts_are_exact(words, tmp_path):
    def call(k, *texts):
        messages = [{"role": "user", "content": text} for text in texts]
        return {"id": str(k), "timestamp": 1794474012 + k, "messages": messages, "response": {}}

    rows = [call(0, "a b c d " * 8), call(1, "a b c d " * 8, "a b"), call(2, "a b c d " * 4 + "d " * 16)]
    (tmp_path / "log").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = IngestOptions(tokenizer=words, block_tokens=4)
    trace = ingest([tmp_path / "log"], tmp_path / "a.trace", options).trace
    table = trace.requests()
    assert table["prompt_tokens"].to_list() == [33, 36, 33]
    assert set(table["token_source"]) == {"tokenizer"} and set(table["hash_kind"]) == {"token"}
    paths = []
    for tip in table["tip_node"]:
        path = set()
        while tip:
            path.add(tip)
            tip = int(trace.tree.parent[tip])
        paths.append(path)
    assert [len(path) for path in paths] == [8, 9, 8]
    assert len(paths[0] & paths[1]) == 8 and len(paths[0] & paths[2]) == 4  # 17 tokens alike


@pytest.mark.parametrize("data", [b"{}", b"\xff\xff", b"no ranks here", b"YQ== x\n"])
def test_a_file_that_is_no_tokenizer_is_said_so(tmp_path, data):
    pytest.importorskip("tokenizers", reason="needs the extra `text`")
    pytest.importorskip("tiktoken", reason="needs the extra `text`")
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(InputError, match="is no tokenizer"):
        load_encoder(path)


@pytest.mark.parametrize(("name", "data"), [("tokenizers", b"{}"), ("tiktoken", b"YQ== 0\n")])
def test_a_missing_package_is_named_with_the_way_to_get_it(tmp_path, monkeypatch, name, data):
    monkeypatch.setitem(sys.modules, name, None)
    path = tmp_path / "file"
    path.write_bytes(data)
    with pytest.raises(UsageError, match=f"needs the package {name}") as error:
        load_encoder(path)
    assert "agentctl[text]" in error.value.hint


def test_a_tokenizer_is_for_blocks_of_tokens(tmp_path):
    with pytest.raises(UsageError, match="not used for blocks of bytes"):
        IngestOptions(tokenizer=tmp_path / "t", blocks="bytes")
