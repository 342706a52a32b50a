"""The finalists once more on the whole trace, at the load that the decision is about, seen from inside."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from agentctl.inside import Look, look_at
from agentctl.inside.look import N_REGRET
from agentctl.recommend.decision import Decision
from agentctl.recommend.scenario import Scenario
from agentctl.recommend.search import Candidate, Ladder, after_warm_up
from agentctl.recommend.sections.names import Names
from agentctl.recommend.sensitivity import finalists_of
from agentctl.recommend.validity import operating_rung
from agentctl.result import Progress
from agentctl.sim.outcome import Outcome

Simulated = Callable[[Candidate, Scenario, int], Outcome]  # an observed run


class Finals(NamedTuple):
    """
    candidates  the recommended one first; `looks` at their runs, in this order
    outcome     every request under the recommended one; None: nothing was chosen
    load        of these runs, in multiples of the trace's
    """

    candidates: tuple[Candidate, ...] = ()
    looks: tuple[Look, ...] = ()
    outcome: Outcome | None = None
    load: float = 1.0


def look_inside(
    decision: Decision, simulated: Simulated, ladder: Ladder, seed: int, progress: Progress | None = None
) -> Finals:
    """One observed run per finalist; regret is looked at under the recommended and today's policy."""
    rows = finalists_of(decision)
    if not rows:
        return Finals()
    names, rung = Names(decision), operating_rung(decision)
    looks: list[Look] = []
    first: Outcome | None = None
    for row in rows:
        if progress:
            progress(1.0, f"{row.candidate.title} from inside")
        candidate, is_first = row.candidate, row is rows[0]
        outcome = simulated(candidate, Scenario(), rung)
        regret = N_REGRET if is_first or row.is_current else 0
        look = look_at(
            names.name(candidate), outcome, candidate.cluster, candidate.policy, seed=seed, regret=regret,
            colour=names.colour(candidate), is_strong=is_first, count=after_warm_up,
        )  # fmt: skip
        looks.append(look)
        first = first or outcome
    return Finals(tuple(row.candidate for row in rows), tuple(looks), first, ladder.load(rung))
