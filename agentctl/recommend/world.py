"""The runs of a comparison: a candidate in a scenario at a load, simulated once and known from then on."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from agentctl.engines import Engine, in_order
from agentctl.recommend.runs import Runs, candidate_digest, key_of, study_digest
from agentctl.recommend.scenario import Scenario, cluster_in, workload_in
from agentctl.recommend.search import Candidate, Ladder, Measured, measured
from agentctl.sim.driver import simulate
from agentctl.sim.outcome import Outcome
from agentctl.slo import Slo
from agentctl.workload import Workload

MOST_WORKLOADS = 4


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
        self._digests = {_name(candidate): candidate_digest(candidate) for candidate in candidates}

        self._trace = trace
        self._workloads: dict[tuple[Scenario, float], Workload] = {}  # the last few

    def __getstate__(self) -> dict[str, Any]:
        """For workers elsewhere: what is known goes along, the file that it is written to does not."""
        return {**vars(self), "_workloads": {}, "runs": Runs(known=self.runs.lines())}

    def _workload_at(self, scenario: Scenario, load: float) -> Workload:
        """Candidates of a scenario follow each other."""
        found = self._workloads.pop((scenario, load), None) or workload_in(
            scenario, self._trace, load, self.seed
        )
        self._workloads[scenario, load] = found
        while len(self._workloads) > MOST_WORKLOADS:
            del self._workloads[next(iter(self._workloads))]
        return found

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
        self, candidate: Candidate, replicates: Sequence[int], engine: Engine
    ) -> list[Measured]:
        """One candidate on several resamples."""
        scenarios = [Scenario(replicate) for replicate in replicates]
        found = list(in_order(partial(_at_trace_load, self, candidate), scenarios, engine))
        for scenario, one in zip(scenarios, found, strict=True):
            self.keep(candidate, scenario, 0, one)
        return found

    def _key(self, candidate: Candidate, scenario: Scenario, rung: int) -> str:
        return key_of(self._study, self._digests[_name(candidate)], scenario, rung)


def _name(candidate: Candidate) -> tuple[str, int]:
    return candidate.title, candidate.engines


def _at_trace_load(world: World, candidate: Candidate, scenario: Scenario) -> Measured:
    return world.measure(candidate, scenario, 0)
