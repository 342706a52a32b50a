"""What a reader says that its format carries is what it gives, no more and no less."""

import json

import pytest

from agentctl.formats.base import readers
from agentctl.formats.generic import CARRIES as MAPPABLE
from agentctl.schema import REQUESTS

WEKA = [
    {
        "id": "s",
        "block_size": 64,
        "requests": [
            {
                "t": 0, "type": "s", "model": "m", "in": 64, "out": 1, "hash_ids": [1], "stop": "end_turn",
                "api_time": 1, "ttft": 0.5, "input_types": ["tool_result"],
            },
            {"t": 9, "type": "n", "in": 64, "out": 1, "hash_ids": [1], "think_time": 8},
            {"t": 20, "type": "subagent", "requests": [{"t": 21, "type": "n", "in": 1, "out": 1}]},
        ],
    }
]  # fmt: skip
MOONCAKE = [
    {"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1], "session_id": "s", "turn": 0},
    {"delay": 1, "input_length": 5, "output_length": 1, "hash_ids": [1], "session_id": "s", "turn": 1},
]

ENVOY = [
    {
        "start_time": "2026-11-12T09:00:12.043Z", "duration": 474, "response_code": 200,
        "token_latency_ttft": 191, "upstream_host": "10.42.7.4:8000", "x-request-id": "r", "session.id": "s",
        "gen_ai.request.model": "m", "gen_ai.usage.input_tokens": 20, "gen_ai.usage.output_tokens": 3,
        "gen_ai.usage.cached_input_tokens": 16, "gen_ai.usage.cache_creation_input_tokens": 4,
        "gen_ai.usage.reasoning_tokens": 2,
    }
]  # fmt: skip
VLLM_SAID = "vllm-1 | 2026-11-12T09:00:12Z INFO 11-12 09:00:12 [x.py:1] "
VLLM_TEXT = (
    VLLM_SAID + "Received request r: prompt: 'a', params: SamplingParams(max_tokens=9), prompt_token_ids: "
    "[1, 2], lora_request: LoRARequest(lora_name='l', lora_int_id=1).\n"
    + VLLM_SAID + "Generated response r: output: 'b', output_token_ids: [3], finish_reason: stop\n"
).encode()  # fmt: skip
SGLANG_META = {
    "id": "r", "finish_reason": {"type": "stop"}, "prompt_tokens": 3, "completion_tokens": 2,
    "cached_tokens": 1, "cached_tokens_details": {"host": 1}, "reasoning_tokens": 1, "dp_rank": 0,
    "e2e_latency": 2,
    "first_token_latency": 1.0, "queue_time": 0.5, "request_received_ts": 1794474012.5,
    "request_finished_ts": 1794474014.5, "forward_entry_time": 1794474013.0,
    "prefill_finished_time": 1794474013.5,
}  # fmt: skip
SGLANG_SENT = {
    "stream": True, "priority": 1, "session_id": "s", "extra_key": "g", "text": "a", "input_ids": [1, 2, 3],
    "sampling_params": {"max_new_tokens": 9},
}  # fmt: skip
SGLANG_REFUSED = {"id": "q", "finish_reason": {"type": "abort", "status_code": 503}}
SGLANG_METAS = [SGLANG_META, SGLANG_META | SGLANG_REFUSED]
SGLANG_METRICS = [{**meta, "request_parameters": json.dumps(SGLANG_SENT)} for meta in SGLANG_METAS]
SGLANG_REQUESTS = [
    {"event": "request.finished", "obj": SGLANG_SENT, "out": {"meta_info": meta}} for meta in SGLANG_METAS
]
VLLM_SPAN = {
    "startTimeUnixNano": "1794474012043457024", "name": "llm_request",
    "attributes": [
        {"key": f"gen_ai.{name}", "value": {"stringValue": "3"}}
        for name in (
            "request.id", "response.model", "request.max_tokens", "usage.prompt_tokens",
            "usage.completion_tokens", "latency.e2e", "latency.time_to_first_token", "latency.time_in_queue",
            "latency.time_in_model_prefill", "latency.time_in_model_decode",
        )
    ],
}  # fmt: skip
VLLM_POD = {"attributes": [{"key": "k8s.pod.name", "value": {"stringValue": "p"}}]}
VLLM_SPANS = [{"resourceSpans": [{"resource": VLLM_POD, "scopeSpans": [{"spans": [VLLM_SPAN]}]}]}]
LLMSERVING = [
    {
        "request_id": "r", "session_id": "s", "arrival_time_ns": 0, "sub_requests": [
            {"input_toks": 1, "output_toks": 1, "input_tok_ids": [1], "tool_duration_ns": 1},
            {"input_toks": 1, "output_toks": 1, "input_tok_ids": [1]},
        ],
    },
    {
        "input_toks": 1, "output_toks": 1, "arrival_time_ns": 0, "queued_ts": 0.0, "scheduled_ts": 0.0,
        "first_token_ts": 0.5, "last_token_ts": 0.5,
    },
]  # fmt: skip
OPENAI = [
    {
        "request_id": "r", "session_id": "s", "user": "t", "timestamp": 1794474012, "latency_sec": 1,
        "ttft_ms": 5, "status_code": 200, "model": "m", "messages": [{"role": "user"}], "max_tokens": 9,
        "stream": True, "priority": 1, "response": {
            "choices": [{"finish_reason": "stop", "message": {}}],
            "usage": {
                "prompt_tokens": 2, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 1}, "cache_creation_input_tokens": 0,
            },
        },
    }
]  # fmt: skip


