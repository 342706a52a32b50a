"""The set-up of the latency-aware routing paper (SFS, arXiv 2607.18253): which router is worth most, in which
order, over several draws of the workload and of the arrivals. Sizes are as they come out, and not checked."""

import tomllib
from functools import cache

import numpy as np
import pytest

from agentctl.cluster import parse_cluster
from agentctl.fleet import Question, models_of, with_fleet
from agentctl.fleet_use import fleet_facts
from agentctl.labels import read_labels
from agentctl.metrics import measure_of
from agentctl.policies.base import load_policy
from agentctl.predictions import predict
from agentctl.sim.driver import simulate
from agentctl.synth.labelled import labels_path, synthesise_labelled
from agentctl.trace import open_trace
from agentctl.workload import Process, arrange, compile_workload

POOL = """
[[pool]]
name = "{0}"
profile = "h100-qwen3-{0}-sfs"
price_per_million_prompt_tokens = {1}
price_per_million_output_tokens = {2}
max_num_batched_tokens = 32768
max_num_seqs = 512
prefix_caching = false
"""
POOLS = (("0.6b", 0.044, 0.173), ("8b", 0.072, 0.287), ("32b-tp2", 0.287, 0.640))  # published prices
REQUESTS, SEEDS, RATES = 2000, 5, (5.0, 6.0, 7.0)
BASELINES = ("round-robin", "least-loaded", "latency-agnostic")


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    """(cluster, seed -> its workload and what is predicted): every seed draws other prompts and answers."""
    text = 'schema = "agentctl/cluster/1"\n' + "".join(POOL.format(*pool) for pool in POOLS)
    cluster, folder = parse_cluster(tomllib.loads(text), "paper"), tmp_path_factory.mktemp("paper")

    @cache
    def drawn(seed):
        path = folder / f"{seed}.trace"
        synthesise_labelled(path, requests=REQUESTS, seed=seed)
        trace = open_trace(path)
        told = predict(trace, read_labels(labels_path(path)), models_of(cluster), folds=3)
        return compile_workload(trace), told

    return cluster, drawn


def at(paper, seed, process, rate, outputs="predicted"):
    cluster, drawn = paper
    workload, told = drawn(seed)
    workload = with_fleet(workload, cluster, told, Question(outputs=outputs, seed=seed))
    return arrange(workload, Process(**{"rate": rate, **process}), seed)


@pytest.mark.parametrize(
    "process", [{"kind": "poisson"}, {"kind": "mmpp", "ratio": 3.0}], ids=["poisson", "mmpp"]
)
def test_routing_by_sfs_is_worth_more_than_every_baseline_on_every_draw(paper, process):
    """AUC of on-time utility, trapezoid over 5, 6 and 7 requests/s."""
    for seed in range(SEEDS):
        areas = {}
        on = [at(paper, seed, process, rate) for rate in RATES]
        for name in ("hard", *BASELINES):
            runs = [simulate(one, paper[0], load_policy(name), seed=seed).run() for one in on]
            areas[name] = np.trapezoid([measure_of("on_time_utility", run) for run in runs], RATES)
        assert areas["hard"] > max(areas[name] for name in BASELINES), (seed, areas)


@pytest.mark.parametrize("outputs", ["true", "predicted", "x0.5", "x1.5"])
def test_estimates_of_sfs_are_within_5_percent_and_all_others_worse(paper, outputs):
    on = at(paper, 0, {"kind": "poisson"}, 7.0, outputs)
    out = simulate(on, paper[0], load_policy("hard"), audits=True)
    mape = {
        one["estimator"]: one["mape"]
        for one in fleet_facts(out, out.run())["estimates"]
        if one["part"] == "all"
    }
    assert mape["sfs"] <= 0.05
    assert all(mape[name] > 4 * mape["sfs"] for name in mape if name != "sfs")
