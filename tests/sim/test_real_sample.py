"""Real agent sessions, blocks by the ten thousand: the simulator still equals the judge.

The data is the bundled sample of Claude Code sessions (sample_traces/README.md).
"""

from pathlib import Path

import numpy as np
import pytest
from oracles import reference_simulator as oracle
from oracles.random_clusters import cluster_of, judge_requests
from oracles.reference_simulator import BatchCoefficients, Limits

from agentctl.ingest.build import ingest
from agentctl.policies.base import load_policy
from agentctl.sim.driver import simulate
from agentctl.workload import compile_workload, take_sessions

SAMPLE = Path(__file__).parents[2] / "sample_traces" / "weka_small.jsonl.gz"
H100 = BatchCoefficients(6.55e-3, 17.3e-6, 17.3e-6, 45.9e-9, 45.9e-9, 0.94e-9)  # the preset's, per 1 token


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    trace = ingest([str(SAMPLE)], tmp_path_factory.mktemp("sample") / "weka.trace").trace
    return compile_workload(trace)


@pytest.mark.parametrize("policy", ["lmetric", "smetric"])
def test_sample_sessions_equal_the_judge(workload, policy):
    """The four shortest sessions, started together on two engines that cannot hold them all."""
    sizes = np.bincount(workload.requests.session, weights=workload.requests.prompt_tokens)
    some = take_sessions(workload, np.sort(np.argsort(sizes)[:4]), np.zeros(4))
    limits = [Limits(kv_blocks=2500, block_tokens=64, batch_time=H100)] * 2
    cluster = cluster_of(limits)
    chosen = load_policy(policy, batch_time=cluster.pools[0].profile.batch_time)

    def choose(view, r):
        arrays = {k: np.array(v) if isinstance(v, list) else v for k, v in vars(view).items()}
        return int(chosen.choose(type(view)(**arrays), some.requests, r, chosen.my))

    judged = oracle.Cluster(judge_requests(some), limits, choose, trace_block=64).run()
    out = simulate(some, cluster, chosen)
    assert len({result.engine for result in judged}) == 2
    assert out.engine.tolist() == [result.engine for result in judged]
    assert out.hit_tokens.tolist() == [result.hit for result in judged]
    assert out.preemptions.tolist() == [result.preemptions for result in judged]
    for mine, name in ((out.first_token_s, "first_token"), (out.finish_s, "finish")):
        np.testing.assert_allclose(mine, [getattr(result, name) for result in judged], rtol=1e-9)


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
