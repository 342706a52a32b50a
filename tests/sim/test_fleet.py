"""Pools with different models: sizes, beliefs and estimates are those of the judge in plain Python."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from oracles.fleets import Judge, fleet_case, on_one

from agentctl.cluster import Router
from agentctl.errors import ConfigError
from agentctl.policies.base import load_policy
from agentctl.sim import driver
from agentctl.sim.driver import simulate
from agentctl.sim.fleet_state import ESTIMATORS

SEEDS = range(6)


def only(pool_engines):
    return SimpleNamespace(
        name="only", my=None, choose=lambda view, requests, r, my: pool_engines[r % len(pool_engines)]
    )


@pytest.mark.parametrize("pool", [0, 1, 2])
def test_requests_are_as_long_as_they_are_on_the_model_that_serves_them(pool):
    """All sent to one pool: what a cluster of that pool alone makes of a log of that model."""
    case = fleet_case(pool)
    engines = [(0, 1), (2,), (3,)][pool]
    there = simulate(case.workload, case.cluster, only(engines))
    lone = replace(case.cluster, pools=(case.cluster.pools[pool],))
    alone = simulate(on_one(case, pool), lone, only(range(len(engines))))
    for name in (
        "arrival_s",
        "scheduled_s",
        "first_token_s",
        "finish_s",
        "computed_prefill_tokens",
        "preemptions",
    ):
        assert np.array_equal(getattr(there, name), getattr(alone, name), equal_nan=True), name
    served, fleet = there.served, case.workload.fleet
    assert np.array_equal(served.prompt_tokens, fleet.prompt_tokens[:, pool])
    assert np.array_equal(there.output_tokens, fleet.output_tokens[:, pool])
    assert np.array_equal(served.score, fleet.score[:, pool])
    price = fleet.prompt_price[pool], fleet.output_price[pool]
    assert np.allclose(served.cost, there.prompt_tokens * price[0] + there.output_tokens * price[1])


@pytest.mark.parametrize("seed", SEEDS)
def test_every_estimator_says_what_it_says_in_plain_python(seed, monkeypatch):
    case = fleet_case(seed, rate=(20, 60, 120)[seed % 3])
    judge = Judge(case, lambda view, r: (r * 7 + seed) % 4)
    states, real = [], driver.make_state
    monkeypatch.setattr(driver, "make_state", lambda *what: states.append(real(*what)) or states[-1])
    judge.state = lambda: states[-1]
    believed = []

    def place(view, requests, r, my):
        believed.append(view.ttft_s.copy())
        return judge.place(view, requests, r, my)

    policy = SimpleNamespace(name="judge", my=None, choose=place, estimator="sfs")
    out = simulate(case.workload, case.cluster, policy, audits=True)
    for r, said in judge.said.items():
        assert believed[r] == pytest.approx([one["sfs"] for one in said], rel=1e-9)
        chosen = said[(r * 7 + seed) % 4]
        for name in ESTIMATORS:
            assert out.served.audits[name][r] == pytest.approx(chosen[name], rel=1e-9), (r, name)
    assert out.served.believed_ttft_s == pytest.approx(out.served.audits["sfs"])


@pytest.mark.parametrize("name", ["hard", "soft", "latency-agnostic", "hard@quantile", "hard@lps"])
def test_a_policy_chooses_the_best_by_what_it_believes(name):
    """Against the rule written out, on the numbers that it was shown."""
    case, policy = fleet_case(3, n=150, rate=60), load_policy(name)
    seen = []

    def choose(view, requests, r, my):
        shown = {key: getattr(view, key).copy() for key in ("accuracy", "cost", "ttft_s", "ttft_high_s")}
        chosen = policy.choose.py_func(view, requests, r, policy.my)
        seen.append((shown, view.tau_s, view.lam, chosen))
        return chosen

    plain = SimpleNamespace(name=name, my=policy.my, choose=choose, estimator=policy.estimator, sees=None)
    out = simulate(case.workload, case.cluster, plain)
    n_late = 0
    for shown, tau, lam, chosen in seen:
        worth = shown["accuracy"] - lam * shown["cost"]
        ttft = shown["ttft_high_s" if name == "hard@quantile" else "ttft_s"]
        if name == "latency-agnostic":
            best = worth
        elif name == "soft":
            best = worth - 0.001 * 1000 * ttft
        elif (ttft <= tau).any():
            best = np.where(ttft <= tau, worth, -np.inf)
        else:
            best, n_late = -ttft, n_late + 1
        assert best[chosen] == best.max()
    assert out.done.all() and (name in ("soft", "latency-agnostic") or 0 < n_late < 150)
    compiled = simulate(case.workload, case.cluster, policy)
    assert np.array_equal(compiled.engine, out.engine)


def test_a_bound_is_missed_by_the_share_of_requests_that_was_asked_for():
    case = fleet_case(5, n=4000, rate=40)
    policy = load_policy("hard@quantile", {"miss_share": 0.2})
    missed = []

    def choose(view, requests, r, my):
        chosen = policy.choose.py_func(view, requests, r, policy.my)
        missed.append(view.ttft_high_s[chosen])
        return chosen

    out = simulate(case.workload, case.cluster, SimpleNamespace(
        name="bound", my=policy.my, choose=choose, estimator="sfs"))  # fmt: skip
    late = out.first_token_s - out.arrival_s > np.array(missed)
    assert late[500:].mean() == pytest.approx(0.2, abs=0.03)


@pytest.mark.parametrize("gateways", [1, 3])
def test_what_was_published_and_what_was_sent_since_tell_as_much_as_fresh_metrics(gateways):
    """When answers are as long as predicted and none is sent and over between two publishes. Of several
    gateways each knows only what it has sent itself."""
    case = fleet_case(11, n=200, rate=40)
    fleet = case.workload.fleet
    output = fleet.output_tokens + 60
    workload = replace(case.workload, fleet=replace(fleet, output_tokens=output, predicted_output=output))
    policy = SimpleNamespace(name="turns", my=None, choose=lambda view, requests, r, my: r % 4, sees=())
    late = Router(metrics_interval_s=0.05, metrics_delay_s=0.03, gateways=gateways)
    stale = simulate(workload, replace(case.cluster, router=late), policy, audits=True).served.audits
    fresh = simulate(workload, case.cluster, policy, audits=True).served.audits
    for name in ("sfs", "throughput", "score-proxy"):
        same = np.isclose(stale[name], fresh[name], rtol=1e-9)
        if name == "sfs" and gateways == 1:
            assert same.all()
        else:  # averages take what was published as it was
            assert 0.01 < same.mean() < 1
        assert np.median(stale[name] / fresh[name]) == pytest.approx(1, abs=0.2)


def test_a_burst_that_no_metrics_have_shown_yet_is_spread_by_the_ledger():
    case = fleet_case(7, n=40, rate=4000, metrics_interval_s=1.0)
    out = simulate(case.workload, case.cluster, load_policy("soft", {"delta_per_ms": 1.0}))
    assert np.bincount(out.engine, minlength=4).max() < 20


def test_a_policy_between_models_needs_to_know_of_them():
    case = fleet_case(1)
    with pytest.raises(ConfigError, match="chooses between models"):
        simulate(on_one(case, 0), case.cluster, load_policy("hard"))
