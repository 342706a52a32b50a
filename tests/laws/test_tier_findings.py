"""What was published of KV tiers and policies (SMetric, arXiv 2607.08565), as shapes on the frozen workload.

One run each at one load, below saturation; peaks with tiers of several sizes: benchmarks/tier_shapes.py.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from agentctl.cluster import Cluster, parse_cluster
from agentctl.policies.base import load_policy
from agentctl.sim.driver import simulate
from agentctl.sim.outcome import Outcome
from agentctl.synth.agentic import agentic
from agentctl.synth.dataset import synthesise
from agentctl.tier_use import break_even_tokens
from agentctl.trace import open_trace
from agentctl.workload import Workload, compile_workload

POOL = {"name": "main", "engines": 8, "profile": "h100-qwen3-8b", "block_tokens": 64, "kv_blocks": 8193}
PROVISIONED = {"name": "global", "preset": "rdma-store", "capacity_tokens": 50_000_000}


@pytest.fixture(scope="module")
def workload(tmp_path_factory) -> Workload:
    folder = tmp_path_factory.mktemp("frozen") / "agentic.trace"
    synthesise(agentic(), folder, sessions=1500, sessions_per_min=20.0)
    return compile_workload(open_trace(folder))


def cluster(*tiers: dict) -> Cluster:
    return parse_cluster({"schema": "agentctl/cluster/1", "pool": [POOL], "kv_tier": list(tiers)}, "c.toml")


def run(workload: Workload, on: Cluster, policy: str) -> Outcome:
    chosen = load_policy(policy, batch_time=on.pools[0].profile.batch_time)
    outcome = simulate(workload, on, chosen)
    assert outcome.done.all()
    return outcome


def reuse(outcome: Outcome) -> float:
    return outcome.found_tokens.sum() / outcome.workload.requests.prompt_tokens.sum()


def mean_e2e_s(outcome: Outcome) -> float:
    return float(np.mean(outcome.finish_s - outcome.arrival_s))


def test_without_a_tier_the_reuse_of_a_balancing_policy_collapses_and_with_one_it_does_not(workload):
    """Published: 45 % without a tier against 74 % of a policy that favours the cache."""
    balancing, sticky = (reuse(run(workload, cluster(), name)) for name in ("least-loaded", "session-sticky"))
    assert balancing < 0.65 * sticky
    tiered = cluster(PROVISIONED)
    balancing, sticky = (reuse(run(workload, tiered, name)) for name in ("least-loaded", "session-sticky"))
    assert balancing > 0.97 * sticky


def test_a_tier_slower_than_recompute_hurts_unless_it_is_used_only_where_it_is_faster(workload):
    rate = dict.fromkeys(("read_bytes_per_s", "write_bytes_per_s", "engine_read_bytes_per_s"), 3e8)
    always = cluster({**PROVISIONED, **rate, "use_if_faster": False})
    if_faster = cluster({**PROVISIONED, **rate, "use_if_faster": True})
    profile = always.pools[0].profile
    shortest = break_even_tokens(always.kv_tiers[0], profile.batch_time, profile.kv_bytes_per_token)
    assert shortest > 2 * workload.requests.prompt_tokens.max()
    without = run(workload, cluster(), "least-loaded")
    assert mean_e2e_s(run(workload, always, "least-loaded")) > 1.2 * mean_e2e_s(without)
    np.testing.assert_array_equal(run(workload, if_faster, "least-loaded").finish_s, without.finish_s)


def test_more_of_the_same_tier_finds_more(workload):
    found = [
        reuse(run(workload, cluster({**PROVISIONED, "capacity_tokens": n}), "round-robin"))
        for n in (500_000, 2_000_000, 10_000_000)
    ]
    assert found == sorted(found) and found[2] > found[0]


def test_a_tier_that_is_never_read_changes_nothing(workload):
    """Storing costs the engines nothing: only what is loaded does."""
    unread = replace(cluster(PROVISIONED).kv_tiers[0], read_bytes_per_s=1.0, engine_read_bytes_per_s=None)
    without = run(workload, cluster(), "lmetric")
    beside = run(workload, replace(cluster(), kv_tiers=(unread,)), "lmetric")
    for name in ("engine", "first_token_s", "finish_s", "hit_tokens", "preemptions"):
        np.testing.assert_array_equal(getattr(without, name), getattr(beside, name))
    assert beside.hit_global_tokens is not None and beside.hit_global_tokens.sum() == 0
