"""Rankings under changed assumptions, on candidates whose capacity in every world is known."""

import dataclasses

import numpy as np
import pytest

from agentctl.cluster import cluster_of
from agentctl.policies.base import load_policy
from agentctl.profile import load_profile
from agentctl.recommend.decision import decide
from agentctl.recommend.objectives import OBJECTIVES
from agentctl.recommend.scenario import Scenario
from agentctl.recommend.search import Candidate, Ladder, Measured
from agentctl.recommend.sensitivity import Family, families_of, finalists_of, vary
from agentctl.recommend.study import Plan, Work, study

PROFILE = load_profile("h100-qwen3-8b")
CLUSTER = cluster_of(PROFILE, 4)
LADDER = Ladder(-9, 6)
NOTHING = dict.fromkeys(Measured._fields)


def decided(capacity, **worlds):
    """smetric, lmetric and round-robin of these capacities; `worlds` changes them by scenario."""

    def measure(candidate, scenario, rung):
        noise = 1 + 0.02 * np.sin(scenario.replicate)
        true = capacity(candidate.name, scenario) * noise
        score = float(np.log(true / LADDER.load(rung)))
        return Measured(**{**NOTHING, "score": score, "requests": 1, "rejected": 0})

    work = Work(measure, LADDER)
    candidates = [
        Candidate(name, load_policy(name), CLUSTER) for name in ("smetric", "lmetric", "round-robin")
    ]
    decision = decide(study(candidates, work, Plan(8)), "round-robin")
    return decision, work


def varied(capacity, scenarios):
    decision, work = decided(capacity)
    family = Family("speed", "?", tuple((str(n), one) for n, one in enumerate(scenarios)))
    return vary(finalists_of(decision), [family], work, OBJECTIVES["peak-load"])


BASE = {"smetric": 2.0, "lmetric": 1.5, "round-robin": 1.0}


def test_the_recommended_one_comes_first_then_the_best_others_and_the_current_policy():
    decision, _ = decided(lambda name, scenario: BASE[name])
    assert [row.candidate.name for row in finalists_of(decision)] == ["smetric", "lmetric", "round-robin"]


def test_a_common_change_leaves_the_ranking_and_its_values_are_told():
    found = varied(
        lambda name, scenario: BASE[name] / scenario.slow, [Scenario(slow=1.25), Scenario(slow=0.8)]
    )
    assert found.share == 1.0 and found.fragile is False
    assert found.base == pytest.approx((2.0, 1.5, 1.0))
    assert found.cases[0].values == pytest.approx((1.6, 1.2, 0.8))


def test_a_change_that_turns_the_ranking_round_makes_it_fragile_and_says_behind_whom():
    def capacity(name, scenario):
        return 0.5 if name == "smetric" and scenario.slow > 1 else BASE[name]

    found = varied(capacity, [Scenario(slow=1.25), Scenario(slow=0.8)])
    assert found.share == 0.5 and found.fragile is True
    assert [candidate.name for candidate in found.cases[0].fails] == ["lmetric", "round-robin"]
    assert found.cases[1].holds


def test_who_is_tied_may_be_ahead_by_as_much_as_the_interval_and_no_more():
    def capacity(lead):
        def of(name, scenario):
            mine = {"smetric": 1.5, "lmetric": 1.5 * (1 + 0.03 * np.cos(3 * scenario.replicate))}
            return mine.get(name, 1.0) * (lead if scenario.ties and name == "smetric" else 1.0)

        return of

    inside, outside = (varied(capacity(lead), [Scenario(ties=1)]) for lead in (1.02, 1.5))
    assert inside.finalists[0].name == "lmetric"  # the cheapest of the two
    assert inside.share == 1.0
    assert outside.share == 0.0


def names_and_reasons(candidates, recorded=True, replay="thinktime", slow=0.05):
    return {family.name: family for family in families_of(candidates, recorded, replay, slow)}


def test_what_is_not_varied_says_why():
    found = names_and_reasons([Candidate("lmetric", load_policy("lmetric"), CLUSTER)], False, "timestamps")
    for name in ("calibration", "staleness", "think time", "scaling"):
        assert not found[name].scenarios
        assert len(found[name].why_not) > 20
    assert [scenario.slow for _, scenario in found["speed"].scenarios] == [0.95, 1.05]
    assert [scenario.gateways for _, scenario in found["gateways"].scenarios] == [2, 4]


def test_a_policy_with_books_of_all_sessions_has_one_gateway():
    found = names_and_reasons([Candidate("conserve-pd", load_policy("conserve-pd"), CLUSTER)])
    assert not found["gateways"].scenarios
    assert "conserve-pd keeps books" in found["gateways"].why_not


def test_what_can_be_varied_is():
    fit = {"covariance": {"names": ["b0"], "matrix": [[1e-8]]}}
    pool = dataclasses.replace(CLUSTER.pools[0], profile=dataclasses.replace(PROFILE, fit=fit))
    router = dataclasses.replace(CLUSTER.router, metrics_interval_s=0.5)
    cluster = dataclasses.replace(CLUSTER, pools=(pool,), router=router)
    found = names_and_reasons([Candidate("lmetric", load_policy("lmetric"), cluster)], slow=None)
    assert len(found["calibration"].scenarios) == 30
    assert [scenario.staleness for _, scenario in found["staleness"].scenarios] == [0.5, 2.0]
    assert [scenario.think for _, scenario in found["think time"].scenarios] == [0.5, 2.0]
    assert [scenario.variant for _, scenario in found["scaling"].scenarios] == ["jitter"]
    assert [scenario.lost for _, scenario in found["engine lost"].scenarios] == [1]
    assert [scenario.slow for _, scenario in found["speed"].scenarios] == [0.9, 1.1]
    assert "a guess" in found["speed"].question
