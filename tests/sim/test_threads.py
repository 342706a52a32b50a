"""Compiled runs go on without Python's lock: side by side, and until they are stopped."""

import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from oracles import crowded
from oracles.random_clusters import make_case

from agentctl.policies.base import load_policy
from agentctl.sim import driver
from agentctl.sim.driver import simulate
from agentctl.sim.state import STOP


def crowded_case():
    limits, trace_block, _ = crowded.RUNS[0]
    return make_case(*crowded.sessions(trace_block), trace_block, [limits] * 2)


def test_runs_side_by_side_give_the_bytes_of_runs_one_after_another():
    case, policies = crowded_case(), [load_policy(name) for name in ("round-robin", "lmetric", "lpwl")] * 2

    def run(policy):
        return simulate(case.workload, case.cluster, policy).table()

    alone = [run(policy) for policy in policies]
    with ThreadPoolExecutor(3) as pool:
        for one, other in zip(alone, pool.map(run, policies), strict=True):
            assert one.equals(other)


def test_whatever_is_raised_while_watching_stops_the_run(monkeypatch):
    """The progress function stands for Ctrl-C: both are raised in the thread that watches."""
    # however short the run: nothing has ended at the first look
    monkeypatch.setattr(driver, "wait", lambda runs, timeout: SimpleNamespace(done=set()))
    case, states = crowded_case(), []
    real = driver.make_state
    monkeypatch.setattr(driver, "make_state", lambda *what: states.append(real(*what)) or states[-1])
    before = threading.active_count()

    class Enough(Exception):
        pass

    def stop(share, what):
        raise Enough

    with pytest.raises(Enough):
        simulate(case.workload, case.cluster, load_policy("lmetric"), progress=stop)
    assert states[0].counts[STOP] == 1
    assert threading.active_count() == before


LONG_RUN = """
import sys, numpy as np
sys.path.insert(0, {tests!r})
from oracles.random_clusters import make_case
from oracles.reference_simulator import BatchCoefficients, Limits, Request
from agentctl.policies.base import load_policy
from agentctl.sim.driver import simulate
limits = [Limits(kv_blocks=100, batch_time=BatchCoefficients(b0=1e-3))]
small = make_case([Request(20, 2)], [], None, limits)
simulate(small.workload, small.cluster, load_policy("lmetric"))
requests = [Request(20, 2, arrival=0.01 * r) for r in range(300_000)]
case = make_case(requests, [], None, limits * 64)
def progress(share, what):  # the run is under way; what stands in the pipe twice does no harm
    print("ready", flush=True)
simulate(case.workload, case.cluster, load_policy("lmetric"), progress=progress)
print("ended", flush=True)
"""


def test_ctrl_c_stops_a_compiled_run():
    tests = str(Path(__file__).parents[1])
    run = subprocess.Popen(
        [sys.executable, "-c", LONG_RUN.format(tests=tests)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert run.stdout.readline() == "ready\n"
    run.send_signal(signal.SIGINT)
    out, err = run.communicate(timeout=60)
    assert "ended" not in out and "KeyboardInterrupt" in err
