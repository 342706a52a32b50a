"""Compiled kernels do what their source says, and no index leaves its array."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from oracles import crowded
from oracles.fleets import fleet_case
from oracles.interpreted import interpreted_policies
from oracles.random_clusters import make_case

import agentctl
from agentctl.policies.base import formula_names, load_policy
from agentctl.sim.driver import simulate

TESTS = Path(__file__).parents[1]


def in_another_process(*arguments, **environment):
    path = os.pathsep.join([str(Path(agentctl.__file__).parents[1]), str(TESTS)])
    run = subprocess.run(
        [sys.executable, "-m", "oracles.crowded", *arguments],
        env={**os.environ, "PYTHONPATH": path, **environment},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def here():
    return crowded.results()


def test_the_runs_are_crowded(here):
    """Or the tests below would compare nothing."""
    assert all(run["done"] > 100 for run in here)
    assert all(run["preemptions"] > 0 for run in here)
    assert [run["hit_tokens"] > 0 for run in here] == [True, True, True, False, True, True]


def test_compiled_equals_interpreted_to_the_bit_and_no_index_is_negative(here):
    assert in_another_process("--strict", NUMBA_DISABLE_JIT="1") == here


@pytest.mark.parametrize("name", formula_names())
def test_a_compiled_policy_decides_as_a_plain_one(name):
    """The driver may replay them in different loops."""
    limits, trace_block, _ = crowded.RUNS[0]
    if load_policy(name).needs_fleet:
        case = fleet_case(0)
    else:
        case = make_case(*crowded.sessions(trace_block), trace_block, [limits] * 2)
    params = {"ttft_slo_s": 0.05} if name == "polyserve" else {}  # packs one engine as long as that is kept
    policy = load_policy(name, params, batch_time=case.cluster.pools[0].profile.batch_time)
    plain = replace(policy, choose=lambda *what: policy.choose.py_func(*what))
    outcome = simulate(case.workload, case.cluster, policy)
    assert {*outcome.engine} >= ({0, 2} if policy.needs_fleet else {0, 1})
    with interpreted_policies():
        assert outcome.table().equals(simulate(case.workload, case.cluster, plain).table())


@pytest.mark.slow
def test_no_index_is_beyond_its_array(here, tmp_path):
    """Compiled anew with bounds checks: cached code would hide the fault."""
    assert in_another_process(NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path)) == here
