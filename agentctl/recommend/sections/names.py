"""Candidates as figures show them: one name and one place in the palette, the same in every figure."""

from __future__ import annotations

from collections.abc import Sequence

from agentctl.analyzers.words import count
from agentctl.recommend.decision import Decision, Row
from agentctl.recommend.search import Candidate

MOST_LINES = 8  # more are told apart by nobody


class Names:
    """Of the candidates of a decision. The size is said where there are several."""

    def __init__(self, decision: Decision) -> None:
        self._several = len({row.candidate.engines for row in decision.rows}) > 1
        self._shown = [row.candidate for row in shown(decision)]
        self._chosen = decision.chosen.candidate if decision.chosen else None

    def name(self, candidate: Candidate) -> str:
        size = f" on {count(candidate.engines, 'engine')}" if self._several else ""
        return f"{candidate.title}{size}"

    def colour(self, candidate: Candidate) -> int:
        return next((n for n, other in enumerate(self._shown) if other is candidate), MOST_LINES - 1)

    def rank(self, candidate: Candidate) -> int:
        """Who is drawn first where there is not room for all; those that are left out have the last rank."""
        return next((n for n, other in enumerate(self._shown) if other is candidate), len(self._shown))

    def is_chosen(self, candidate: Candidate) -> bool:
        return candidate is self._chosen


def shown(decision: Decision, most: int = MOST_LINES) -> Sequence[Row]:
    """Who is drawn, the recommended one first: those tied with it, today's, then by the load carried."""

    def rank(row: Row) -> tuple[bool, bool, bool, float]:
        load = row.peak.value if row.peak else 0.0
        return row is not decision.chosen, not row.tied, not row.is_current, -load

    return sorted(decision.rows, key=rank)[:most]
