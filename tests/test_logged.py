from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from agentctl.cluster import Router, cluster_of
from agentctl.errors import ConfigError, InputError
from agentctl.estimators.batch_time import BatchTime
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.logged import LoggedRun, engines_in
from agentctl.policies.base import load_policy, policy_names
from agentctl.profile import Profile
from agentctl.sim.driver import simulate

SPEED = BatchTime("hinge", 5e-3, 3e-5, 5e-5, 1e-7, 1e-7, 1e-9)
SLOWER = SPEED._replace(b0=9e-3)
PROFILE = Profile(SPEED, kv_blocks=600, block_tokens=16, max_num_seqs=8, max_num_batched_tokens=512)


def logged(tmp_path, engines, n=40, latency=True, name="run"):
    """A trace of n requests, the k-th served by engines[k]; None: the log does not say."""
    rng = np.random.default_rng(3)
    rows = []
    for k in range(n):
        row = {
            "id": f"r{k}", "at": 100.0 + 0.05 * k, "in": int(rng.integers(50, 900)),
            "out": int(rng.integers(1, 60)), "engine": engines[k],
        }  # fmt: skip
        rows.append(row | ({"ttft": 0.1, "e2e": 0.5} if latency else {}))
    path = tmp_path / f"{name}.jsonl"
    path.write_text(
        "".join(json.dumps({key: v for key, v in row.items() if v is not None}) + "\n" for row in rows)
    )
    names = {"request_id": "id", "arrival_s": "at", "prompt_tokens": "in", "output_tokens": "out",
             "instance": "engine", "ttft_s": "ttft", "e2e_s": "e2e"}  # fmt: skip
    present = set().union(*rows)
    mapping = {ours: theirs for ours, theirs in names.items() if theirs in present}
    return ingest([path], tmp_path / f"{name}.trace", IngestOptions(format="generic", map=mapping)).trace


def test_every_request_goes_where_the_log_says(tmp_path):
    engines = [("b", "a", "c")[(k * k + k // 5) % 3] for k in range(40)]
    trace = logged(tmp_path, engines)
    run = LoggedRun(trace, cluster_of(PROFILE, 3))
    assert run.placement.names == engines_in(trace) == ("a", "b", "c")
    assert [run.placement.names[e] for e in run.simulate().engine] == engines


def test_one_engine_needs_no_placement_and_gives_what_any_policy_gives(tmp_path):
    trace = logged(tmp_path, [None] * 40)
    run = LoggedRun(trace, cluster_of(PROFILE))
    other = simulate(run.workload, cluster_of(PROFILE, router=Router()), load_policy("round-robin"))
    assert run.simulate().table().equals(other.table())


def test_running_again_leaves_nothing_of_the_run_before(tmp_path):
    trace = logged(tmp_path, list("ab" * 20))
    run = LoggedRun(trace, cluster_of(PROFILE, 2))
    first, slower = run.simulate(observed=True).table(), run.simulate(SLOWER).table()
    assert run.simulate().table().equals(first) and not slower.equals(first)
    anew = LoggedRun(trace, cluster_of(replace(PROFILE, batch_time=SLOWER), 2))
    assert anew.simulate().table().equals(slower)
    ttft, e2e = run.latencies(SLOWER)
    outcome = anew.simulate()
    assert np.array_equal(ttft, outcome.first_token_s - outcome.arrival_s)
    assert np.array_equal(e2e, outcome.finish_s - outcome.arrival_s)


def test_the_few_requests_that_name_no_engine_are_placed_and_counted(tmp_path):
    engines = [*"ab" * 60]
    engines[7] = None
    run = LoggedRun(logged(tmp_path, engines, n=120), cluster_of(PROFILE, 2))
    assert run.placement.n_guessed == 1
    assert run.simulate().engine[7] == 0


def test_a_log_that_does_not_say_who_served_is_refused_for_more_engines_than_one(tmp_path):
    trace = logged(tmp_path, ["a", None] * 20)
    with pytest.raises(InputError, match="20 of 40 requests do not say which engine"):
        LoggedRun(trace, cluster_of(PROFILE, 2))
    trace = logged(tmp_path, [*"ab" * 20], name="two")
    with pytest.raises(ConfigError, match="the log names 2 engines and the cluster has 3"):
        LoggedRun(trace, cluster_of(PROFILE, 3))


def test_a_log_without_latencies_is_refused(tmp_path):
    with pytest.raises(InputError, match="no request has a measured latency"):
        LoggedRun(logged(tmp_path, [None] * 40, latency=False), cluster_of(PROFILE))


def test_with_a_policy_that_policy_decides(tmp_path):
    run = LoggedRun(logged(tmp_path, [None] * 40), cluster_of(PROFILE, 2), load_policy("round-robin"))
    assert run.placement is None
    assert list(run.simulate().engine) == [0, 1] * 20


def test_the_logged_placement_is_no_policy_that_can_be_chosen():
    assert "as-logged" not in policy_names()
