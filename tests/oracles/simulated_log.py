"""A request log that the simulator itself wrote: whoever simulates it again must find no error.

Two engines under a policy that balances hits and load; growing sessions with shared beginnings, in bursts, so
that requests queue and find each other's KV. Coefficients, limits and placement are known.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from agentctl.cluster import cluster_of
from agentctl.estimators.batch_time import BatchTime
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.policies.base import load_policy
from agentctl.profile import Profile
from agentctl.sim.driver import simulate
from agentctl.trace import Trace
from agentctl.workload import compile_workload

SPEED = BatchTime("hinge", 6e-3, 4e-5, 6e-5, 1e-7, 1e-7, 1e-9)
PROFILE = Profile(
    SPEED, name="true", kv_blocks=900, block_tokens=16, max_num_seqs=8, max_num_batched_tokens=512
)
COLUMNS = {
    "request_id": "id", "arrival_s": "at", "prompt_tokens": "in", "output_tokens": "out",
    "session_id": "session", "hash_ids": "blocks", "instance": "engine", "ttft_s": "ttft", "e2e_s": "e2e",
    "queue_s": "queue", "cached_tokens": "cached",
}  # fmt: skip


def asked(n: int = 400, seed: int = 5) -> list[dict[str, Any]]:
    """What clients ask for and when, as rows of a log without measurements."""
    random = np.random.default_rng(seed)
    rows: list[dict[str, Any]] = []
    sessions: dict[str, list[int]] = {}
    at = 0.0
    for k in range(n):
        at += float(random.exponential(0.03 if (k // 50) % 2 else 0.4))
        name = f"s{random.integers(0, 40)}"
        blocks = sessions.setdefault(name, [1, 2, 3])
        blocks += [1000 * k + j for j in range(int(random.integers(1, 12)))]
        rows.append(
            {"id": f"r{k}", "at": at, "in": 16 * len(blocks), "out": int(random.integers(1, 80)),
             "session": name, "blocks": list(blocks)}
        )  # fmt: skip
        if len(blocks) > 60:
            del sessions[name]
    return rows


def dataset(folder: Path, rows: list[dict[str, Any]], name: str = "run") -> Trace:
    """Rows with the keys of COLUMNS, or some of them, as a trace."""
    path = folder / f"{name}.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    present = {key for row in rows for key in row}
    columns = {ours: theirs for ours, theirs in COLUMNS.items() if theirs in present}
    options = IngestOptions(format="generic", map=columns, block_tokens=16)
    return ingest([path], folder / f"{name}.trace", options).trace


def written(
    folder: Path, profile: Profile = PROFILE, engines: int = 2, name: str = "run", n: int = 400, **leave: bool
) -> Trace:
    """The log; `engine=False` leaves out who served what, other keys likewise."""
    rows = asked(n)
    workload = compile_workload(dataset(folder, rows, f"{name}-asked"), replay="timestamps")
    cluster = cluster_of(profile, engines)
    outcome = simulate(workload, cluster, load_policy("lmetric"))
    assert outcome.done.all() and len(set(outcome.engine)) == engines
    for k, row in enumerate(rows):
        measured = {
            "engine": f"engine-{outcome.engine[k]}",
            "ttft": outcome.first_token_s[k] - outcome.arrival_s[k],
            "e2e": outcome.finish_s[k] - outcome.arrival_s[k],
            "queue": outcome.scheduled_s[k] - outcome.arrival_s[k],
            "cached": int(outcome.hit_tokens[k]),
        }
        row |= measured
    told = [{key: value for key, value in row.items() if leave.get(key, True)} for row in rows]
    return dataset(folder, told, name)


def scaled(factor: float) -> Profile:
    """An engine of the same limits that takes `factor` times as long."""
    return replace(PROFILE, name="scaled", batch_time=BatchTime("hinge", *(factor * c for c in SPEED[1:])))
