"""The runs of a comparison: a candidate in a scenario at a load, simulated once and known from then on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from agentctl.recommend.parallel import in_order
from agentctl.recommend.runs import Runs, candidate_digest, key_of, study_digest
from agentctl.recommend.scenario import Scenario, cluster_in, workload_in
from agentctl.recommend.search import Candidate, Ladder, Measured, measured
from agentctl.sim.driver import simulate
from agentctl.sim.outcome import Outcome
from agentctl.slo import Slo
from agentctl.workload import Workload


class World:
    """`trace` under every candidate; `runs` is what was measured before, and what is measured now."""

    def __init__(
        self,
        trace: Workload,
        candidates: Sequence[Candidate],
        slos: tuple[Slo, ...],
        ladder: Ladder,
        seed: int,
        runs: Runs,
    ) -> None:
        self.ladder, self.slos, self.seed, self.runs = ladder, slos, seed, runs
        self._study = study_digest(trace, slos, seed)
        self._digests = {id(candidate): candidate_digest(candidate) for candidate in candidates}

        @lru_cache(maxsize=4)  # candidates of a scenario follow each other
        def workload_at(scenario: Scenario, load: float) -> Workload:
            return workload_in(scenario, trace, load, seed)

        self._workload_at = workload_at

    def simulated(
        self, candidate: Candidate, scenario: Scenario, rung: int, observed: bool = False
    ) -> Outcome:
        alike = Scenario(replicate=scenario.replicate, think=scenario.think, variant=scenario.variant)
        on = self._workload_at(alike, self.ladder.load(rung))  # nothing else makes another workload
        true_cluster = cluster_in(scenario, candidate.cluster, self.seed)
        seed = self.seed + scenario.ties
        return simulate(on, true_cluster, candidate.policy, seed=seed, observed=observed)

    def measure(self, candidate: Candidate, scenario: Scenario, rung: int) -> Measured:
        known = self.runs.get(self._key(candidate, scenario, rung))
        return known or measured(self.simulated(candidate, scenario, rung).run(), self.slos)

    def keep(self, candidate: Candidate, scenario: Scenario, rung: int, found: Measured) -> None:
        title = f"{candidate.title} on {candidate.engines}"
        key = self._key(candidate, scenario, rung)
        self.runs.add(key, title, scenario, self.ladder.load(rung), found)

    def at_trace_load(
        self, candidate: Candidate, replicates: Sequence[int], workers: int = 1
    ) -> list[Measured]:
        """One candidate on several resamples."""
        scenarios = [Scenario(replicate) for replicate in replicates]
        found = list(in_order(lambda one: self.measure(candidate, one, 0), scenarios, workers))
        for scenario, one in zip(scenarios, found, strict=True):
            self.keep(candidate, scenario, 0, one)
        return found

    def _key(self, candidate: Candidate, scenario: Scenario, rung: int) -> str:
        return key_of(self._study, self._digests[id(candidate)], scenario, rung)
