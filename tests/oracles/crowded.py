"""A few runs in which everything happens that kernels do: evictions, preemptions, copies, cuts, closed loops.

As a program (`python -m oracles.crowded`) it writes what came out, so that a test can run it in another
process under other settings of numba. `--strict` makes a negative index an error: in Python and in compiled
code alike it would quietly mean another element. Only interpreted kernels notice.
"""

from __future__ import annotations

import hashlib
import json
import sys
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
from oracles import reference_sglang
from oracles.random_clusters import give_chains, make_case
from oracles.reference_simulator import AFTER_END, AFTER_START, AT_ARRIVAL, BatchCoefficients, Limits, Request
from oracles.reference_view import IndexSettings, Settings

from agentctl.sim import driver

SGLang = reference_sglang.Limits

CONTEXT_BOUND = BatchCoefficients(
    b0=0.006,
    b_prefill=3e-5,
    b_decode=2e-5,
    b_context=4e-6,
    b_context_mixed=5e-6,
    b_attention=1e-7,
    b_past=1e-7,
)
HOST_BOUND = BatchCoefficients(b0=0.001, b_prefill=1e-5, b_context=4e-6, h0=0.002, h_seq=0.0003)

# limits, trace block, concurrency
RUNS = [
    (Limits(200, 4, max_num_batched_tokens=200, batch_time=CONTEXT_BOUND), 4, None),
    (Limits(200, 4, 64, 6, None, 32, False, 0.05, True, "priority", 2, HOST_BOUND), 8, None),
    (Limits(130, 4, 100, 12, 400, 0, False, 0.02, True, "fcfs", 1, HOST_BOUND), 2, 10),
    (Limits(400, 2, 100, 12, prefix_caching=False, batch_time=CONTEXT_BOUND), None, 6),
    (SGLang(600, 1, 64, conservativeness=0.02, batch_time=CONTEXT_BOUND), 4, None),
    (SGLang(34, 16, None, 100, True, 0.02, batch_time=HOST_BOUND), 8, 14),
]

HASH_SPREAD = SimpleNamespace(
    name="hash",
    my=None,
    choose=lambda view, requests, r, my: int(
        np.argmin(view.waiting_requests - view.hit_tokens // 8 + (r * 7 + np.arange(2)) % 2)
    ),
)


def sessions(trace_block: int | None, seed: int = 7) -> tuple[list[Request], list[tuple[int, ...]]]:
    """40 sessions of 3 turns over two system prompts; answers are repeated, and some turns are retried."""
    rng = np.random.default_rng(seed)
    requests: list[Request] = []
    tokens: list[tuple[int, ...]] = []
    fresh = iter(range(10_000, 10**7))
    for turn in range(3):
        for session in range(40):
            before = len(requests) - 40 if turn else -1
            base: tuple[int, ...] = tuple(range(session % 2, 40 + session % 2))
            if turn:
                base = tokens[before] if session % 5 else tokens[before][: requests[before].prompt]
            prompt = base + tuple(next(fresh) for _ in range(int(rng.integers(1, 60))))
            output = int(rng.integers(1, 80))
            release = (AT_ARRIVAL, AFTER_END, AFTER_END, AFTER_START)[session % 4] if turn else AT_ARRIVAL
            request = Request(
                len(prompt), output, turn * 0.5 + session * 0.005, parent=before, session=session,
                release=release, gap=float(rng.random()) * 0.2, deps=(before,) if turn else (),
                priority=session % 3,
            )  # fmt: skip
            requests.append(request)
            tokens.append(prompt + tuple(next(fresh) for _ in range(output)))
    if trace_block is not None:
        prompts = [whole[: q.prompt] for q, whole in zip(requests, tokens, strict=True)]
        give_chains(requests, prompts, trace_block, hashes_tails=True)
    return requests, tokens


def results() -> list[dict]:
    """For every run its counts, and a digest of all outcomes to the last bit."""
    found = []
    for number, (limits, trace_block, concurrency) in enumerate(RUNS):
        own = IndexSettings((trace_block or 4) * 2, 400, 2.0, ("tail", "head")[number // 2 % 2], "any_engine")
        router = Settings(gateways=2, index=own) if number % 2 else Settings()
        case = make_case(*sessions(trace_block), trace_block, [limits] * 2, concurrency, router)
        outcome = driver.simulate(case.workload, case.cluster, HASH_SPREAD, concurrency=concurrency)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, outcome.table().schema) as writer:
            writer.write_table(outcome.table())
        found.append(
            {
                "done": int(outcome.done.sum()),
                "hit_tokens": int(outcome.hit_tokens.sum()),
                "preemptions": int(outcome.preemptions.sum()),
                "sha256": hashlib.sha256(sink.getvalue()).hexdigest(),
            }
        )
    return found


class Strict(np.recarray):
    def __getitem__(self, key):
        check(key)
        return super().__getitem__(key)

    def __setitem__(self, key, value):
        check(key)
        super().__setitem__(key, value)


def check(key) -> None:
    for index in key if isinstance(key, tuple) else (key,):
        if isinstance(index, int | np.integer) and index < 0:
            raise IndexError(f"index {key}")


def be_strict() -> None:
    """Every array that kernels get from now on refuses negative indices."""

    def strict(make):
        def made(*args):
            arrays = make(*args)
            return arrays._replace(**{name: array.view(Strict) for name, array in arrays._asdict().items()})

        return made

    driver.make_state, driver.make_arrivals = strict(driver.make_state), strict(driver.make_arrivals)


if __name__ == "__main__":
    if "--strict" in sys.argv:
        be_strict()
    sys.stdout.write(json.dumps(results()))
