"""A small log in every format: the beginnings of the test data, and what is not among it.

samples("weka"), MORE_OPTIONS.get("vllm_text", [])
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from agentctl.formats.base import Sample, readers
from agentctl.ingest.source import Source

DATA = Path(__file__).parents[1] / "data"
FORMATS = sorted(readers())
LOGS_WITHOUT_TEXT = ("sglang_requests", "sglang_metrics")  # ours are of level 1


def as_lines(records) -> bytes:
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)


# Formats without a file among the test data.
SAMPLES: dict[str, list[bytes]] = {
    "generic": [
        as_lines({"ts": 17 + k, "id": f"r{k}", "who": "s", "prompt": 20, "said": "a b"} for k in (0, 1))
    ],
    "openinference": [  # the samples of Envoy have no times
        as_lines(
            json.loads(path.read_text()) | {"startTimeUnixNano": "1755133856000000000"}
            for path in sorted(DATA.glob("openinference/*.json"))
        )
    ],
}
MORE_OPTIONS = {
    "vllm_text": ["--year", "2026"],
    "generic": ["--map", "arrival_s=ts", "--map", "request_id=id", "--map", "session_id=who",
                "--map", "prompt_tokens=prompt"],
}  # fmt: skip


@cache
def samples(name: str) -> list[bytes]:
    """Beginnings of logs in this format."""
    found = []
    for path in sorted(path for path in DATA.rglob("*") if path.is_file() and path.suffix != ".md"):
        source = Source(str(path))
        if not source.is_parquet and readers()[name].recognises(
            Sample(source.sample, whole=source.sample_is_all)
        ):
            whole = source.sample_is_all
            found.append(source.sample if whole else source.sample[: source.sample.rfind(b"\n") + 1])
    found += SAMPLES.get(name, [])
    return found + [with_prompts(sample) for sample in found if name in LOGS_WITHOUT_TEXT]


def with_prompts(sample: bytes) -> bytes:
    """SGLang's lines as they are at level 3, with the text of the prompt."""
    prompt = "A prompt of some length, " * 8
    for quote in ('"', '\\"'):
        before = f"{quote}stream{quote}: true"
        after = f"{quote}text{quote}: {quote}{prompt}{quote}, {before}"
        sample = sample.replace(before.encode(), after.encode())
    return sample
