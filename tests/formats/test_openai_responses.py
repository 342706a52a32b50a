"""Bodies of the Responses API: the truth that they carry, prompts rebuilt, and what cannot be.

| column | carried | |
| --- | --- | --- |
| arrival, e2e, status, http_status, model | yes | all 358 |
| sessions, turn, attempt, parent, gap | yes | all 358; sessions by previous_response_id have no name |
| request_id | of the 344 that ended well | failures have no response |
| prompt, output, cached tokens | of the 344 | prompts of failures are estimated |
| n_messages, n_assistant | yes | all 358, rebuilt |
| block chains | yes | to 0.1 points of the exact reuse |
| finish_reason, tenant, ttft, queue, instance | no | what comes after an answer is seen by its calls |
"""

import json

import polars as pl
import pytest

from agentctl.formats import _responses
from agentctl.formats.base import Reading, ReadOptions, reader_named
from agentctl.ingest.build import ingest
from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Source

LOG = "formats/openai/responses.jsonl.gz"
EXACT_REUSE = 0.931912  # of the tokens, 16-token blocks, full ones, without errors


def call(response_id, given, previous=None, output=(), at=0.0, **request):
    """A line; `output` are items of the answer."""
    request |= {"input": given} | ({"previous_response_id": previous} if previous else {})
    response = {"id": response_id, "output": list(output), "usage": {"input_tokens": 100}}
    line = {"path": "/v1/responses", "ts": 1794474012.0 + at, "duration_ms": 100.0, "status": 200}
    return line | {"request": request, "response": response}


def user(text):
    return {"role": "user", "content": text}


def answer(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


CALLS_TOOL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "1", "output": "2"}


def prompts(tmp_path, calls):
    """What the reader hands over to be hashed: the messages of each prompt as JSON values, None unknown."""
    path = tmp_path / "log"
    path.write_text("\n".join(json.dumps(one, separators=(",", ":")) for one in calls))
    source = Source(str(path))
    reading = Reading(source, Quarantine(source.name), ReadOptions())
    found = [prompt for batch in reader_named("openai_responses").read(reading) for prompt in batch.prompts]
    return [prompt and [json.loads(b"[%s]" % piece) for piece in prompt.messages] for prompt in found]


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    from pathlib import Path

    log = Path(__file__).parents[1] / "data" / LOG
    return ingest([log], tmp_path_factory.mktemp("responses") / "a.trace").trace


def test_every_request_is_the_one_of_the_truth(dataset, truth):
    rows, origin = dataset.requests().to_dicts(), dataset.meta["time_origin_ns"] / 1e9
    names = {row["request_id"]: true["request_id"] for row, true in zip(rows, truth, strict=True)}
    sessions = {(row["session_id"], true["session_id"]) for row, true in zip(rows, truth, strict=True)}
    assert len(sessions) == len({session for session, _ in sessions}) == 24
    ended = {}  # (session, turn) -> end of the attempt before
    for row, true in zip(rows, truth, strict=True):
        assert row["arrival_s"] + origin == pytest.approx(true["arrival_unix_s"], abs=1.1e-3)
        assert row["e2e_s"] == pytest.approx(true["e2e_s"], abs=1e-6)
        same = ("status", "http_status", "model", "turn_index", "attempt")
        assert [row[name] for name in same] == [true[name] for name in same]
        assert row["n_messages"] == int(true["n_messages"])
        assert row["n_assistant"] == true["turn_index"]
        assert names.get(row["parent_request_id"], "") == (true["parent_request_id"] or "")
        if true["attempt"]:
            gap, kind = row["arrival_s"] - ended[true["session_id"], true["turn_index"]], "retry"
        else:
            gap, kind = true["gap_from_parent_end_s"], true["gap_kind"] or None
        assert row["gap_kind"] == kind
        assert row["gap_s"] == (gap if gap is None else pytest.approx(gap, abs=2.1e-3))
        ended[true["session_id"], true["turn_index"]] = row["end_s"]
        if true["status"] == "ok":
            assert row["request_id"] == "resp_" + true["request_id"]
            tokens = ("prompt_tokens", "output_tokens", "cached_tokens")
            wanted = ("input_tokens", "output_tokens", "cached_tokens")
            assert [row[name] for name in tokens] == [true[name] for name in wanted]


