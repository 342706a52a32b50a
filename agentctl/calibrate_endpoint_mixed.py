"""The mixed load of a probe, which is never fitted: simulated, and compared with what was seen."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.calibrate import Engine
from agentctl.cluster import cluster_of
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.endpoint_fit import EndpointFit, Row, design
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.logged import LoggedRun, blocks_for_all
from agentctl.profile import Profile

F64 = NDArray[np.float64]
LEAST = 8  # requests, or nothing is said
BLOCK_TOKENS = 16
MAP = {
    "request_id": "id", "arrival_s": "at", "prompt_tokens": "in", "output_tokens": "out", "ttft_s": "ttft",
    "e2e_s": "e2e", "cached_tokens": "cached",
}  # fmt: skip


class Mixed(NamedTuple):
    """Mean relative errors; `alone`: of predictions as if each request were the only one. None: see `why`."""

    requests: int
    ttft_mape: float | None = None
    ttft_bias: float | None = None
    e2e_mape: float | None = None
    ttft_mape_alone: float | None = None
    why: str | None = None  # nothing is said


def judge_mixed(
    requests: Sequence[dict[str, Any]], fitted: EndpointFit, batch_time: BatchTime, engine: Engine
) -> Mixed:
    """One engine without a limit of memory, requests at the times at which they were sent."""
    if fitted.missing:
        return Mixed(len(requests), why="the coefficients are not all known")
    if len(requests) < LEAST:
        return Mixed(len(requests), why=f"fewer than {LEAST} of its requests were answered")
    if any(one["cached_tokens"] is None for one in requests):
        return Mixed(len(requests), why="the server does not report cached tokens")
    delta = fitted.values.get("delta", 0.0)
    simulated, logged = _replay(requests, fitted, batch_time, engine)
    ttft, e2e = simulated[0] + delta, simulated[1] + delta
    rows = [
        Row("cold", "", 1.0, new=one["prompt_tokens"] - one["cached_tokens"], past=one["cached_tokens"])
        for one in requests
    ]
    known = np.array([fitted.values.get(name, 0.0) for name in fitted.names])
    alone = design(rows, fitted.names, fitted.budget) @ known
    seen = np.array([one["chunks_s"][0] for one in requests])
    return Mixed(
        len(requests),
        _mape(ttft, logged[0]),
        float(ttft.mean() / logged[0].mean() - 1),
        _mape(e2e, logged[1]),
        _mape(alone, seen),
    )


def _mape(predicted: F64, measured: F64) -> float:
    return float(np.abs(predicted / measured - 1).mean())


def _replay(
    requests: Sequence[dict[str, Any]], fitted: EndpointFit, batch_time: BatchTime, engine: Engine
) -> tuple[tuple[F64, F64], tuple[F64, F64]]:
    """TTFT and duration of each request: simulated, and as seen, in the same order."""
    block = engine.block_tokens or BLOCK_TOKENS
    profile = Profile(
        batch_time, "endpoint", kv_blocks=2, block_tokens=block, max_num_batched_tokens=fitted.budget
    )
    with tempfile.TemporaryDirectory(prefix="agentctl-") as folder:
        path = Path(folder) / "mixed.jsonl"
        path.write_text("".join(f"{json.dumps(_logged(one))}\n" for one in requests))
        options = IngestOptions(format="generic", map=MAP, sessions="none")
        trace = ingest([path], Path(folder) / "mixed.trace", options).trace
        cluster = cluster_of(replace(profile, kv_blocks=blocks_for_all(trace, block)))
        run = LoggedRun(trace, cluster, replay="timestamps")
        return run.latencies(batch_time), (run.logged.ttft_s, run.logged.e2e_s)


def _logged(one: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": one["request"], "at": one["sent"], "in": one["prompt_tokens"], "out": one["completion_tokens"],
        "ttft": one["chunks_s"][0], "e2e": one["chunks_s"][-1], "cached": one["cached_tokens"],
    }  # fmt: skip
