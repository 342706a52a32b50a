"""SGLang's exported request metrics, `--export-metrics-to-file-dir`: one finished request a line.

    {"request_parameters": "{...}" (JSON in a text: rid, stream, sampling_params, ...), "id": "698d",
     "finish_reason": {"type": "stop", ...}, "prompt_tokens": 1281, "cached_tokens": 0, "queue_time": 0.0042,
     "completion_tokens": 26, "e2e_latency": 0.4749, "request_received_ts": 1794474012.043457, ...}

Source: SGLang 0.5.23, observability/request_metrics_exporter.py; the fields as in _sglang.py. The best source
of an SGLang server. Files are sglang-request-metrics-YYYYMMDD_HH.log by the local hour of the end: give all.
Pitfalls:
- Times are there with --enable-metrics only.
- Only what finished or was aborted is written: requests that failed are missing.
- Headers are not: the routing key of x-smg-routing-key is in the request log alone.
- Text and input_ids are there whole where the server logs requests at level 2 or 3.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentctl.formats import _sglang
from agentctl.formats._sglang import HEALTH_CHECK, MetaInfo, Request, Sent, prompt_of
from agentctl.formats.base import Batch, Reading, Sample
from agentctl.ingest.lines import Fault, LineDecoder, ValueDecoder

NAME = "sglang_metrics"
TITLE = "SGLang exported request metrics (request_parameters, meta_info), JSON lines"
CARRIES = _sglang.CARRIES
LACKS = "No model or tenant, no failed requests; sessions only where the request names one, not by header."
ROLE = "engine"


class Row(MetaInfo):
    request_parameters: str = "{}"


def recognises(sample: Sample) -> bool:
    return sample.mostly({"request_parameters", "id"}.issubset)


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin = "absolute"
    decoder, parameters = LineDecoder(Row, reading.quarantine), ValueDecoder(Sent)
    for chunk in reading.chunks():
        lines = decoder.decode(chunk)
        reading.n_blank_lines += lines.n_blank
        requests = []
        for row, line in zip(lines.rows, lines.lines.tolist(), strict=True):
            sent = parameters.decode(row.request_parameters.encode())
            if isinstance(sent, Fault):
                path = "$.request_parameters" + (sent.path or "$").removeprefix("$")
                reading.reject(chunk, line, sent.reason, path)
            elif (row.id or "").startswith(HEALTH_CHECK):
                reading.drop("health_check")
            else:
                prompt, tokens, size = prompt_of(sent, is_shortened_at_level_2=False)
                requests.append(Request(row.id, line, sent, row, None, None, prompt, tokens, size))
        if requests:
            yield _sglang.batch(reading, chunk, requests)
