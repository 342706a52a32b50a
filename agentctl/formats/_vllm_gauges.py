"""The line in which each vLLM engine says every ten seconds how it is.

Source: vLLM 0.32, v1/metrics/loggers.py (fields that are zero or off are left out); 0.6, engine/metrics.py
(Swapped and Pending; no hit rate). Rates are averages since the line before; the hit rate is one over recent
queries, in tokens.
"""

from __future__ import annotations

import re
from typing import Any

_GAUGES = {
    name: re.compile(pattern)
    for name, pattern in {
        "prompt_tokens_per_s": rb"Avg prompt throughput: ([0-9]{1,15}(?:\.[0-9]{1,15})?) tokens/s",
        "generation_tokens_per_s": rb"Avg generation throughput: ([0-9]{1,15}(?:\.[0-9]{1,15})?) tokens/s",
        "running": rb"Running: ([0-9]{1,15}) reqs",
        "waiting": rb"(?:Waiting|Pending): ([0-9]{1,15}) reqs",
        "swapped": rb"Swapped: ([0-9]{1,15}) reqs",
        "preemptions": rb"Preemptions: ([0-9]{1,15})",
        "kv_usage": rb"(?<!CPU) KV cache usage: ([0-9]{1,15}(?:\.[0-9]{1,15})?)%",
        "hit_rate": rb", Prefix cache hit rate: ([0-9]{1,15}(?:\.[0-9]{1,15})?)%",
        "external_hit_rate": rb"External prefix cache hit rate: ([0-9]{1,15}(?:\.[0-9]{1,15})?)%",
    }.items()
}
_ENGINE = re.compile(rb"Engine ([0-9]{1,6}):")
_SHARES = ("kv_usage", "hit_rate", "external_hit_rate")
_COUNTS = ("running", "waiting", "swapped", "preemptions")


def _float(number: bytes, name: str) -> float:
    """Shares are printed in per cent."""
    return round(float(number) / 100, 6) if name in _SHARES else float(number)


def is_gauge(message: bytes) -> bool:
    return b"Avg prompt throughput: " in message[:200]


def gauges(message: bytes) -> dict[str, Any]:
    """Columns of schema.EVENTS; `instance` is the engine's number where one is given."""
    values: dict[str, Any] = {}
    for name, pattern in _GAUGES.items():
        if match := pattern.search(message):
            number = match[1]
            values[name] = int(number) if name in _COUNTS else _float(number, name)
    engine = _ENGINE.match(message)
    return values | {"instance": f"engine-{int(engine[1])}" if engine else None}
