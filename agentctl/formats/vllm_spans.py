"""vLLM's OpenTelemetry spans, one `llm_request` per finished request, as OTLP-JSON (see _otlp.py).

    gen_ai.latency.time_to_first_token, .e2e, .time_in_queue, .time_in_model_prefill, .time_in_model_decode s
    gen_ai.usage.prompt_tokens, .completion_tokens; gen_ai.request.id, .max_tokens, .n

Source: vLLM 0.32, v1/engine/output_processor.py (do_tracing) and tracing/utils.py; `--otlp-traces-endpoint`.
The span starts at arrival on the wall clock (ns); its parent is the caller's traceparent.
Pitfalls:
- Only finished requests have a span: aborts and errors are missing, which is counted nowhere.
- Parameters that are false in Python are left out: no max_tokens means that none was given.
- No cached tokens and no model: the resource (service.name, pod) says at most which server it was; join the
  gateway's log for the rest.
- With n > 1 each of the n answers has a span of its own under the same request id; their prompts are one.
- Servers also write spans of their start; they are dropped as other spans.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from agentctl.formats import _otlp
from agentctl.formats._cells import whole
from agentctl.formats._columns import Columns
from agentctl.formats._names import bare_id
from agentctl.formats._otlp import Found
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.source import Chunk

NAME = "vllm_spans"
TITLE = "vLLM OpenTelemetry spans in OTLP-JSON (llm_request, gen_ai.latency.*)"
CARRIES = (
    "request_id", "instance", "model", "arrival_s", "ttft_s", "e2e_s", "queue_s", "prefill_s", "decode_s",
    "prompt_tokens", "output_tokens", "max_tokens", "status",
)  # fmt: skip
LACKS = "No aborted or failed requests, no cached tokens, sessions, tenants or prompts; rarely the model."
ROLE = "engine"
ONE_RECORD_A_LINE = False

_LATENCIES = {
    "ttft_s": "gen_ai.latency.time_to_first_token",
    "queue_s": "gen_ai.latency.time_in_queue",
    "prefill_s": "gen_ai.latency.time_in_model_prefill",
    "decode_s": "gen_ai.latency.time_in_model_decode",
}
_E2E = "gen_ai.latency.e2e"
_INSTANCE = ("service.instance.id", "k8s.pod.name", "host.name")  # the first that the resource has
_MODEL = ("gen_ai.response.model", "gen_ai.request.model")


def recognises(sample: Sample) -> bool:
    names = _otlp.attribute_names(sample) if _otlp.is_otlp(sample) else set()
    return any(name.startswith("gen_ai.latency.") for name in names)


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    for chunk, spans in _otlp.spans(reading, _is_request):
        yield _batch(reading, chunk, spans)


def _is_request(span: Found) -> bool:
    return span.span.name == "llm_request" or _E2E in span.attributes


def _batch(reading: Reading, chunk: Chunk, spans: list[Found]) -> Batch:
    lines, paths = _otlp.places(spans)
    columns = Columns(reading, chunk, lines, within=paths)

    def parse(convert: Any, name: str) -> list[Any]:
        return columns.parse(convert, [span.attributes.get(name) for span in spans], f"$.attributes.{name}")

    starts = columns.parse(whole, [span.span.startTimeUnixNano for span in spans], "$.startTimeUnixNano")
    ends = columns.parse(whole, [span.span.endTimeUnixNano for span in spans], "$.endTimeUnixNano")
    columns.arrival(starts, "$.startTimeUnixNano", "ns")
    for column, name in _LATENCIES.items():
        columns.seconds(column, parse(_otlp.number, name), f"$.attributes.{name}")
    e2e = [
        value if value is not None or start is None or end is None else (end - start) / 1e9
        for value, start, end in zip(parse(_otlp.number, _E2E), starts, ends, strict=True)
    ]
    columns.seconds("e2e_s", e2e, f"$.attributes.{_E2E}")
    for column, name, low in (
        ("prompt_tokens", "gen_ai.usage.prompt_tokens", 1),
        ("output_tokens", "gen_ai.usage.completion_tokens", 0),
        ("max_tokens", "gen_ai.request.max_tokens", 0),
    ):
        columns.tokens(column, parse(_otlp.whole, name), f"$.attributes.{name}", low=low)
    ids = parse(_otlp.text, "gen_ai.request.id")
    answers = parse(_otlp.whole, "gen_ai.request.n")
    columns.text("join_id", [bare_id(id) for id in ids])
    # The answers of one request are rows of their own, as they are sequences of their own in the engine.
    columns.text(
        "request_id",
        [
            f"{id}/{span.span.spanId}" if id and n and n > 1 else id
            for id, n, span in zip(ids, answers, spans, strict=True)
        ],
    )
    columns.text("instance", columns.parse(_otlp.text, [_named(s.resource, _INSTANCE) for s in spans], "$"))
    columns.text("model", columns.parse(_otlp.text, [_named(s.attributes, _MODEL) for s in spans], "$"))
    columns.put("status", ["error" if span.span.is_error else "ok" for span in spans])
    return columns.batch()


def _named(attributes: _otlp.Attributes, names: tuple[str, ...]) -> Any:
    return next((attributes[name] for name in names if name in attributes), None)
