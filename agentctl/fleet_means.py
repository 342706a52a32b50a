"""What engines of each pool do on average: measured in a run of each pool alone, as a calibration would."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster, Pool, Router
from agentctl.estimators.lps import Lps, estimate
from agentctl.estimators.lps_batch import from_profile
from agentctl.policies.base import load_policy
from agentctl.profile import Profile
from agentctl.sim.driver import simulate
from agentctl.trace import PrefixTree
from agentctl.workload import AT_ARRIVAL, PoolMeans, Requests, Workload

MOST = 2_000  # requests of a run
LOAD = 0.5  # of the rate at which an engine saturates
POINTS = 33
NO_TREE = PrefixTree(
    np.zeros(1, np.uint32), np.zeros(1, np.int32), np.zeros(1, np.uint64), np.zeros(1, np.int64)
)
I64 = NDArray[np.int64]


def measured(
    cluster: Cluster, prompt_tokens: I64, output_tokens: I64, seed: int = 0, load: float = LOAD
) -> PoolMeans:
    """Arrays [pool]. One engine of each serves the first requests of the workload, as long as they are on its
    model (arrays [request, pool]), without a cache, at random times and half of what it can.

    Prefill seconds run from admission to the first token; the rate of decodes is tokens over the time in
    which anything decodes, where the paper counts batches of decodes alone. Waits are those of limited
    processor sharing from the pool's coefficients (agentctl.estimators.lps_batch).
    """
    columns = []
    for p, pool in enumerate(cluster.pools):
        prompt, output = prompt_tokens[:MOST, p], output_tokens[:MOST, p]
        columns.append(_of_pool(pool, prompt, output, seed, load))
    return PoolMeans(*(np.array(values) for values in zip(*columns, strict=True)))


def queue_of(pool: Pool, prompt: I64, output: I64) -> Lps:
    """The queue that one engine of the pool is to these requests."""
    limits = ("kv_blocks", "block_tokens", "max_num_batched_tokens", "max_num_seqs")
    engine = Profile(pool.profile.batch_time, **{name: getattr(pool, name) for name in limits})
    return from_profile(engine, prompt.mean(), output.mean(), 0.0, _scv(output), _scv(prompt))


def _scv(values: I64) -> float:
    return float(values.var() / values.mean() ** 2)


def _of_pool(pool: Pool, prompt: I64, output: I64, seed: int, load: float) -> tuple:
    queue = queue_of(pool, prompt, output)
    saturation = queue.saturation_rate
    gaps = np.random.Generator(np.random.PCG64(seed)).exponential(1 / (load * saturation), prompt.size)
    workload = alone(np.cumsum(gaps), prompt, output)
    one = replace(pool, engines=1, role="both", prefix_caching=False)
    out = simulate(workload, Cluster((one,), Router()), load_policy("round-robin"))
    done, long = out.done, out.done & (output > 1)
    prefill = (out.first_token_s - out.scheduled_s)[done].sum()
    decode = (out.finish_s - out.first_token_s)[long].sum()
    tokens = (output[long] - 1).sum()
    busy = _union_s(out.first_token_s[long], out.finish_s[long])
    rates = saturation * (1 - (1 - np.linspace(0, 0.995, POINTS)) ** 2) / (1 - (1 - 0.995) ** 2) * 0.995
    waits = [0.0, *(_wait(queue, rate) for rate in rates[1:].tolist())]
    span = out.finish_s[done].max() - out.arrival_s.min()
    completions = float(done.sum() / span)
    return (
        _over(prompt[done].sum(), prefill), _over(tokens, busy), _over(decode, tokens), load * saturation,
        completions, rates, np.array(waits),
    )  # fmt: skip


def _over(amount: float, seconds: float) -> float:
    return float(amount / seconds) if seconds > 0 else np.inf if amount else 0.0


def _wait(queue: Lps, rate: float) -> float:
    wait = estimate(queue, rate).wait
    return np.inf if wait is None else wait


def _union_s(begins: NDArray[np.float64], ends: NDArray[np.float64]) -> float:
    """Seconds in which any of the intervals is open."""
    if not begins.size:
        return 0.0
    order = np.argsort(begins, kind="stable")
    begins, latest = begins[order], np.maximum.accumulate(ends[order])
    gaps = np.maximum(begins[1:] - latest[:-1], 0.0)
    return float(latest[-1] - begins[0] - gaps.sum())


def alone(arrival_s: NDArray[np.float64], prompt: I64, output: I64) -> Workload:
    """Requests each by itself, without blocks."""
    n = prompt.size
    none, zeros = np.full(n, -1, np.int32), np.zeros(n, np.int32)
    requests = Requests(
        arrival=np.ascontiguousarray(arrival_s, np.float64),
        prompt_tokens=np.ascontiguousarray(prompt),
        output_tokens=np.ascontiguousarray(output),
        session=np.arange(n, dtype=np.int32),
        turn=zeros,
        parent=none,
        release=np.full(n, AT_ARRIVAL, np.int8),
        gap=np.zeros(n),
        deps_start=np.zeros(n + 1, np.int64),
        deps=zeros[:0],
        tip=zeros.astype(np.uint32),
        confirmed_child=none,
        priority=zeros,
    )
    names = [str(r) for r in range(n)]
    return Workload(requests, NO_TREE, None, names, names, "timestamps", {})
