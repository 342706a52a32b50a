"""Client and gateway spans with OpenTelemetry's GenAI attributes, as OTLP-JSON (see _otlp.py and _genai.py).

    gen_ai.operation.name "chat"; gen_ai.provider.name; gen_ai.request.model; gen_ai.conversation.id; user.id;
    gen_ai.usage.input_tokens, .output_tokens, .cache_read.input_tokens; gen_ai.response.id,
    .finish_reasons, .time_to_first_chunk s; gen_ai.input.messages (a JSON string, or structured); error.type

Source: see _genai.py for the conventions and their old names. A request is a span whose operation is chat,
generate_content or text_completion (older: generate, completion); its start is the arrival at the client.
Dropped under a reason: embeddings, tools (execute_tool), agents (invoke_agent), and everything else.
Pitfalls:
- Whether input_tokens holds the cached tokens depends on provider and instrumentation: see _usage.
- A client's span covers the retries inside the client; retries by the application are spans of their own.
- Two instrumentations of one call (a framework's and the client's) give two spans. Where both have the
  response id, which is the request id here, the first counts; else the inner one.
- Content is off by default, may be cut at the attribute limit, or is in log events, which are not read.
- server.address is a load balancer more often than an engine, and the resource is the client's: no instance.
- A time to first chunk exists for streams only, and only in recent instrumentations.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentctl.formats import _genai, _otlp
from agentctl.formats._cells import whole
from agentctl.formats._columns import Columns
from agentctl.formats._dates import between
from agentctl.formats._messages import Prompts
from agentctl.formats._usage import InputCounts
from agentctl.formats.base import Batch, Reading, Sample

NAME = "otlp_genai"
TITLE = (
    "OpenTelemetry GenAI spans of clients and gateways in OTLP-JSON (gen_ai.operation.name, gen_ai.usage.*)"
)
CARRIES = _genai.CARRIES
LACKS = (
    "No placement or queueing times; tokens, first chunks and messages only as the instrumentation sets them."
)
ONE_RECORD_A_LINE = False

_MARKS = ("gen_ai.operation.name", "gen_ai.system", "gen_ai.provider.name", "llm.request.type")


def recognises(sample: Sample) -> bool:
    names = _otlp.attribute_names(sample) if _otlp.is_otlp(sample) else set()
    is_other = any(name.startswith(("gen_ai.latency.", "openinference.")) for name in names)
    return not is_other and not names.isdisjoint(_MARKS)


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    counts, prompts = InputCounts(are_apart=False, total_is_sent=True), Prompts()
    for chunk, found in _otlp.spans(reading, _genai.is_request):
        spans = _genai.without_enclosing(found, reading)
        lines, paths = _otlp.places(spans)
        columns = Columns(reading, chunk, lines, within=paths)
        start = columns.parse(whole, [span.span.startTimeUnixNano for span in spans], "$.startTimeUnixNano")
        end = columns.parse(whole, [span.span.endTimeUnixNano for span in spans], "$.endTimeUnixNano")
        columns.arrival(start, "$.startTimeUnixNano", "ns")
        columns.seconds("e2e_s", between(start, end), "$.endTimeUnixNano", per_second=1e9)
        _genai.fill(columns, spans, counts, prompts)
        yield columns.batch()
    counts.warn(reading)
    prompts.warn(reading)
