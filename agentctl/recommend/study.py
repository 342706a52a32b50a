"""Every candidate at every load it needs: on the whole trace, then on paired resampled workloads, in stages
after which those drop out that are surely worse than the best."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from agentctl.engines import Engine, Serial, in_order
from agentctl.recommend.objectives import OBJECTIVES, Objective
from agentctl.recommend.pairs import surely_worse
from agentctl.recommend.scenario import Scenario
from agentctl.recommend.search import RUNGS_PER_DOUBLING, Candidate, Found, Ladder, Measured, search
from agentctl.recommend.statistics import Peak
from agentctl.result import Progress

STAGES = (8, 16, 32, 60)  # replicates after which candidates drop out; the last is the most of a default
FINALISTS = 4  # go on after the second stage, besides the current policy
RUNS_PER_REPLICATE = 3  # what a search costs that starts near its peak
# Simulated requests of the finalists' replicates when nobody says how many: a minute or two on 2 cores
BUDGET = 3_000_000

Measure = Callable[[Candidate, Scenario, int], Measured]
Searched = tuple[Peak | None, dict[int, Measured]]


@dataclass
class Work:
    """How runs are made, and who is told.

    measure   (candidate, scenario, rung) -> what the run says; the same arguments, the same result
    keep      called with every run that was made, in an order that does not depend on the workers
    engine    where they are computed; it changes no result
    """

    measure: Measure
    ladder: Ladder
    keep: Callable[[Candidate, Scenario, int, Measured], None] = lambda candidate, scenario, rung, m: None
    progress: Progress | None = None
    engine: Engine = field(default_factory=Serial)
    done: int = field(default=0, init=False)
    shown: float = field(default=0.0, init=False)

    def search_all(
        self,
        tasks: Sequence[Task],
        candidates: Sequence[Candidate],
        what: str,
        later: int = 0,
        rungs: tuple[int, ...] = (),
    ) -> list[Searched]:
        """The peak of each task and all that was measured for it; `later` tasks are expected after these.

        rungs  measured in any case
        """

        search_some = partial(search_bundle, self.measure, self.ladder, candidates, rungs)
        bundles = _bundles(tasks, self.engine.workers)
        found: list[Searched] = []
        self._show(what, len(tasks) + later)
        for bundle, results in zip(bundles, in_order(search_some, bundles, self.engine), strict=True):
            for task, (_, at) in zip(bundle, results, strict=True):
                for rung, measured in at.items():
                    self.keep(candidates[task.candidate], task.scenario, rung, measured)
            found += results
            self.done += len(bundle)
            self._show(what, len(tasks) - len(found) + later)
        return found

    def search_one(self, candidate: Candidate, scenario: Scenario) -> Searched:
        """Of a candidate of which nothing is known yet."""
        task = Task(0, scenario, 0, RUNGS_PER_DOUBLING)
        return search_bundle(self.measure, self.ladder, [candidate], (), [task])[0]

    def _show(self, what: str, left: int) -> None:
        if self.progress:
            self.shown = max(self.shown, self.done / max(self.done + left, 1))
            self.progress(self.shown, what)


class Task(NamedTuple):
    candidate: int
    scenario: Scenario
    start: int  # rung
    stride: int = 1


def search_bundle(
    measure: Measure,
    ladder: Ladder,
    candidates: Sequence[Candidate],
    rungs: tuple[int, ...],
    tasks: Sequence[Task],
) -> list[Searched]:
    """The peak of each task and all that was measured for it. Needs nothing but its arguments: it may be
    called on another machine."""
    found = []
    for task in tasks:
        at_rung = partial(measure, candidates[task.candidate], task.scenario)
        peak, at = search(at_rung, ladder, task.start, task.stride)
        found.append((peak, {**at, **{rung: at_rung(rung) for rung in rungs if rung not in at}}))
    return found


def _bundles(tasks: Sequence[Task], workers: int) -> list[list[Task]]:
    """Tasks of one scenario together, for they share its workloads; but enough bundles for all workers."""
    bundles: list[list[Task]] = []
    most = max(1, len(tasks) // (4 * workers))
    for task in tasks:
        if bundles and bundles[-1][-1].scenario == task.scenario and len(bundles[-1]) < most:
            bundles[-1].append(task)
        else:
            bundles.append([task])
    return bundles


@dataclass(frozen=True)
class Plan:
    """How many replicates, and why.

    later  tasks that are expected after the study (of the sensitivity), for the progress
    chosen  who would be recommended by what is known so far: goes on, whoever else is among the best few
    """

    replicates: int | None = None  # None: as many as BUDGET allows, of STAGES
    objectives: tuple[Objective, ...] = (OBJECTIVES["peak-load"],)
    reference: str = ""
    later: int = 0
    chosen: Callable[[Sequence[Found]], Found | None] = lambda found: None

    @property
    def rungs(self) -> tuple[int, ...]:
        """What has to be measured on every replicate, wherever its peak is."""
        return (0,) if any(one.at_trace and one.name != "gpus" for one in self.objectives) else ()


def study(candidates: Sequence[Candidate], work: Work, plan: Plan) -> list[Found]:
    """Search the peak of every candidate on the trace and on resamples of it."""
    ladder, trace = work.ladder, Scenario()
    tasks = [Task(c, trace, 0, RUNGS_PER_DOUBLING) for c in range(len(candidates))]
    guess = (plan.replicates or STAGES[1]) * len(candidates) + plan.later
    results = work.search_all(tasks, candidates, "the trace", guess, (0,))
    found = [Found(candidate, at, peak) for candidate, (peak, at) in zip(candidates, results, strict=True)]
    alive = [c for c, f in enumerate(found) if f.peak is not None]
    wanted = plan.replicates or affordable([found[c] for c in alive], ladder)
    done = 0
    for stage in sorted({min(stage, wanted) for stage in STAGES} | {wanted}):
        tasks = [
            Task(c, Scenario(replicate), nearest_rung(found[c].peak, ladder))
            for replicate in range(done + 1, stage + 1)
            for c in alive
        ]
        what = f"resampled workloads {done + 1} to {stage}, {len(alive)} candidates"
        later = (wanted - stage) * min(len(alive), FINALISTS + 1) + plan.later
        results = work.search_all(tasks, candidates, what, later, plan.rungs)
        for task, (peak, at) in zip(tasks, results, strict=True):
            # A resample in which the objectives count no request cannot miss them.
            found[task.candidate].replicates.append(peak or Peak(ladder.load(ladder.top), "above"))
            found[task.candidate].at_replicates.append(at)
        done = stage
        if stage < wanted:
            alive = _survivors(found, alive, stage, plan, ladder)
    return found


def _survivors(found: Sequence[Found], alive: list[int], stage: int, plan: Plan, ladder: Ladder) -> list[int]:
    """Who goes on: the current policy, and all that are not surely worse than the best; then the best few and
    who would be recommended."""
    sizes = {found[c].candidate.n_gpus for c in alive} if _is_about_gpus(plan) else {None}
    staying = set()
    for size in sizes:
        rivals = [c for c in alive if size is None or found[c].candidate.n_gpus == size]
        worse = surely_worse([found[c] for c in rivals], plan.objectives, ladder)
        best = [c for c, is_worse in zip(rivals, worse, strict=True) if not is_worse]
        if stage >= STAGES[1]:
            best = sorted(best, key=lambda c: -_load(found[c]))[:FINALISTS]
        staying |= set(best)
    chosen = plan.chosen(found)
    staying |= {c for c in alive if found[c] is chosen}
    for c in alive:
        f = found[c]
        if c not in staying and not (f.candidate.name == plan.reference and not f.candidate.settings):
            f.dropped_after = stage
    return [c for c in alive if found[c].dropped_after is None]


def _is_about_gpus(plan: Plan) -> bool:
    """Then a smaller cluster is no worse for carrying less."""
    about = ("gpus", "cost", "tokens-per-joule", "session-energy")
    return any(one.name in about for one in plan.objectives)


def affordable(judged: Sequence[Found], ladder: Ladder) -> int:
    """How many replicates fit into BUDGET, of STAGES: by the requests that the trace has at the peaks of the
    finalists, the best few on the trace."""
    best = sorted(judged, key=lambda f: -_load(f))[: FINALISTS + 1]
    cost = sum(RUNS_PER_REPLICATE * f.at[nearest_measured(f, ladder)].requests for f in best)
    return max((n for n in STAGES if n * cost <= BUDGET), default=STAGES[0])


def _load(f: Found) -> float:
    return f.peak.load if f.peak else 0.0


def nearest_rung(peak: Peak | None, ladder: Ladder) -> int:
    """The rung at or just below the peak."""
    assert peak is not None
    rungs = range(ladder.bottom, ladder.top + 1)
    return max((rung for rung in rungs if ladder.load(rung) <= peak.load * (1 + 1e-9)), default=ladder.bottom)


def nearest_measured(f: Found, ladder: Ladder) -> int:
    rung = nearest_rung(f.peak, ladder)
    return min(f.at, key=lambda k: (abs(k - rung), k))
