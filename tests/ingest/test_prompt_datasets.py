"""Whole datasets from prompts: private, the same bytes for the same logs, and comparable under one salt."""

import gzip
import hashlib
import json
import random
import sys

import polars as pl
import pytest
from oracles import chained
from oracles.tau_bench_messages import FILE

from agentctl.engines.forked import Spawned
from agentctl.errors import AgentctlError
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.ingest.hashing import BLOCK, MESSAGE

MARK = "Canary-7f3a"
FILES = ("requests.parquet", "prefix_nodes.parquet", "dataset.json")


def calls(n: int = 40, seed: int = 0) -> list[dict]:
    """Four conversations of two models, one call of which failed without a count."""
    rng = random.Random(seed)
    live = [[{"role": "system", "content": f"{MARK} rules " * 20}] for _ in range(4)]
    found = []
    for k in range(n):
        at = rng.randrange(4)
        live[at].append({"role": "user", "content": f"{MARK} {k} " + "x" * rng.randrange(300)})
        body = {"model": f"m{at % 2}", "messages": list(live[at]), "tools": [{"name": f"{MARK}-tool"}]}
        size = len(json.dumps(body)) // 4
        usage = None if k == 11 else {"prompt_tokens": size, "completion_tokens": 5}
        answer = {
            "choices": [{"message": {"role": "assistant", "content": f"{MARK} answer"}}],
            "usage": usage,
        }
        found.append(
            {"id": f"r{k}", "timestamp": 1794474012 + 10 * k, "latency_sec": 1.5, **body, "response": answer}
        )
        live[at].append(answer["choices"][0]["message"])
    return found


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def built(folder, files, engine=None, **options):
    trace = ingest(files, folder, IngestOptions(**options), engine=engine).trace
    return {name: (trace.path / name).read_bytes() for name in FILES}


@pytest.mark.parametrize("salted", [False, True])
def test_the_dataset_depends_neither_on_the_run_nor_on_the_order_of_files_nor_on_workers(tmp_path, salted):
    rows = calls()
    one, two = write(tmp_path / "1.jsonl", rows[0::2]), write(tmp_path / "2.jsonl", rows[1::2])
    options = {"salt": tmp_path / "salt"} if salted else {}
    first = built(tmp_path / "a.trace", [one, two], **options)
    assert built(tmp_path / "b.trace", [two, one], **options) == first
    assert built(tmp_path / "c.trace", [one, two], Spawned(2), **options) == first


def test_the_rows_of_a_file_may_stand_in_any_order(tmp_path):
    rows = calls()
    shuffled = random.Random(1).sample(rows, len(rows))
    parts = []
    for name, lines in (("a", rows), ("b", shuffled)):
        log = write(tmp_path / "log.jsonl", lines)
        trace = ingest([log], tmp_path / f"{name}.trace", IngestOptions()).trace
        table = trace.requests().drop("source_row", "source_file")
        parts.append((table, (trace.path / FILES[1]).read_bytes()))
    assert parts[0][0].equals(parts[1][0]) and parts[0][1] == parts[1][1]


def hashes(trace) -> set[int]:
    return set(pl.read_parquet(trace.path / FILES[1])["hash"])


def test_salts_decide_the_hashes_and_nothing_else(tmp_path):
    log = write(tmp_path / "log.jsonl", calls())
    runs = {}
    for name, salt in (("a", "one"), ("b", "two"), ("c", "one"), ("d", None)):
        options = IngestOptions(salt=salt and tmp_path / salt)
        runs[name] = ingest([log], tmp_path / f"{name}.trace", options).trace
    assert hashes(runs["a"]) == hashes(runs["c"])
    assert not hashes(runs["a"]) & hashes(runs["b"]) and not hashes(runs["a"]) & hashes(runs["d"])
    for name in "bcd":
        assert runs[name].requests().equals(runs["a"].requests())
    ids = [runs[name].meta["hash"]["salt"] for name in "abcd"]
    assert ids[0] == ids[2] != ids[1] and ids[3] == "ephemeral"
    assert (tmp_path / "one").read_bytes().hex() not in (runs["a"].path / FILES[2]).read_text()


