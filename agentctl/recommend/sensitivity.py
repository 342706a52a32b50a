"""Does the ranking hold if the world differs from what was assumed? The finalists again, on the trace itself,
with one assumption changed at a time, the same change for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentctl.recommend.decision import Decision, Row
from agentctl.recommend.objectives import Objective
from agentctl.recommend.pairs import compare, values_of
from agentctl.recommend.scenario import Scenario, covariance_of
from agentctl.recommend.search import Candidate, Found, Ladder
from agentctl.recommend.study import Task, Work, nearest_rung

DRAWS = 30  # of the calibration
FINALISTS = 4  # the recommended candidate among them; the current one comes on top
FRAGILE = 0.95  # share of the cases below which the ranking is called fragile
STALENESS = (0.5, 2.0)
GATEWAYS = (1, 2, 4)
TIES = (1, 2, 3)
THINK = (0.5, 2.0)
UNVALIDATED = 0.10  # common-mode slow-down where no back-test says how far off the simulator is: a guess


@dataclass(frozen=True)
class Family:
    """One assumption, and what it is changed to."""

    name: str
    question: str
    scenarios: tuple[tuple[str, Scenario], ...]  # in words, and what is run
    why_not: str | None = None  # nothing is varied, and why


@dataclass(frozen=True)
class Case:
    """values of the first objective, of each finalist; None: not defined.

    fails  finalists that the recommended one is behind here although it was not, or by more than its interval
    """

    family: str
    name: str
    values: tuple[float | None, ...]
    fails: tuple[Candidate, ...]

    @property
    def holds(self) -> bool:
        return not self.fails


@dataclass(frozen=True)
class Sensitivity:
    """
    finalists  the recommended one first
    base       the same values with nothing changed
    share      of the cases in which the ranking holds; None: no case, or nobody to compare with
    """

    finalists: tuple[Candidate, ...]
    base: tuple[float | None, ...]
    families: tuple[Family, ...]
    cases: tuple[Case, ...]

    @property
    def share(self) -> float | None:
        if len(self.finalists) < 2 or not self.cases:
            return None
        return sum(case.holds for case in self.cases) / len(self.cases)

    @property
    def fragile(self) -> bool | None:
        return None if self.share is None else self.share < FRAGILE

    def share_of(self, family: str) -> float | None:
        cases = [case for case in self.cases if case.family == family]
        return sum(case.holds for case in cases) / len(cases) if cases and len(self.finalists) > 1 else None


def finalists_of(decision: Decision) -> list[Row]:
    """The recommended candidate, the best others that went the whole way, and the current configuration of
    as many engines."""
    chosen = decision.chosen
    if chosen is None:
        return []
    rivals = [
        row for row in decision.rows if row is not chosen and row.peak and row.found.dropped_after is None
    ]
    same = [row for row in rivals if row.candidate.n_gpus == chosen.candidate.n_gpus]
    best = sorted(same, key=lambda row: (not row.tied, -(row.peak.value if row.peak else 0.0)))[
        : FINALISTS - 1
    ]
    today = [
        row for row in decision.rows if row.is_current and row.candidate.engines == chosen.candidate.engines
    ]
    return [chosen, *best, *(row for row in today if row is not chosen and row not in best and row.peak)]


def families_of(
    candidates: Sequence[Candidate], recorded: bool, replay: str, slow: float | None
) -> tuple[Family, ...]:
    """What can be varied for these candidates. slow: how far off the back-test was, None: not validated."""
    return tuple(_families(candidates, recorded, replay, slow))


def _families(
    candidates: Sequence[Candidate], recorded: bool, replay: str, slow: float | None
) -> Iterator[Family]:
    pools = [pool for candidate in candidates for pool in candidate.cluster.pools]
    routers = [candidate.cluster.router for candidate in candidates]
    drawn = any([covariance_of(pool.profile) is not None for pool in pools])  # looks at all: each is checked
    yield Family(
        "calibration",
        "would other coefficients, as far as they are uncertain, change the ranking",
        tuple((f"draw {n}", Scenario(draw=n)) for n in range(1, DRAWS + 1)) if drawn else (),
        None
        if drawn
        else "the profile does not say how uncertain its coefficients are together (covariance)",
    )
    by = UNVALIDATED if slow is None else slow
    yield Family(
        "speed",
        "would it if every batch took longer or shorter, by the error of the back-test"
        + ("" if slow is not None else " (there is none: 10 %, a guess)"),
        tuple((f"batches {change:+.0%}", Scenario(slow=1 + change)) for change in (-by, by)) if by else (),
        None if by else "the back-test found no error",
    )
    stale = any(r.metrics_interval_s or r.metrics_delay_s or r.index_delay_s for r in routers)
    yield Family(
        "staleness",
        "would it if what the router knows were younger or older",
        tuple((f"ages times {factor:g}", Scenario(staleness=factor)) for factor in STALENESS)
        if stale
        else (),
        None
        if stale
        else "what the routers know is always fresh (metrics_interval_s, index_delay_s of [router])",
    )
    used = {router.gateways for router in routers}
    alone = [candidate.policy.name for candidate in candidates if candidate.policy.needs_one_gateway]
    yield Family(
        "gateways",
        "would it with fewer or more gateways that do not know of each other",
        tuple(
            (f"{n} gateways" if n > 1 else "1 gateway", Scenario(gateways=n))
            for n in GATEWAYS
            if {n} != used and not alone
        ),
        f"{alone[0]} keeps books of all sessions: it has one gateway" if alone else None,
    )
    yield Family(
        "ties",
        "would it if the policies' chances fell otherwise",
        tuple((f"seed + {n}", Scenario(ties=n)) for n in TIES),
    )
    thinks = replay == "thinktime"
    yield Family(
        "think time",
        "would it if agents and people waited less or longer between turns",
        tuple((f"gaps times {factor:g}", Scenario(think=factor)) for factor in THINK) if thinks else (),
        None if thinks else f"replay {replay} keeps the log's times",
    )
    yield Family(
        "scaling",
        "would it if more load came in bursts: copies of a session start within a minute of it",
        (("copies within 60 s", Scenario(variant="jitter")),) if recorded else (),
        None if recorded else "session starts are synthesised: other loads are drawn anew",
    )
    one_pool = all(len(candidate.cluster.pools) == 1 and candidate.engines > 1 for candidate in candidates)
    yield Family(
        "engine lost",
        "would it with one engine less",
        (("one engine lost", Scenario(lost=1)),) if one_pool else (),
        None if one_pool else "there is one engine, or several pools",
    )


def vary(
    rows: Sequence[Row],
    families: Sequence[Family],
    work: Work,
    objective: Objective,
    rungs: tuple[int, ...] = (),
) -> Sensitivity:
    """Run every scenario for every finalist; `rows` has the recommended one first."""
    ladder = work.ladder
    candidates = [row.candidate for row in rows]
    cases = [(family.name, name, scenario) for family in families for name, scenario in family.scenarios]
    tasks = [
        Task(c, scenario, nearest_rung(row.found.peak, ladder))
        for _, _, scenario in cases
        for c, row in enumerate(rows)
    ]
    results = work.search_all(tasks, candidates, f"{len(cases)} changed assumptions", rungs=rungs)
    bounds = [_bound(rows[0].found, row.found, objective, ladder) for row in rows]
    found = []
    for k, (family, name, _) in enumerate(cases):
        values = tuple(
            None if peak is None else objective.value(candidate, peak, at, ladder)
            for candidate, (peak, at) in zip(
                candidates, results[k * len(rows) : (k + 1) * len(rows)], strict=True
            )
        )
        fails = [
            candidate
            for candidate, value, bound in zip(candidates, values, bounds, strict=True)
            if _falls_behind(values[0], value, bound, objective)
        ]
        found.append(Case(family, name, values, tuple(fails)))
    base = tuple(_on_trace(row.found, objective, ladder) for row in rows)
    return Sensitivity(tuple(candidates), base, tuple(families), tuple(found))


def _on_trace(f: Found, objective: Objective, ladder: Ladder) -> float | None:
    return values_of(f, objective, ladder).whole


def _bound(chosen: Found, other: Found, objective: Objective, ladder: Ladder) -> float:
    """How far the chosen one may be behind and the ranking still holds: as far as the paired interval of the
    replicates reaches below 0, for who is tied with it; not at all for who was told to be worse."""
    pair = compare(chosen, other, objective, ladder) if other is not chosen else None
    return 0.0 if pair is None or pair.low is None else min(pair.low, 0.0)


def _falls_behind(chosen: float | None, other: float | None, bound: float, objective: Objective) -> bool:
    if chosen is None or other is None:
        return False
    return objective.sign * (chosen - other) < bound - 1e-12 * abs(other)
