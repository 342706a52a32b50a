"""Sessions of whole logs with known answers: from messages alone, with ids that are none, in the report."""

import gzip
import json
import random
from pathlib import Path

import pytest
from oracles.renderings import read_truth
from oracles.tau_bench_messages import interleaved_calls

from agentctl.formats import openai_chat
from agentctl.ingest.build import ingest

DATA = Path(__file__).parents[1] / "data"


def chat_log(path, calls, **more):
    """The calls as chat bodies, one a line."""
    with gzip.open(path, "wb", compresslevel=1) as file:
        for k, call in enumerate(calls):
            messages = ",".join(message.removeprefix("a") for message in call.messages)
            line = {"request_id": f"call-{k}", "timestamp": 1794474012 + call.arrival, "status_code": 200}
            line |= {"end_timestamp": 1794474012 + call.end} | {name: make(k) for name, make in more.items()}
            body = '"request":{"model":"gpt-4o","messages":[' + messages + "]}"
            reply = (call.reply or "").removeprefix("a")
            answer = '"response":{"choices":[{"message":' + reply + "}]}" if reply else '"response":{}'
            file.write(f"{json.dumps(line)[:-1]},{body},{answer}}}\n".encode())
    return path


@pytest.mark.parametrize("with_replies", [True, False])
def test_interleaved_tau_bench_calls_are_put_together_from_their_messages(tmp_path, with_replies):
    calls = interleaved_calls(seed=7, with_replies=with_replies)
    fake = random.Random(7)
    log = chat_log(tmp_path / "log.gz", calls, session_id=lambda k: f"{fake.getrandbits(64):x}")
    report = ingest([log], tmp_path / "a.trace")
    sessions, rows = report.document["sessions"], report.trace.requests().to_dicts()
    assert sessions["id_test"]["accepted"] is False  # a random id on every row, as LiteLLM writes
    assert sessions["source"] == {"message_chain": 1_229}
    assert (sessions["count"], sessions["multi_turn"]) == (100, 100)
    row_of = {call.truth: f"call-{k}" for k, call in enumerate(calls)}
    exact = [
        row["parent_request_id"] == row_of.get((call.truth[0], call.truth[1] - 1))
        for row, call in zip(rows, calls, strict=True)
    ]
    assert sum(exact) >= 0.999 * len(calls)
    assert [row["turn_index"] for row in rows] == [call.truth[1] for call in calls]
    assert sessions["turn_indicator"] == {
        "rows": 1_229, "equal_turn": 1.0, "first_turn_agreement": 1.0, "differ": {},
    }  # fmt: skip
    facts = {fact.label: fact.value for section in report.sections for fact in section.facts}
    assert facts["session ids of the log"].startswith("not used: 100.0% of the ids have one request")
    how = "answered" if with_replies else "extended"
    assert facts["message chains"] == f"start 100, {how} 1,129"
    assert facts["turn = assistant messages"] == 1.0


def test_the_six_calls_of_an_openhands_session_are_one(tmp_path):
    logs = sorted((DATA / "openhands").glob("*.json.gz"))
    trace = ingest(logs, tmp_path / "a.trace").trace
    rows = trace.requests().to_dicts()
    assert len(logs) == len(rows) == 6
    assert trace.meta["sessions"]["count"] == 1
    assert [row["turn_index"] for row in rows] == list(range(6))
    assert [row["n_assistant"] for row in rows] == list(range(6))
    assert [row["parent_request_id"] for row in rows] == [None, *(row["request_id"] for row in rows[:-1])]


def test_litellms_default_ids_are_rejected_where_messages_show_the_turns(tmp_path):
    log = DATA / "formats/litellm/spendlogs_with_messages.jsonl.gz"
    trace = ingest([log], tmp_path / "a.trace").trace
    sessions, rows, truth = trace.meta["sessions"], trace.requests().to_dicts(), read_truth()
    assert sessions["id_test"]["accepted"] is False and sessions["source"] == {"message_chain": 358}
    pairs = {(row["session_id"], true["session_id"]) for row, true in zip(rows, truth, strict=True)}
    assert len(pairs) == len({session for session, _ in pairs}) == 24
    assert [row["turn_index"] for row in rows] == [true["turn_index"] for true in truth]
    assert [row["attempt"] for row in rows] == [true["attempt"] for true in truth]


def test_litellms_default_ids_without_messages_cannot_be_tested_and_this_is_said(tmp_path):
    log = DATA / "formats/litellm/LiteLLM_SpendLogs_default_session_ids.csv.gz"
    trace = ingest([log], tmp_path / "a.trace").trace
    assert trace.meta["sessions"]["count"] == 358
    assert set(trace.requests()["session_conf"]) == {0.5}
    (warning,) = trace.meta["warnings"]
    assert warning.startswith("100.0% of the log's session ids have one request") and "join" in warning


def test_ids_that_came_in_a_header_are_said_to(tmp_path, monkeypatch):
    original = openai_chat._batch

    def with_header(reading, columns, calls, clocks):
        columns.put("session_header", [True] * len(calls))
        return original(reading, columns, calls, clocks)

    monkeypatch.setattr(openai_chat, "_batch", with_header)
    log = chat_log(tmp_path / "log.gz", interleaved_calls(7)[:40], session_id=lambda k: f"s{k % 2}")
    rows = ingest([log], tmp_path / "a.trace").trace.requests()
    assert set(rows["session_source"]) == {"header"} and set(rows["session_id"]) == {"s0", "s1"}


def test_prompts_of_one_rendered_text_each_are_put_together_from_their_blocks(tmp_path):
    text, lines = "You are an agent. " * 40, []
    for turn in range(4):
        text += f"user asks something about item {turn}. the assistant answers at length, {turn} times. " * 4
        request = {"model": "m", "messages": [{"role": "user", "content": text}]}
        usage = {"prompt_tokens": len(text) // 4 - 4, "completion_tokens": 20}
        lines.append({"timestamp": 1794474012 + 10 * turn, "request": request, "response": {"usage": usage}})
    log = tmp_path / "log"
    log.write_text("\n".join(json.dumps(line) for line in lines))
    trace = ingest([log], tmp_path / "a.trace").trace
    assert trace.meta["sessions"]["source"] == {"block_chain": 4}
    assert trace.meta["sessions"]["count"] == 1 and trace.meta["sessions"]["band"] != []
    assert trace.requests()["turn_index"].to_list() == [0, 1, 2, 3]