def test_what_made_the_hashes_is_stated(tmp_path):
    log = write(tmp_path / "log.jsonl", calls())
    options = IngestOptions(tools_order="after-system", blocks="message", block_tokens=32)
    trace = ingest([log], tmp_path / "a.trace", options).trace
    assert trace.meta["hash"] == {
        "kind": "message", "scope": "global", "algorithm": "BLAKE2b-64, keyed, chained",
        "salt": "ephemeral", "tools": "after-system",
    }  # fmt: skip
    assert trace.meta["block_tokens"] == 32
    rows = trace.requests()
    assert set(rows["hash_kind"]) == {"message"}
    assert (rows["n_blocks"] == rows["prompt_tokens"] // 32).all()
    assert (rows["tail_tokens"] == rows["prompt_tokens"] % 32).all()


def test_models_share_no_block_and_a_missing_count_is_estimated(tmp_path):
    trace = ingest([write(tmp_path / "log.jsonl", calls())], tmp_path / "a.trace").trace
    parent, used = trace.tree.parent, {"m0": set(), "m1": set()}
    for model, tip in trace.requests().select("model", "tip_node").iter_rows():
        while tip:
            used[model].add(tip)
            tip = int(parent[tip])
    assert used["m0"] and used["m1"] and not used["m0"] & used["m1"]
    estimated = trace.requests().filter(pl.col("token_source") == "estimated")
    assert estimated["request_id"].to_list() == ["r11"]
    size = len(json.dumps({key: calls()[11][key] for key in ("model", "messages", "tools")})) // 4
    assert estimated["prompt_tokens"][0] == pytest.approx(size, rel=0.1)


@pytest.mark.parametrize("options", [{}, {"blocks": "message"}, {"salt": "salt"}])
def test_no_text_and_no_unsalted_hash_of_it_is_in_any_byte(tmp_path, options):
    rows = calls()
    rows.append({**rows[0], "id": "bad", "timestamp": MARK, "latency_sec": None})
    log = write(tmp_path / "log.jsonl", rows)
    options = {key: tmp_path / value if key == "salt" else value for key, value in options.items()}
    trace = ingest([log], tmp_path / "a.trace", IngestOptions(max_bad=1, **options)).trace
    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file() and path != log)
    written += str(trace.requests().to_dicts()).encode()  # columns are compressed
    needles = {MARK.encode(), MARK.encode().hex().encode()}
    for text in {piece for row in rows for piece in pieces(row)}:
        for name in ("md5", "sha1", "sha256", "blake2b"):
            full = hashlib.new(name, text).digest()
            for digest in (full, hashlib.blake2b(text, digest_size=8).digest()):
                needles |= {digest[:8], digest[:8][::-1], digest.hex()[:16].encode()}
    needles |= {chain.to_bytes(8, order) for chain in unsalted(rows) for order in ("little", "big")}
    stored = {value.to_bytes(8, sys.byteorder) for value in hashes(trace)}
    assert len(stored) == trace.tree.parent.size - 1
    assert not stored & needles
    assert not [needle for needle in needles if needle in written]


def pieces(row) -> set[bytes]:
    texts = [json.dumps(message).encode() for message in row["messages"]] + [
        json.dumps(row["tools"]).encode()
    ]
    plain = [message["content"].encode() for message in row["messages"]]
    return {*texts, *plain, *(text[k : k + 64] for text in texts for k in range(0, len(text), 64))}


def unsalted(rows) -> set[int]:
    """Chains as an attacker without the salt would make them."""
    found: set[int] = set()
    for row in rows[:10]:
        texts = [json.dumps(row["tools"]).encode(), *(json.dumps(m).encode() for m in row["messages"])]
        for person in (BLOCK, MESSAGE, b""):
            for key in (b"", bytes(32)):
                parent = 0
                for piece in chained.cut(texts, 64):
                    parent = chained.digest(key, person, parent.to_bytes(8, "little") + piece)
                    found.add(parent)
    return found


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"blocks": "token"}, "needs a tokenizer"),
        ({"tokenizer": "no-such-file"}, "cannot be read"),
        ({"salt": "a.trace/salt"}, "inside the dataset"),
    ],
)
def test_what_cannot_be_hashed_as_asked_is_said_at_once(tmp_path, options, words):
    log = write(tmp_path / "log.jsonl", calls(3))
    given = {key: value if key == "blocks" else tmp_path / value for key, value in options.items()}
    with pytest.raises(AgentctlError, match=words):
        ingest([log], tmp_path / "a.trace", IngestOptions(**given))
    assert not (tmp_path / "a.trace").exists()


EXACT = 0.925994  # reuse of the 1,229 tau-bench calls: cl100k_base over role and content, full blocks of 16


def test_bytes_give_the_reuse_of_tokens_to_a_point_even_where_no_count_is_logged(tmp_path):
    rows = []
    for session, conversation in enumerate(json.loads(gzip.decompress(FILE.read_bytes()))):
        start, messages = random.Random(session).random() * 1000, conversation["traj"]
        for k, message in enumerate(messages):
            if message["role"] == "assistant":
                call = {"id": f"{session}-{k}", "timestamp": 1794474012 + start + 10 * k}
                rows.append(
                    {**call, "messages": messages[:k], "response": {"choices": [{"message": message}]}}
                )
    trace = ingest([write(tmp_path / "log.jsonl", rows)], tmp_path / "a.trace").trace
    seen, hit = set(), 0
    table = trace.requests()
    for tip in table["tip_node"]:
        path = set()
        while tip:
            path.add(tip)
            tip = int(trace.tree.parent[tip])
        hit += 16 * len(path & seen)
        seen |= path
    assert hit / table["prompt_tokens"].sum() == pytest.approx(EXACT, abs=0.01)
