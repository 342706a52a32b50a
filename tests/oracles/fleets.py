"""Fleets of models at random, and a router in plain Python with agentctl.estimators.ttft."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace

import numpy as np

from agentctl.cluster import Cluster, Pool, Router
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.lps import Lps, estimate
from agentctl.estimators.sfs import Probe
from agentctl.estimators.sfs_simulated import snapshot_of
from agentctl.estimators.ttft import ESTIMATORS, Averages, EventRate
from agentctl.profile import Profile
from agentctl.trace import PrefixTree
from agentctl.workload import AT_ARRIVAL, Fleet, PoolMeans, Requests, Workload

NO_TREE = PrefixTree(*(np.zeros(1, kind) for kind in (np.uint32, np.int32, np.uint64, np.int64)))
RATES = np.linspace(0, 0.9, 7)  # of saturation
AVERAGES = Averages(30_000.0, 2_000.0, 0.01)


@dataclass
class Case:
    workload: Workload
    cluster: Cluster
    averages: list[Averages]  # by pool


def requests_of(arrival, prompt, output) -> Requests:
    """Each by itself, without blocks."""
    n = len(arrival)
    none = np.full(n, -1, np.int32)
    zeros = np.zeros(n, np.int32)
    return Requests(
        np.asarray(arrival, float), np.asarray(prompt, np.int64), np.asarray(output, np.int64),
        np.arange(n, dtype=np.int32), zeros, none, np.full(n, AT_ARRIVAL, np.int8), np.zeros(n),
        np.zeros(n + 1, np.int64), zeros[:0], zeros.astype(np.uint32), none, zeros,
    )  # fmt: skip


def fleet_case(seed: int, n: int = 60, rate: float = 30.0, **router) -> Case:
    """Three pools, of 2, 1 and 1 engines: a small fast model, a larger one with few places, a slow one."""
    random = np.random.default_rng(seed)
    arrival = np.cumsum(random.exponential(1 / rate, n))
    prompt, output = random.integers(10, 3000, (n, 3)), random.integers(1, 120, (n, 3))
    times = [
        BatchTime("hinge", b0, 2e-5 * k, 3e-5, 4e-8, 4e-8, 1e-9)
        for k, b0 in ((1, 2e-3), (2, 6e-3), (4, 1e-2))
    ]
    pools = tuple(
        Pool(
            f"p{k}", Profile(one, model=f"m{k}"), kv_blocks, 16, engines=2 if k == 0 else 1,
            max_num_batched_tokens=1024, max_num_seqs=seqs, prefix_caching=False,
        )
        for k, (one, kv_blocks, seqs) in enumerate(zip(times, (2000, 900, 1500), (64, 4, 16), strict=True))
    )  # fmt: skip
    queues = [Lps(60.0, tuple(np.arange(1, 9) / (0.01 + 0.002 * k * np.arange(1, 9))), 8) for k in (1, 2, 3)]
    rates = np.array([RATES * queue.saturation_rate for queue in queues])
    waits = np.array(
        [[estimate(q, r).wait if r else 0.0 for r in own] for q, own in zip(queues, rates, strict=True)]
    )
    means = PoolMeans(*(np.full(3, value) for value in (30_000.0, 2_000.0, 0.01, 2.0, 3.0)), rates, waits)
    fleet = Fleet(
        models=("m0", "m1", "m2"), prompt_tokens=prompt, output_tokens=output,
        score=random.random((n, 3)), accuracy=random.random((n, 3)),
        predicted_output=np.maximum(1, (output * random.uniform(0.3, 2, (n, 3))).astype(np.int64)),
        tau_s=random.uniform(0.02, 0.3, n), task=random.integers(-1, 2, n), tasks=("a", "b"),
        prompt_price=np.array([0.05, 0.1, 0.3]), output_price=np.array([0.2, 0.3, 0.6]), means=means,
    )  # fmt: skip
    workload = Workload(
        requests_of(arrival, prompt[:, 0], output[:, 0]), NO_TREE, None,
        [f"r{r}" for r in range(n)], [f"s{r}" for r in range(n)], "timestamps", {}, fleet=fleet,
    )  # fmt: skip
    averages = [replace(AVERAGES, queue=queue) for queue in queues]
    return Case(workload, Cluster(pools, Router(**router)), averages)


def on_one(case: Case, pool: int) -> Workload:
    """The same requests as if the log were of that pool's model."""
    fleet, requests = case.workload.fleet, case.workload.requests
    return replace(
        case.workload,
        fleet=None,
        requests=requests._replace(
            prompt_tokens=fleet.prompt_tokens[:, pool].copy(),
            output_tokens=fleet.output_tokens[:, pool].copy(),
        ),
    )


def as_written(points, rate: float) -> float:
    """A wait between the points of the curve; agentctl.sim.fleet knows no more of the queue."""
    rates, waits = points
    return float(np.interp(rate, rates, waits)) if rate < rates[-1] else 60.0


class Judge:
    """Says what each estimator says of each engine when a request arrives, and follows a given choice."""

    def __init__(self, case: Case, choose):
        self.case, self.choose, self.said = case, choose, {}
        self.pool_of = np.repeat(np.arange(3), [pool.engines for pool in case.cluster.pools])
        k, fleet = self.pool_of.size, case.workload.fleet
        self.arrivals = [EventRate(2.0) for _ in range(k)]
        self.completions = [EventRate(3.0) for _ in range(k)]
        self.predicted = np.ones(case.workload.n_requests, np.int64)
        self.fleet, self.state, self.over = fleet, None, 0

    def policy(self):
        return SimpleNamespace(name="judge", my=None, choose=self.place, estimator="sfs")

    def place(self, view, requests, r, my):
        s, now = self.state(), view.now
        for q in view.over[self.over : view.n_over]:
            e = int(s.jobs["engine"][q])
            if e >= 0:
                self.completions[e].add(float(s.jobs["finish"][q]))
        self.over = view.n_over
        self.said[r] = [self.estimates(s, e, r, now) for e in range(self.pool_of.size)]
        chosen = self.choose(view, r)
        pool = self.pool_of[chosen]
        self.predicted[r] = self.fleet.predicted_output[r, pool]
        self.arrivals[chosen].add(now)
        return chosen

    def estimates(self, s, e, r, now):
        pool = self.pool_of[e]
        snapshot = snapshot_of(s, e, self.case.cluster.pools[pool], now, self.predicted)
        probe = Probe(int(self.fleet.prompt_tokens[r, pool]), int(self.fleet.predicted_output[r, pool]))
        known = replace(
            self.case.averages[pool],
            arrivals_per_s=self.arrivals[e].at(now), completions_per_s=self.completions[e].at(now),
        )  # fmt: skip
        said = {name: estimator(snapshot, probe, now, known) for name, estimator in ESTIMATORS.items()}
        means = self.fleet.means
        wait = as_written((means.rates[pool], means.waits[pool]), known.arrivals_per_s)
        said["lps"] = wait + probe.prompt_tokens / known.prefill_tokens_per_s
        return said