def test_sessions_are_named_by_response_chains_and_retries_by_messages(dataset):
    document = dataset.meta["sessions"]
    assert document["count"] == document["multi_turn"] == 24
    assert set(document["source"]) == {"response_chain", "message_chain"}
    assert document["source"]["message_chain"] == 3  # a first prompt that failed has no link
    assert document["turn_indicator"] == {
        "rows": 358, "equal_turn": 1.0, "first_turn_agreement": 1.0, "differ": {},
    }  # fmt: skip


def test_reuse_is_that_of_the_tokens(dataset):
    rows, parent = dataset.requests().filter(pl.col("status") != "error"), dataset.tree.parent
    seen, hits = set(), 0
    for tip in rows["tip_node"]:
        path = set()
        while tip:
            path.add(tip)
            tip = int(parent[tip])
        hits += 16 * len(path & seen)
        seen |= path
    assert hits / rows["prompt_tokens"].sum() == pytest.approx(EXACT_REUSE, abs=1e-3)


def test_a_prompt_is_everything_before_it_and_its_own_input(tmp_path):
    calls = [
        call("resp_1", "hi", output=[answer("yes?")]),
        call("resp_2", [user("count")], "resp_1", [CALLS_TOOL]),
        call("resp_3", [RESULT], "resp_2", [answer("2")]),
        call("resp_4", [user("other")], "resp_1", [answer("no")]),  # a branch
    ]
    start = [[user("hi")], [answer("yes?")]]
    counted = [*start, [user("count")]]
    assert prompts(tmp_path, calls) == [
        [[user("hi")]],
        counted,
        [*counted, [CALLS_TOOL], [RESULT]],
        [*start, [user("other")]],
    ]


def test_instructions_come_first_and_are_not_inherited(tmp_path):
    calls = [
        call("resp_1", "hi", output=[answer("yes?")], instructions="be kind"),
        call("resp_2", "bye", "resp_1"),
        call("resp_3", "bye", "resp_1", instructions="be rude"),
    ]
    rest = [[user("hi")], [answer("yes?")], [user("bye")]]
    assert prompts(tmp_path, calls) == [
        [[{"role": "system", "content": "be kind"}], [user("hi")]],
        rest,
        [[{"role": "system", "content": "be rude"}], *rest],
    ]


def test_what_the_model_wrote_in_one_go_is_one_message(tmp_path, read):
    thought = {"type": "reasoning", "encrypted_content": "xx"}
    calls = [call("resp_1", [user("hi"), thought, answer("let me"), CALLS_TOOL, RESULT])]
    assert prompts(tmp_path, calls) == [[[user("hi")], [thought, answer("let me"), CALLS_TOOL], [RESULT]]]
    (row,) = read(calls).rows
    assert (row["n_messages"], row["n_assistant"]) == (3, 1)


def test_a_client_that_sends_everything_again_is_found_by_its_messages(tmp_path):
    thought = {"type": "reasoning", "encrypted_content": "xx"}
    history = [user("hi"), thought, CALLS_TOOL]
    calls = [
        call("resp_1", [user("hi")], output=[thought, CALLS_TOOL], store=False),
        call("resp_2", [*history, RESULT], output=[answer("2")], at=5, store=False),
    ]
    log = tmp_path / "log"
    log.write_text("\n".join(json.dumps(one) for one in calls))
    trace = ingest([log], tmp_path / "a.trace").trace
    rows = trace.requests().to_dicts()
    assert [row["session_source"] for row in rows] == ["message_chain"] * 2
    assert [row["parent_request_id"] for row in rows] == [None, "resp_1"]
    assert trace.meta["sessions"]["message_links"]["answered"] == 1


def test_a_response_that_the_file_does_not_hold_leaves_the_prompt_unknown_not_shorter(tmp_path, read):
    calls = [call("resp_5", "hi", "resp_4"), call("resp_6", "more", "resp_5", at=5)]
    assert prompts(tmp_path, calls) == [None, None]
    log = read(calls)
    assert [row["n_assistant"] for row in log.rows] == [None, None]
    assert log.report.warnings == [
        "2 requests continue a response that is not in the same file above them: their prompts are unknown"
    ]
    lines = tmp_path / "orphans"
    lines.write_text("\n".join(json.dumps(one) for one in calls))
    rows = ingest([lines], tmp_path / "a.trace").trace.requests().to_dicts()
    assert [row["origin"] for row in rows] == ["orphan", "new"]
    assert [row["turn_index"] for row in rows] == [0, 1] and rows[0]["session_id"] == rows[1]["session_id"]
    assert [row["tip_node"] for row in rows] == [None, None]


