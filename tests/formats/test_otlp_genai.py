"""GenAI spans: what their attributes say under current and old names, and which spans are requests.

Of the truth these spans carry everything but placement, queue and HTTP status; tokens, finish reason and TTFT
only for requests that did not fail.
"""

import json

import pytest

from agentctl.formats.otlp_genai import CARRIES
from agentctl.ingest.build import ingest

LOG = "formats/otel/genai_client_spans.otlp.jsonl.gz"


def value(plain) -> dict:
    """An AnyValue."""
    if isinstance(plain, bool):
        return {"boolValue": plain}
    if isinstance(plain, int):
        return {"intValue": str(plain)}
    if isinstance(plain, float):
        return {"doubleValue": plain}
    if isinstance(plain, list):
        return {"arrayValue": {"values": [value(item) for item in plain]}}
    if isinstance(plain, dict):
        return {"kvlistValue": {"values": attributes(plain)}}
    return {"stringValue": plain}


def attributes(plain: dict) -> list[dict]:
    return [{"key": key, "value": value(item)} for key, item in plain.items()]


def span(plain: dict | None = None, **changes) -> dict:
    named = {"gen_ai.operation.name": "chat"} | (plain or {})
    return {
        "traceId": "aa", "spanId": "b1", "name": "chat m", "startTimeUnixNano": "1794474012043457024",
        "endTimeUnixNano": "1794474013043457024", "attributes": attributes(named),
    } | changes  # fmt: skip


def export(*spans: dict, scope: str = "s") -> dict:
    return {"resourceSpans": [{"scopeSpans": [{"scope": {"name": scope}, "spans": list(spans)}]}]}


def test_the_rendering_gives_the_truth_that_it_carries(read, data, truth):
    log = read(data / LOG)
    assert log.report.format == "otlp_genai" and log.report.time_origin == "absolute"
    assert log.report.warnings == [] and log.report.dropped == {}
    ordered = sorted(log.rows, key=lambda row: row["arrival_ns"])  # spans are written when they end
    for got, true in zip(ordered, truth, strict=True):
        is_ok = true["status"] == "ok"
        assert got["request_id"] == "chatcmpl-" + true["request_id"]
        assert got["join_id"] == true["request_id"]
        for column in ("status", "tenant", "model", "session_id"):
            assert got[column] == true[column]
        assert got["arrival_ns"] / 1e9 == pytest.approx(true["arrival_unix_s"], abs=1e-6)
        assert got["e2e_s"] == pytest.approx(true["e2e_s"], abs=2e-6)
        for column, name in (
            ("prompt_tokens", "input_tokens"),
            ("cached_tokens", "cached_tokens"),
            ("output_tokens", "output_tokens"),
        ):
            assert got[column] == (int(true[name]) if is_ok else None)
        assert got["finish_reason"] == (true["finish_reason"] if is_ok else None)
        if is_ok:
            assert got["ttft_s"] == pytest.approx(true["ttft_s"], abs=1e-6)
            assert got["stream"] is True
            assert got["n_tool_calls_out"] == int(true["finish_reason"] == "tool_calls")
        else:
            assert got["ttft_s"] is got["stream"] is got["n_tool_calls_out"] is None


def test_every_request_hands_over_its_messages(sent, read, data, truth):
    true_of = {true["request_id"]: true for true in truth}
    in_order = [true_of[join_id] for join_id in read(data / LOG).column("join_id")]
    prompts = sent(data / LOG, "otlp_genai")
    assert [len(prompt.messages) for prompt in prompts] == [int(true["n_messages"]) for true in in_order]
    assert all(json.loads(prompt.messages[0])["role"] == "system" for prompt in prompts)
    assert [prompt.reply is None for prompt in prompts] == [true["status"] != "ok" for true in in_order]


def test_the_sessions_of_the_log_become_those_of_the_dataset(data, truth, tmp_path):
    trace = ingest([data / LOG], tmp_path / "a.trace").trace
    rows = trace.requests(["session_id", "session_source"])
    assert rows["session_id"].to_list() == [true["session_id"] for true in truth]
    assert set(rows["session_source"].to_list()) == {"explicit"}


