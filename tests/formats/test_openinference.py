"""OpenInference spans: token counts, messages put together again, first tokens, and which spans are requests.

The samples of Envoy's AI Gateway have no times; the tests give them some.
"""

import json

import pytest

from agentctl.errors import BadRecordsError
from agentctl.formats.openinference import CARRIES
from agentctl.ingest.build import ingest

START = 1_755_133_856_000_000_000
NAMES = ("bad-request", "multiturn", "streaming-detailed-usage", "tools")


def attributes(plain: dict) -> list[dict]:
    kinds = {int: "intValue", str: "stringValue"}
    return [{"key": key, "value": {kinds[type(item)]: item}} for key, item in plain.items()]


def span(plain: dict | None = None, **changes) -> dict:
    named = {"openinference.span.kind": "LLM"} | (plain or {})
    return {
        "traceId": "aa", "spanId": "b1", "name": "ChatCompletion", "startTimeUnixNano": str(START),
        "endTimeUnixNano": str(START + 2_000_000_000), "attributes": attributes(named),
    } | changes  # fmt: skip


@pytest.fixture
def envoy(data) -> list[dict]:
    spans = [json.loads((data / f"openinference/envoy_chat-{name}.json").read_text()) for name in NAMES]
    for n, sample in enumerate(spans):
        sample["startTimeUnixNano"], sample["endTimeUnixNano"] = str(START + n), str(START + n + 10**9)
        for event in sample.get("events", ()):
            event["timeUnixNano"] = str(START + n + 250_000_000)
    return spans


def test_the_samples_of_envoy_say_what_was_asked_and_answered(read, envoy):
    log = read(envoy)
    assert log.report.format == "openinference" and log.report.time_origin == "absolute"
    assert log.column("prompt_tokens") == [None, 50, 12, 162]
    assert log.column("output_tokens") == [None, 526, 100, 287]
    assert log.column("cached_tokens") == [None, 0, 0, 0]
    assert log.column("reasoning_tokens") == [None, 512, 100, 256]
    assert log.column("max_tokens") == [None, None, 100, None]
    assert log.column("model") == [None, *["gpt-5-nano-2025-08-07"] * 3]
    assert log.column("finish_reason") == [None, "stop", "length", "tool_calls"]
    assert log.column("status") == ["error", "ok", "ok", "ok"]
    assert log.column("n_tool_calls_out") == [None, 0, 0, 1]
    assert log.column("ttft_s") == [None, None, 0.25, None]
    assert log.column("stream") == [None, None, True, None]
    assert log.column("join_id")[1] == "C4Gq6FIIOJIrXvd2A8RPuRIuAlHZr"


def test_a_span_without_times_cannot_be_placed(read, data, tmp_path):
    path = data / "openinference/envoy_chat-multiturn.json"
    log = read(path, json_document=True)
    assert log.report.format == "openinference"
    assert log.faults == [(1, "missing_field", "$.startTimeUnixNano")]


def test_messages_are_put_together_the_same_way_in_every_span(sent):
    first = {
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "hi",
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "f",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}",
        "llm.tools.0.tool.json_schema": '{"name": "f"}',
        "input.value": "another rendering",
    }
    later = {  # in another order, and more than ten messages
        f"llm.input_messages.{n}.message.{name}": text
        for n in range(10, -1, -1)
        for name, text in (("content", f"m{n}"), ("role", "user"))
    } | {name.replace("output_messages.0", "input_messages.1"): text for name, text in first.items()}
    del later["llm.input_messages.1.message.content"]
    one, two = sent([span(first), span(later)], "openinference")
    assert one.messages == two.messages[:1] == [b'{"role":"user","content":"hi"}']
    assert one.reply == two.messages[1]
    assert one.tools == b'[{"name": "f"}]'
    assert [json.loads(message)["content"] for message in two.messages[2:]] == [f"m{n}" for n in range(2, 11)]


def test_the_input_is_the_prompt_where_there_are_no_messages(sent):
    body = '{"messages": [{"role": "user", "content": "a"}], "tools": [1], "model": "m"}'
    (prompt,) = sent([span({"input.value": body})], "openinference")
    assert prompt.messages == [b'{"role": "user", "content": "a"}']
    assert prompt.tools == b"[1]"


