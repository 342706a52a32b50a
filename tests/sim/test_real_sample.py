"""Real agent sessions, blocks by the ten thousand: the simulator still equals the judge.

The data is the bundled sample of Claude Code sessions (sample_traces/README.md).
"""

from pathlib import Path

import numpy as np
import pytest
from oracles import reference_simulator as oracle
from oracles.interpreted import interpreted_policies
from oracles.random_clusters import cluster_of, judge_requests
from oracles.reference_simulator import BatchCoefficients, Limits

from agentctl.ingest.build import ingest
from agentctl.policies.base import load_policy
from agentctl.sim.driver import simulate
from agentctl.workload import compile_workload, take_sessions

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "weka_small.jsonl.gz"
H100 = BatchCoefficients(6.55e-3, 17.3e-6, 17.3e-6, 45.9e-9, 45.9e-9, 0.94e-9)  # the preset's, per 1 token


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return ingest([str(SAMPLE)], tmp_path_factory.mktemp("sample") / "weka.trace").trace


@pytest.fixture(scope="module")
def workload(trace):
    return compile_workload(trace)


def shortest(workload, n_sessions):
    """Its sessions of fewest prompt tokens, started together."""
    sizes = np.bincount(workload.requests.session, weights=workload.requests.prompt_tokens)
    return take_sessions(workload, np.sort(np.argsort(sizes)[:n_sessions]), np.zeros(n_sessions))


def run_both(some, policy, concurrency=None):
    """The judge's results and the simulator's outcome on two engines that cannot hold all sessions."""
    limits = [Limits(kv_blocks=2500, block_tokens=64, batch_time=H100)] * 2
    cluster = cluster_of(limits)
    chosen = load_policy(policy, batch_time=cluster.pools[0].profile.batch_time)

    def choose(view, r):
        arrays = {k: np.array(v) if isinstance(v, list) else v for k, v in vars(view).items()}
        return int(chosen.choose.py_func(type(view)(**arrays), some.requests, r, chosen.my))

    judge = oracle.Cluster(judge_requests(some), limits, choose, trace_block=64, concurrency=concurrency)
    with interpreted_policies():
        judged = judge.run()
    return judged, simulate(some, cluster, chosen, concurrency=concurrency)


def check_equal(judged, out):
    assert len({result.engine for result in judged}) == 2
    assert out.engine.tolist() == [result.engine for result in judged]
    assert out.hit_tokens.tolist() == [result.hit for result in judged]
    assert out.preemptions.tolist() == [result.preemptions for result in judged]
    for name in ("arrival", "scheduled", "first_token", "finish"):
        judged_s = [getattr(result, name) for result in judged]
        np.testing.assert_allclose(getattr(out, f"{name}_s"), judged_s, rtol=1e-9)


@pytest.mark.parametrize("policy", ["lmetric", "smetric"])
def test_sample_sessions_equal_the_judge(workload, policy):
    """By think time: the four shortest sessions started together."""
    assert workload.replay == "thinktime"
    check_equal(*run_both(shortest(workload, 4), policy))


def test_sample_sessions_in_a_closed_loop_equal_the_judge(trace):
    """The five shortest sessions, two at a time: the others start when one has ended whole."""
    some = shortest(compile_workload(trace, "closed-loop"), 5)
    judged, out = run_both(some, "lmetric", concurrency=2)
    check_equal(judged, out)
    session = some.requests.session
    begin = np.array([out.arrival_s[session == one].min() for one in range(5)])
    end = np.array([out.finish_s[session == one].max() for one in range(5)])
    assert sorted(begin)[:2] == [0.0, 0.0]
    assert sorted(begin)[2:] == sorted(end)[:3]


def test_affinity_finds_what_an_infinite_cache_would_and_spreading_does_not(workload):
    """On engines that hold everything, prompts meet their session's KV only where it is."""
    cluster = cluster_of([Limits(kv_blocks=100_000, block_tokens=64, batch_time=H100)] * 4)
    prompt = workload.requests.prompt_tokens.sum()
    hits = {
        name: simulate(workload, cluster, load_policy(name)).hit_tokens.sum() / prompt
        for name in ("prefix-affine", "round-robin")
    }
    assert hits["prefix-affine"] > 0.85
    assert hits["round-robin"] < 0.6