NEW = {
    "gen_ai.provider.name": "openai", "gen_ai.response.model": "m-1", "gen_ai.request.model": "m",
    "gen_ai.response.id": "chatcmpl-x", "gen_ai.conversation.id": "c", "user.id": "u",
    "gen_ai.usage.input_tokens": 100, "gen_ai.usage.output_tokens": 20,
    "gen_ai.usage.cache_read.input_tokens": 64, "gen_ai.usage.cache_creation.input_tokens": 16,
    "gen_ai.usage.reasoning.output_tokens": 8, "gen_ai.request.max_tokens": 500,
    "gen_ai.request.stream": True,
    "gen_ai.response.finish_reasons": ["tool_calls"], "gen_ai.response.time_to_first_chunk": 0.25,
}  # fmt: skip
OLD = {
    "gen_ai.system": "openai", "gen_ai.response.model": "m-1", "gen_ai.response.id": "chatcmpl-x",
    "session.id": "c", "enduser.id": "u", "gen_ai.usage.prompt_tokens": 100,
    "gen_ai.usage.completion_tokens": 20, "gen_ai.usage.cache_read_input_tokens": 64,
    "gen_ai.usage.cache_creation_input_tokens": 16, "gen_ai.usage.details.reasoning_tokens": 8,
    "gen_ai.request.max_tokens": 500, "llm.is_streaming": True,
    "gen_ai.response.finish_reason": "tool_calls", "gen_ai.server.time_to_first_token": 0.25,
}  # fmt: skip


def test_old_names_say_the_same_as_current_ones(read):
    log = read([export(span(NEW)), export(span(OLD))])
    first, second = ({**row, "source_row": 0} for row in log.rows)
    assert first == second
    assert first["prompt_tokens"] == 100 and first["cache_write_tokens"] == 16 and first["ttft_s"] == 0.25


@pytest.mark.parametrize(
    ("usage", "prompt"),
    [
        # langfuse #12306: the input holds 5 + 128,955 + 1,253 and is not to become 260,421
        (
            {"input_tokens": 130213, "cache_read.input_tokens": 128955, "cache_creation.input_tokens": 1253},
            130213,
        ),
        ({"input_tokens": 130213, "cache_read_tokens": 128955, "cache_write_tokens": 1253}, 130213),
        # the same call from an instrumentation that passes Anthropic's own numbers on
        ({"input_tokens": 5, "cache_read_input_tokens": 128955, "cache_creation_input_tokens": 1253}, 130213),
        # openllmetry #4449: Bedrock's Converse, whose total leaves the cache out as well
        (
            {"input_tokens": 12, "cache_read.input_tokens": 1000, "output_tokens": 40, "total_tokens": 52},
            1012,
        ),
        # beside the input by its total
        ({"input_tokens": 50, "cache_read.input_tokens": 30, "output_tokens": 5, "total_tokens": 85}, 80),
        ({"input_tokens": 50, "cache_read.input_tokens": 50}, 50),
        ({"input_tokens": 50}, 50),
        ({"cache_read.input_tokens": 50}, None),
    ],
)
def test_a_prompt_counts_cached_tokens_once(read, usage, prompt):
    log = read([export(span({f"gen_ai.usage.{name}": count for name, count in usage.items()}))])
    assert log.column("prompt_tokens") == [prompt]


def test_one_instrumentation_of_one_provider_counts_in_one_way(read):
    anthropic, openai = {"gen_ai.provider.name": "anthropic"}, {"gen_ai.provider.name": "openai"}
    unclear = {"gen_ai.usage.input_tokens": 100, "gen_ai.usage.cache_read.input_tokens": 30}
    apart = {"gen_ai.usage.input_tokens": 9, "gen_ai.usage.cache_read.input_tokens": 30}
    log = read(
        [
            export(span(unclear | anthropic), span(apart | anthropic), span(unclear | openai)),
            export(span(unclear | anthropic), scope="other"),
        ]
    )
    assert log.column("prompt_tokens") == [130, 39, 100, 100]
    assert log.report.warnings == [
        "2 of 4 requests with cached tokens leave them out of the input count, although the convention puts "
        "them in: they are added"
    ]