@pytest.mark.parametrize("name", ["input.value", "llm.input_messages.0.message.content"])
def test_hidden_content_is_no_prompt(read, sent, name):
    assert sent([span({name: "__REDACTED__"})], "openinference") == [None]
    assert read([span({name: "__REDACTED__"})]).report.warnings == []


@pytest.mark.parametrize(
    ("prompt", "read_", "written", "whole"),
    [(130213, 128955, 1253, 130213), (5, 128955, 1253, 130213), (100, 30, 0, 100)],
)
def test_a_prompt_counts_cached_tokens_once(read, prompt, read_, written, whole):
    """openinference #1429: Anthropic's instrumentation left the cached tokens out of the prompt."""
    counts = {
        "llm.token_count.prompt": prompt,
        "llm.token_count.prompt_details.cache_read": read_,
        "llm.token_count.prompt_details.cache_write": written,
    }
    log = read([span(counts)])
    assert log.column("prompt_tokens") == [whole]
    assert (log.column("cached_tokens"), log.column("cache_write_tokens")) == ([read_], [written])


def test_only_calls_of_a_model_are_requests_and_the_rest_is_counted(read):
    kinds = ["CHAIN", "LLM", "TOOL", "AGENT", "EMBEDDING", "llm", "GUARDRAIL"]
    log = read([span({"openinference.span.kind": kind}, spanId=kind) for kind in kinds])
    assert log.column("request_id") == ["LLM", "llm"]
    assert log.report.dropped == {"other_span": 2, "tool_span": 1, "agent_span": 1, "embedding": 1}


def test_a_call_that_two_instrumentations_report_counts_once(read):
    log = read([span(spanId="in", parentSpanId="out"), span(spanId="out"), span(spanId="b9")])
    assert log.column("request_id") == ["in", "b9"]
    assert log.report.dropped == {"enclosing_span": 1}


def test_no_word_of_an_answer_becomes_an_id_or_a_reason(read):
    answers = ['{"id": "SECRET", "stop_reason": "SECRET"}', '{"object": "response", "stop_reason": "SECRET"}']
    log = read([span({"output.value": text}, spanId=str(n)) for n, text in enumerate(answers)])
    assert log.column("request_id") == ["0", "1"]
    assert log.column("finish_reason") == [None, None]


def test_a_session_and_a_user_are_those_of_the_span(read):
    log = read([span({"session.id": "s", "user.id": "u"}), span(spanId="b2")])
    assert log.column("session_id") == ["s", None]
    assert log.column("tenant") == ["u", None]


def test_a_failure_is_told_by_the_type_of_its_exception(read):
    def failed(type_: str) -> dict:
        told = {"exception.type": type_, "exception.message": "SECRET 429"}
        return span(
            status={"code": "STATUS_CODE_ERROR"},
            events=[{"name": "exception", "attributes": attributes(told)}],
        )

    log = read([failed("openai.BadRequestError"), failed("openai.APITimeoutError"), failed("CancelledError")])
    assert log.column("status") == ["error", "timeout", "aborted"]


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"events": [7]}, ("wrong_type", "$.events")),
        ({"events": [{"name": "First Token Stream Event", "timeUnixNano": "1"}]},
         ("out_of_range", "$.events")),
        ({"attributes": attributes({"openinference.span.kind": "LLM", "llm.token_count.prompt": -1})},
         ("out_of_range", "$.attributes.llm.token_count.prompt")),
    ],
)  # fmt: skip
def test_a_bad_span_costs_itself_only(read, changes, fault):
    log = read([span(), span(**changes), span(spanId="b3")])
    assert log.faults == [(2, *fault)]
    assert log.column("request_id") == ["b1", "b3"]


def test_no_text_of_a_bad_span_is_told(tmp_path, capsys):
    path = tmp_path / "log"
    path.write_text(json.dumps(span({"input.value": "SECRET", "llm.token_count.prompt": "SECRET"})) + "\n")
    with pytest.raises(BadRecordsError) as error:
        ingest([path], tmp_path / "a.trace")
    assert "SECRET" not in str(error.value) + (tmp_path / "a.quarantine.jsonl").read_text()


def test_it_carries_what_it_says(read, envoy):
    also = {"session.id": "s", "user.id": "u", "llm.token_count.prompt_details.cache_write": 1}
    failed = [{"name": "exception", "attributes": attributes({"exception.type": "429"})}]
    log = read([*envoy, span(also), span(events=failed)])
    assert log.carried == set(CARRIES)