RESPONSES = [
    {
        "ts": 1794474012.0, "duration_ms": 5.0, "status": 200,
        "request": {
            "model": "m", "input": "hi", "previous_response_id": None, "max_output_tokens": 9, "user": "u",
            "conversation": "c", "stream": True,
        },
        "response": {
            "id": "resp_1", "status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"},
            "output": [{"type": "function_call"}],
            "usage": {
                "input_tokens": 5, "input_tokens_details": {"cached_tokens": 1}, "output_tokens": 9,
                "output_tokens_details": {"reasoning_tokens": 1},
            },
        },
    },
    {"ts": 1794474019.0, "request": {"input": "and", "previous_response_id": "resp_1"}},
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "log"),
    [
        ("azure", "azure/trace.csv"),
        ("bailian", "bailian/trace_blksz_16.jsonl.gz"),
        ("burstgpt", "burstgpt/trace.csv"),
        ("envoy", ENVOY),
        ("llmserving", LLMSERVING),
        ("mooncake", MOONCAKE),
        ("openai_chat", OPENAI),
        ("openai_responses", RESPONSES),
        ("llmd_epp", "llmd_epp/epp.log"),
        ("production_stack", "production_stack/router.log.gz"),
        ("sglang_metrics", SGLANG_METRICS),
        ("sglang_requests", SGLANG_REQUESTS),
        ("vllm_spans", VLLM_SPANS),
        ("vllm_text", VLLM_TEXT),
        ("weka", WEKA),
    ],
)
def test_a_reader_gives_what_it_says(read, data, name, log):
    rows = read(data / "formats" / log if isinstance(log, str) else log, format=name)
    assert rows.carried == set(readers()[name].CARRIES)


def test_the_generic_reader_gives_whatever_is_mapped(read):
    fields = {name: 200 if name == "http_status" else 1 for name in MAPPABLE}
    fields |= {"hash_ids": [1], "status": "ok", "stream": True}
    log = read([fields], format="generic", column_map={name: name for name in fields})
    assert log.faults == [] and log.carried == set(MAPPABLE)


@pytest.mark.parametrize("name", readers())
def test_every_reader_says_what_its_format_can_and_cannot_carry(name):
    reader = readers()[name]
    assert set(reader.CARRIES) <= {*REQUESTS.names, "hash_ids", "prompts"}
    assert len(set(reader.CARRIES)) == len(reader.CARRIES)
    assert reader.LACKS[0].isupper() and reader.LACKS.endswith(".") and "\n" not in reader.LACKS