def test_only_calls_of_a_model_are_requests_and_the_rest_is_counted(read):
    operations = ["chat", "embeddings", "execute_tool", "invoke_agent", "generate_content", "invoke_agent"]
    spans = [span({"gen_ai.operation.name": operation}, spanId=operation) for operation in operations]
    nameless = {"spanId": "http", "startTimeUnixNano": "1", "attributes": attributes({"http.method": "POST"})}
    log = read([export(*spans, nameless), export(nameless), export(span(spanId="last"))], format="otlp_genai")
    assert log.column("request_id") == ["chat", "generate_content", "last"]
    assert log.report.dropped == {"embedding": 1, "tool_span": 1, "agent_span": 2, "other_span": 2}
    assert log.report.n_lines == log.report.n_record_lines == 3


def test_a_call_that_two_instrumentations_report_counts_once(read):
    outer, inner = span(spanId="out"), span(spanId="in", parentSpanId="out")
    log = read([export(inner, span(spanId="b9")), export(outer)])
    assert log.column("request_id") == ["in", "b9"]
    assert log.report.dropped == {"enclosing_span": 1}
    assert log.report.n_lines == log.report.n_record_lines == 2


def test_spans_of_one_call_with_its_response_id_are_duplicates_and_the_first_counts(tmp_path):
    same = {"gen_ai.response.id": "r"}
    client = span(same | {"gen_ai.conversation.id": "c"}, spanId="out")
    gateway = span(same, spanId="in", parentSpanId="out", startTimeUnixNano="1794474012043557024")
    (tmp_path / "log").write_text(json.dumps(export(gateway, client)) + "\n")
    report = ingest([tmp_path / "log"], tmp_path / "a.trace")
    rows = report.trace.requests(["request_id", "session_id"])
    assert rows.rows() == [("r", "c")]


def test_a_parent_that_had_ended_encloses_nothing(read):
    later = {"startTimeUnixNano": "1794474013043457024", "endTimeUnixNano": "1794474014043457024"}
    log = read([export(span(spanId="a"), span(spanId="b", parentSpanId="a", **later))])
    assert log.column("request_id") == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "code", "status", "http_status"),
    [
        ("500", None, "error", 500),
        ("HTTP 499", None, "aborted", 499),
        ("cancelled", None, "aborted", None),
        ("asyncio.CancelledError", None, "aborted", None),
        ("openai.APITimeoutError", None, "timeout", None),
        ("openai.RateLimitError", 429, "rejected", 429),
        ("_OTHER", None, "error", None),
        (None, 504, "timeout", 504),
        (None, 200, "error", 200),  # by the span's own status
        (None, None, "error", None),
    ],
)
def test_a_failed_span_says_how_it_failed(read, error, code, status, http_status):
    named = {"error.type": error, "http.response.status_code": code}
    failed = span({name: item for name, item in named.items() if item is not None}, status={"code": 2})
    log = read([export(failed, span())])
    assert log.column("status") == [status, "ok"]
    assert log.column("http_status") == [http_status, None]


MESSAGES = [
    {"role": "user", "parts": [{"type": "text", "content": "hé\n"}]},
    {"role": "assistant", "parts": []},
]
TOOLS = [{"type": "function", "name": "f"}]


