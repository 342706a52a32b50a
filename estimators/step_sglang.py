"""Steps from the batch lines of SGLang's server log (agentctl/formats/_sglang_batches.py reads a line).

A decode line comes every 40 steps (--decode-log-interval) with the throughput since the one before: a step
took running / throughput. The throughput of a prefill line is that of the prefill batch before it, over the
time between both lines: that is its duration only if nothing ran in between, so a batch counts when requests
still waited behind it and the next line is prefill too. Contexts are `#token`, the KV in use. All this is
coarse; the recorders in agentctl.recorders and Dynamo's ForwardPassMetrics are not.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from agentctl.errors import InputError
from agentctl.estimators.step_rows import Rows
from agentctl.estimators.steps import even_pairs, steps_of
from agentctl.formats._sglang_batches import event_of

LINE = re.compile(rb"\[([0-9-]{10}[ T][0-9:.,]{8,15})((?: [A-Z]{2}[0-9]+)*)\] ((?:Prefill|Decode) batch.*)")
COLOUR = re.compile(rb"\x1b\[[0-9;]*m")


def is_sglang(text: bytes) -> bool:
    return LINE.search(COLOUR.sub(b"", text)) is not None


def read_sglang(text: bytes, name: str) -> Rows:
    """Steps of decode lines, and of prefill lines whose duration the next one tells."""
    found: list[dict[str, Any]] = []
    ranks = set()
    for number, line in enumerate(COLOUR.sub(b"", text).splitlines(), start=1):
        if match := LINE.search(line):
            event = event_of(match[3], match[2].decode())
            if event is not None:
                found.append({**event, "time_s": _time_s(match[1].decode(), f"{name}:{number}")})
                ranks.add(event["instance"])
    if len(ranks) > 1:
        raise InputError(
            f"holds the steps of {len(ranks)} data-parallel engines",
            place=name,
            hint="grep one rank out of it, e.g. grep ' DP0 ', and give that",
        )
    rows = [row for pair in zip(found, [*found[1:], {}], strict=True) if (row := _step(*pair))]
    columns = np.array(rows, np.float64).reshape(len(rows), 7).T
    seconds, time_s, prefill, n_prefill, context, n_decode, decode_context = columns
    steps = steps_of(
        len(rows), seconds=seconds, time_s=time_s, prefill_tokens=prefill, n_prefill=n_prefill,
        prefill_context=context, prefill_pairs=even_pairs(prefill, context, n_prefill), n_decode=n_decode,
        decode_context=decode_context,
    )  # fmt: skip
    notes = [
        f"{len(found) - len(rows):,} of {len(found):,} batch lines do not tell a step's duration",
        "a decode line is a mean over the steps since the last: coarse, and stalls cannot be seen",
    ]
    return Rows(steps, np.full(len(rows), np.nan), "SGLang batch lines", notes)


def _time_s(written: str, place: str) -> float:
    try:
        when = np.datetime64(written.replace(",", ".").replace(" ", "T"), "us")
    except ValueError as error:
        raise InputError(
            "its time is none", place=place, expected="[2026-11-30 12:00:00] in front of a batch line",
            hint="the line may be cut or mixed with another: take it out",
        ) from error  # fmt: skip
    return float(when.astype(np.int64)) / 1e6


def _step(event: dict[str, Any], following: dict[str, Any]) -> tuple[float, ...] | None:
    """(seconds, time_s, prefill tokens, chunks, their context, decodes, their context) if it can be told."""
    if event["kind"] == "decode":
        rate, running = event.get("generation_tokens_per_s") or 0.0, event.get("running") or 0
        if rate <= 0 or running == 0:
            return None
        return running / rate, event["time_s"], 0, 0, 0, running, event.get("kv_tokens", np.nan)
    rate, tokens = following.get("prompt_tokens_per_s") or 0.0, event.get("new_tokens") or 0
    waits = bool(event.get("waiting") or event.get("pending_tokens"))
    if following.get("kind") != "prefill" or rate <= 0 or tokens == 0 or not waits:
        return None
    chunks, cached = event.get("new_requests") or 1, event.get("cached_tokens", 0)
    return tokens / rate, event["time_s"], tokens, chunks, cached, 0, 0