def test_links_work_across_files_though_prompts_do_not(tmp_path):
    for k, one in enumerate([call("resp_1", "hi"), call("resp_2", "more", "resp_1", at=5)]):
        (tmp_path / f"{k}.jsonl").write_text(json.dumps(one))
    trace = ingest([tmp_path / "1.jsonl", tmp_path / "0.jsonl"], tmp_path / "a.trace").trace
    assert trace.requests()["parent_request_id"].to_list() == [None, "resp_1"]


def test_a_conversation_goes_on_from_its_last_response_and_is_a_session(tmp_path, read):
    calls = [
        call("resp_1", "hi", output=[answer("yes?")], conversation={"id": "conv_1"}),
        call("resp_2", "bye", conversation="conv_1"),
        call("resp_3", "hi", conversation="conv_2"),
    ]
    assert prompts(tmp_path, calls) == [
        [[user("hi")]],
        [[user("hi")], [answer("yes?")], [user("bye")]],
        [[user("hi")]],
    ]
    assert read(calls).column("session_id") == ["conv_1", "conv_1", "conv_2"]


def test_old_text_is_forgotten_beyond_the_bound_and_counted(tmp_path, read, monkeypatch):
    monkeypatch.setattr(_responses, "MAX_KEPT_BYTES", 5_000)
    calls = [call(f"resp_{k}", "x" * 1_000) for k in range(10)]
    calls += [call("resp_a", "old", "resp_0"), call("resp_b", "new", "resp_9")]
    found = prompts(tmp_path, calls)
    assert found[10] is None and len(found[11]) == 2
    assert len(read(calls).report.warnings) == 1


def test_a_chain_takes_its_text_along_while_it_is_continued(tmp_path, monkeypatch):
    monkeypatch.setattr(_responses, "MAX_KEPT_BYTES", 5_000)
    calls = [call("resp_0", "x" * 1_000)]
    for k in range(1, 20):
        calls += [call(f"resp_{k}", "y", f"resp_{k - 1}"), call(f"other_{k}", "z" * 1_000)]
    assert all(prompts(tmp_path, calls))


def test_the_batch_api_gives_the_same_row(read):
    one = call("resp_1", "hi", model="m")
    body = one["response"] | {"created_at": 1794474012}
    batch = {
        "id": "batch_req_1", "custom_id": "mine", "url": "/v1/responses", "body": one["request"],
        "response": {"status_code": 200, "request_id": "x", "body": body}, "error": None,
    }  # fmt: skip
    log = read([batch])
    assert log.report.format == "openai_responses"
    (row,) = log.rows
    names = ("request_id", "link", "join_id", "model", "status", "http_status", "prompt_tokens", "arrival_ns")
    assert [row[name] for name in names] == [
        "mine", "resp_1", "1", "m", "ok", 200, 100, 1794474012_000000000,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"status": 499, "response": None}, "aborted"),
        ({"status": 429, "response": None}, "rejected"),
        ({"response": {"id": "resp_1", "status": "failed"}}, "error"),
        ({"response": {"id": "resp_1", "status": "cancelled"}}, "aborted"),
        ({"status": None, "error": {"message": "no"}}, "error"),
        ({"response": {"id": "resp_1", "status": "incomplete"}}, "ok"),
    ],
)
def test_failures_are_known_by_code_status_or_error(read, changes, status):
    assert read([call("resp_1", "hi") | changes]).rows[0]["status"] == status


def test_calls_of_other_apis_are_left_out_and_counted(read):
    log = read([call("resp_1", "hi"), call("resp_2", "hi"), call("e", "text") | {"path": "/v1/embeddings"}])
    assert len(log.rows) == 2 and log.report.dropped == {"other_api": 1}


@pytest.mark.parametrize("given", [5, {"a": 1}, True])
def test_an_input_that_is_neither_text_nor_items_is_set_aside(read, given):
    log = read([call("resp_1", "hi"), call("resp_2", given)])
    assert log.faults == [(2, "wrong_type", "$.request.input")]


@pytest.mark.parametrize("item", [5, None, "text", ["a"], {"type": 5}, {"type": None, "role": ["a"]}])
def test_odd_items_are_pieces_of_text(tmp_path, item):
    assert prompts(tmp_path, [call("resp_1", [item])]) == [[[item]]]