def test_messages_are_handed_over_byte_for_byte_with_the_system_prompt_first(sent):
    text = json.dumps(MESSAGES[0]) + " "
    as_text = {
        "gen_ai.input.messages": f"[{text}, {json.dumps(MESSAGES[1])}]",
        "gen_ai.system_instructions": '[{"type": "text", "content": "Be brief."}]',
        "gen_ai.tool.definitions": json.dumps(TOOLS),
        "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "tool_call"}]}]',
    }
    (prompt,) = sent([export(span(as_text))], "otlp_genai")
    system = b'{"role":"system","content":[{"type": "text", "content": "Be brief."}]}'
    assert prompt.messages == [system, text.strip().encode(), json.dumps(MESSAGES[1]).encode()]
    assert prompt.tools == json.dumps(TOOLS).encode()
    assert prompt.reply == b'{"role": "assistant", "parts": [{"type": "tool_call"}]}'


def test_structured_messages_are_the_same_messages(sent):
    structured = {"gen_ai.input.messages": MESSAGES, "gen_ai.tool.definitions": TOOLS}
    (prompt,) = sent([export(span(structured))], "otlp_genai")
    assert [json.loads(message) for message in prompt.messages] == MESSAGES
    assert json.loads(prompt.tools) == TOOLS


def test_messages_that_openllmetry_flattens_are_put_together_again(read, sent):
    first = {
        "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content": "hi",
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.finish_reason": "tool_calls",
        "gen_ai.completion.0.tool_calls.0.name": "f",
        "gen_ai.completion.0.tool_calls.0.arguments": "{}", "llm.request.functions.0.name": "f",
    }  # fmt: skip
    later = {
        "gen_ai.prompt.1.tool_calls.0.arguments": "{}", "gen_ai.prompt.1.tool_calls.0.name": "f",
        "gen_ai.prompt.1.role": "assistant", "gen_ai.prompt.0.content": "hi", "gen_ai.prompt.0.role": "user",
    }  # fmt: skip
    lines = [export(span(first)), export(span(later, spanId="b2"))]
    one, two = sent(lines, "otlp_genai")
    assert one.messages == two.messages[:1] == [b'{"role":"user","content":"hi"}']
    assert one.reply == two.messages[1]
    assert one.tools == b'[{"name":"f"}]'
    log = read(lines)
    assert log.column("finish_reason") == ["tool_calls", None]
    assert log.column("n_tool_calls_out") == [1, None]


def test_without_content_there_is_no_prompt_and_cut_content_is_none(read, sent):
    cut = json.dumps(MESSAGES)[:40]
    contents = [{}, {"gen_ai.input.messages": cut}, {"gen_ai.input.messages": "[]"}, {"gen_ai.prompt": "hi"}]
    lines = [export(span(content, spanId=str(n))) for n, content in enumerate(contents)]
    prompts = sent(lines, "otlp_genai")
    assert prompts[:3] == [None] * 3
    assert prompts[3].messages == [b"hi"]
    (warning,) = read(lines).report.warnings
    assert warning.startswith("1 requests have messages that are cut or no JSON")


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"startTimeUnixNano": None}, ("missing_field", "startTimeUnixNano")),
        ({"startTimeUnixNano": "noon"}, ("wrong_type", "startTimeUnixNano")),
        ({"endTimeUnixNano": "1794474012043457023"}, ("out_of_range", "endTimeUnixNano")),
        ({"attributes": attributes({"gen_ai.operation.name": "chat", "gen_ai.usage.input_tokens": -1})},
         ("out_of_range", "attributes.gen_ai.usage.input_tokens")),
        ({"attributes": attributes({"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": "many"})},
         ("wrong_type", "attributes.gen_ai.usage.output_tokens")),
        ({"attributes": 7}, ("wrong_type", "attributes")),
    ],
)  # fmt: skip
def test_a_bad_span_costs_itself_only(read, changes, fault):
    log = read([export(span(), span(**changes), span(spanId="b3"))])
    assert log.faults == [(1, fault[0], f"$.resourceSpans[0].scopeSpans[0].spans[1].{fault[1]}")]
    assert log.column("request_id") == ["b1", "b3"]


def test_it_carries_what_it_says(read):
    content = {"gen_ai.input.messages": MESSAGES, "gen_ai.output.messages": [MESSAGES[1]]}
    log = read([export(span(NEW | content | {"http.response.status_code": 200}))])
    assert log.carried == set(CARRIES)
