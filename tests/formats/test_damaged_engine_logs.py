"""Engine logs with damaged bytes: lines are set aside or are other lines, they add up, and nothing stops."""

import gzip
import random

import pytest

from agentctl.errors import AgentctlError

LOGS = {
    "vllm_text": "vllm/vllm_server_v0.32.log.gz",
    "vllm_spans": "vllm/vllm_otel_spans.otlp.jsonl.gz",
    "sglang_requests": "sglang/sglang_requests_level1_json.log.gz",
    "sglang_metrics": "sglang/sglang-request-metrics-20261112_09.log.gz",
    "sglang_server": "sglang/sglang_server.log.gz",
}
TEXT_FORM = (
    b"[2026-11-12 09:00:20] Finish: obj=GenerateReqInput(rid='r', text='hi', input_ids=[1, 2]), "
    b"out={'meta_info': {'id': 'r', 'prompt_tokens': 3, 'e2e_latency': 1.0}}"
)
PROMPT_FORM = (
    b"INFO 11-12 09:00:12 [logger.py:43] Received request r: prompt: 'a\\n\"', params: SamplingParams(n=1, "
    b"max_tokens=9), prompt_token_ids: [1, 2], prompt_embeds shape: None, lora_request: None."
)
PIECES = (
    b"null",
    b"-1",
    b"1e999",
    b"9" * 30,
    b'"x"',
    b"[]",
    b"{}",
    b"\xf0\x9f\x98\x80",
    b"\\ud800",
    b"\r",
    b"'",
)


def damaged(data: bytes, random: random.Random) -> bytes:
    text = bytearray(data)
    for _ in range(random.randrange(1, 20)):
        at, kind = random.randrange(len(text)), random.randrange(3)
        if kind == 0:
            text[at] = random.randrange(256)
        elif kind == 1:
            del text[at : at + random.randrange(30)]
        else:
            text[at:at] = random.choice(PIECES)
    return bytes(text) or b"x"


@pytest.mark.parametrize("name", LOGS)
def test_a_damaged_log_adds_up_and_stops_nothing(read, data, name):
    draw = random.Random(7)  # what is drawn does not matter, only that it is the same each time
    lines = gzip.decompress((data / "formats" / LOGS[name]).read_bytes()).split(b"\n")
    more = {"vllm_text": [PROMPT_FORM], "sglang_requests": [TEXT_FORM]}.get(name, [])
    for _ in range(40):
        at = draw.randrange(max(len(lines) - 8, 1))
        part = lines[at : at + (2 if name == "vllm_spans" else 8)] + more
        try:
            report = read(damaged(b"\n".join(part) + b"\n", draw), format=name, year=2026).report
        except AgentctlError:  # all of it is damaged
            continue
        others = report.n_blank_lines + report.n_header_lines + report.n_other_lines
        assert report.n_lines == report.n_record_lines + others + report.n_quarantined_lines
