"""Bands on candidates whose attainment is known."""

import pytest

from agentctl.cluster import cluster_of
from agentctl.policies.base import load_policy
from agentctl.profile import load_profile
from agentctl.recommend.bands import MOST_REPLICATES, MOST_RUNGS, bands, common_rungs
from agentctl.recommend.decision import decide
from agentctl.recommend.scenario import Scenario
from agentctl.recommend.search import Candidate, Found, Ladder, Measured
from agentctl.recommend.statistics import Peak
from agentctl.recommend.study import Work

LADDER = Ladder(-9, 6)
BLANK = Measured(**{**dict.fromkeys(Measured._fields), "requests": 10, "rejected": 0})
PROFILE = load_profile("h100-qwen3-8b")


@pytest.mark.parametrize(
    ("peaks", "rungs"), [([0], (-1, 0, 1)), ([0, 3], (-1, 0, 1, 3, 4)), ([-9, -9], (-9, -8)), ([6], (5, 6))]
)
def test_all_finalists_share_a_ladder_around_their_peaks(peaks, rungs):
    assert common_rungs(peaks, LADDER) == rungs
    assert len(common_rungs(peaks, LADDER)) <= MOST_RUNGS


def study(capacities):
    """A decision between candidates that hold their share up to a capacity that shakes with the replicate."""
    asked = []

    def measure(candidate, scenario, rung):
        asked.append((candidate.name, scenario.replicate, rung))
        room = capacities[candidate.name] + 0.1 * (scenario.replicate % 3 - 1) - LADDER.load(rung)
        return BLANK._replace(score=room, attained=min(1.0, max(0.0, 0.9 + 0.3 * room)))

    found = []
    for name, peak in capacities.items():
        candidate = Candidate(name, load_policy(name), cluster_of(PROFILE, 4))
        replicates = [Peak(peak * factor) for factor in (0.9, 1.0, 1.1)]
        found.append(Found(candidate, {0: measure(candidate, Scenario(), 0)}, Peak(peak), replicates))
    return decide(found, "round-robin").rows, Work(measure, LADDER), asked


def test_a_band_holds_its_line_and_the_line_falls_with_the_load():
    rows, work, _ = study({"smetric": 2.0, "round-robin": 1.0})
    for band in bands(rows, work, 20):
        found = [band.at[rung] for rung in sorted(band.at)]
        assert all(0 <= one.low <= one.value <= one.high <= 1 for one in found)
        values = [one.value for one in found]
        assert values == sorted(values, reverse=True)


def test_every_finalist_is_run_on_the_same_workloads_at_the_same_loads():
    rows, work, asked = study({"smetric": 2.0, "round-robin": 1.0})
    found = bands(rows, work, 20)
    assert set(found[0].at) == set(found[1].at) == set(common_rungs([3, 0], LADDER))
    for rung in found[0].at:
        runs = [
            {n for who, n, at in asked if who == name and at == rung} for name in ("smetric", "round-robin")
        ]
        assert runs[0] >= set(range(MOST_REPLICATES + 1)) <= runs[1]


def test_one_replicate_has_no_band():
    rows, work, _ = study({"smetric": 2.0})
    assert bands(rows, work, 1) == []
