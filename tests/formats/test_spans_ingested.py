"""The whole of ingest on span exports: sessions, turns, attempts, parents, gaps and messages equal the truth.

Both renderings hold every request with its messages, so that nothing of this is lost. The gap of a retry
counts from the attempt that failed; the truth counts it from the parent.
"""

import gzip
import re

import pytest

from agentctl.ingest.build import IngestOptions, ingest

COLUMNS = [
    "request_id", "session_id", "session_source", "turn_index", "attempt", "parent_request_id", "gap_s",
    "gap_kind", "end_s", "arrival_s", "n_messages", "n_assistant", "tip_node",
    "hash_kind",
]  # fmt: skip
LANGFUSE, OTLP = "langfuse/observations.jsonl.gz", "otel/genai_client_spans.otlp.jsonl.gz"


def id_in_log(name: str, request_id: str) -> str:
    return request_id[:16] if name == LANGFUSE else "chatcmpl-" + request_id


@pytest.fixture(scope="module")
def ingested(tmp_path_factory):
    """ingested(path) -> rows by request id"""

    def _ingested(path) -> dict[str, dict]:
        folder = tmp_path_factory.mktemp("spans") / "a.trace"
        rows = ingest([path], folder).trace.requests(COLUMNS)
        return {row["request_id"]: row for row in rows.iter_rows(named=True)}

    return _ingested


def check_turns(rows: dict[str, dict], name: str, truth: list[dict]) -> None:
    """Everything but the names of the sessions."""
    assert len(rows) == len(truth)
    true_of = {id_in_log(name, true["request_id"]): true for true in truth}
    failed_before = {}  # (session, turn) -> end of the attempt before
    for key in sorted(rows, key=lambda key: true_of[key]["arrival_unix_s"]):
        row, true = rows[key], true_of[key]
        assert row["turn_index"] == true["turn_index"]
        assert row["attempt"] == true["attempt"]
        parent = true["parent_request_id"]
        assert row["parent_request_id"] == (id_in_log(name, parent) if parent else None)
        turn = (true["session_id"], true["turn_index"])
        if true["attempt"]:
            assert row["gap_kind"] == "retry"
            assert row["gap_s"] == pytest.approx(row["arrival_s"] - failed_before[turn], abs=1e-6)
        else:
            assert row["gap_kind"] == (true["gap_kind"] or None)
            gap = true["gap_from_parent_end_s"]
            assert row["gap_s"] == (None if gap is None else pytest.approx(gap, abs=2.1e-3))
        failed_before[turn] = row["end_s"]


@pytest.mark.parametrize("name", [LANGFUSE, OTLP])
def test_turns_attempts_parents_and_gaps_are_the_truth(ingested, data, truth, name):
    rows = ingested(data / "formats" / name)
    check_turns(rows, name, truth)
    for true in truth:
        row = rows[id_in_log(name, true["request_id"])]
        assert row["session_id"] == true["session_id"] and row["session_source"] == "explicit"
        assert row["n_messages"] == int(true["n_messages"])
        assert row["tip_node"] is not None and row["hash_kind"] == "bytes"


SESSION_ID = {
    LANGFUSE: rb'"sessionId": ?"[^"]*",',
    OTLP: rb'\{"key": ?"gen_ai.conversation.id", ?"value": ?\{"stringValue": ?"[^"]*"\}\},',
}


@pytest.mark.parametrize("name", [LANGFUSE, OTLP])
def test_without_session_ids_the_messages_give_the_same_sessions(ingested, data, truth, tmp_path, name):
    with gzip.open(data / "formats" / name) as file:
        text, n = re.subn(SESSION_ID[name], b"", file.read())
    assert n == len(truth)
    (tmp_path / "log.jsonl").write_bytes(text)
    rows = ingested(tmp_path / "log.jsonl")
    check_turns(rows, name, truth)
    pairs = {(rows[id_in_log(name, t["request_id"])]["session_id"], t["session_id"]) for t in truth}
    assert len(pairs) == len({t["session_id"] for t in truth})
    assert {row["session_source"] for row in rows.values()} == {"message_chain"}


@pytest.mark.parametrize(("name", "format"), [(LANGFUSE, "langfuse"), (OTLP, "otlp_genai")])
def test_an_answer_is_byte_for_byte_the_message_that_follows_in_the_next_prompt(
    sent, read, data, truth, name, format
):
    ids = read(data / "formats" / name).column("request_id")
    prompts = dict(zip(ids, sent(data / "formats" / name, format), strict=True))
    for true in truth:
        if true["parent_request_id"]:
            parent = prompts[id_in_log(name, true["parent_request_id"])]
            child = prompts[id_in_log(name, true["request_id"])]
            n = len(parent.messages)
            assert child.messages[:n] == parent.messages
            assert child.messages[n] == parent.reply


def test_client_and_engine_spans_of_one_request_are_joined_by_the_response_id(data, truth, tmp_path):
    logs = [data / "formats" / OTLP, data / "formats/vllm/vllm_otel_spans.otlp.jsonl.gz"]
    rows = ingest(logs, tmp_path / "a.trace", IngestOptions(join="x-request-id")).trace.requests(
        ["request_id", "session_id", "queue_s", "cached_tokens"]
    )
    assert len(rows) == len(truth)
    for row, true in zip(rows.iter_rows(named=True), truth, strict=True):
        assert row["session_id"] == true["session_id"]
        if true["status"] == "ok":
            assert row["queue_s"] == pytest.approx(true["queue_s"], abs=1e-6)
            assert row["cached_tokens"] == int(true["cached_tokens"])
