"""The lines in which SGLang's scheduler tells of prefill batches, and of decoding every 40 steps.

    [2026-11-12 09:00:12 TP0] Prefill batch, #new-seq: 1, #new-token: 1281, #cached-token: 0, token usage:
        0.31, #running-req: 0, #queue-req: 0, #pending-token: 0, input throughput (token/s): 1000.00
    [2026-11-12 09:00:12 TP0] Decode batch, #running-req: 2, #token: 1307, token usage: 0.42, cuda graph:
        True, gen throughput (token/s): 81.00, #queue-req: 0

Source: SGLang 0.5.23, managers/scheduler_components/metrics_reporter.py; 0.5.5, scheduler_metrics_mixin.py.
Fields come and go with versions and pools (full, SWA and mamba usage: the full one is taken), with an
iteration in brackets behind "batch" on request. The throughput of a prefill line is that of the batch before.
Every tensor- and pipeline-parallel rank may write the same line: those of rank 0 count. `instance` is the
data-parallel rank. The hit rate of a span of time is the sum of cached_tokens over that of cached_tokens and
new_tokens of its prefill events.
"""

from __future__ import annotations

import re
from typing import Any

_BATCH = re.compile(rb"(Prefill|Decode) batch(?:\.| \[[0-9]+\])?,? ")
_FIELDS = {
    name: re.compile(label + rb" ?([0-9]{1,15}(?:\.[0-9]{1,15})?)(?![0-9])")
    for name, label in {
        "new_requests": rb"#new-seq:",
        "new_tokens": rb"#new-token:",
        "cached_tokens": rb"#cached-token:",
        "pending_tokens": rb"#pending-token:",
        "running": rb"#running-req:",
        "waiting": rb"#queue-req:",
        "kv_tokens": rb"#(?:full )?token:",
        "kv_usage": rb"(?<!swa )(?<!mamba )token usage:",
        "prompt_tokens_per_s": rb"input throughput \(token/s\):",
        "generation_tokens_per_s": rb"gen throughput \(token/s\):",
    }.items()
}
_FRACTIONS = ("kv_usage", "prompt_tokens_per_s", "generation_tokens_per_s")
_RANK = re.compile(r"\b(DP|TP|PP|EP)([0-9]{1,6})")


def is_batch(message: bytes) -> bool:
    return _BATCH.match(message) is not None


def event_of(message: bytes, ranks: str) -> dict[str, Any] | None:
    """Columns of schema.EVENTS; None for a rank other than 0. `ranks` as behind the time: DP1 TP0."""
    match = _BATCH.match(message)
    rank = {name: int(number) for name, number in _RANK.findall(ranks)}
    dp = rank.pop("DP", None)
    if match is None or any(rank.values()):
        return None
    values: dict[str, Any] = {
        "kind": match[1].decode().lower(),
        "instance": None if dp is None else f"dp{dp}",
    }
    for name, pattern in _FIELDS.items():
        if found := pattern.search(message):
            values[name] = float(found[1]) if name in _FRACTIONS else int(float(found[1]))
    cached, new = values.get("cached_tokens"), values.get("new_tokens")
    if cached is not None and new is not None and cached + new > 0:
        values["hit_rate"] = cached / (cached + new)
    return values
