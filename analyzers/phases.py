"""Two-phase structure: does a session pay for its prompt once, in turn 0, and then only append to it?

If so, ConServe's placement (prefill the first turn remotely, keep the rest local) and session-centric routing
have something to gain. Public captures differ: one benchmark spends 96 % of its prefill in turn 0, while real
coding sessions hit 99 % in the median turn and yet spend only 19 % there: they are long and often resumed.

Sessions are judged by their main line; sub-agents count apart. A retry repeats its turn and is left out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from agentctl.analyzers.base import AnalyzeOptions
from agentctl.analyzers.columns import floats, numbered, texts
from agentctl.analyzers.counted import REACHED_AN_ENGINE
from agentctl.analyzers.distribution import Distribution, cdf_curve, distribution, median
from agentctl.analyzers.phases_text import describe as describe
from agentctl.analyzers.prefill import COLUMNS, uncached_prefill
from agentctl.present import Curve
from agentctl.trace import Trace

NAME = "phases"
ORDER = 30

TURN = ("agent_path", "turn_index")  # of a session

VERDICTS = {  # (turn 0 holds most of a session's prefill, later turns hit)
    (True, True): "holds",
    (False, True): "per turn only",
    (True, False): "per session only",
    (False, False): "does not hold",
}


class Turns(NamedTuple):
    """One value per request, each session's in time order; NaN is unknown."""

    session: NDArray[np.int64]
    prompt_tokens: NDArray[np.float64]
    uncached_tokens: NDArray[np.float64]
    output_tokens: NDArray[np.float64]
    origin: NDArray[np.str_]  # schema.ORIGINS
    is_subagent: NDArray[np.bool_]


@dataclass(frozen=True)
class SessionClass:
    """Sessions whose first request has this origin ('all': any)."""

    origin: str
    sessions: int
    multi_turn: int
    first_prompt_tokens: Distribution | None
    first_turn_share: Distribution | None  # of the uncached prefill of a session of two or more turns


@dataclass(frozen=True)
class TurnClass:
    """Turns after the first of their session ('all', 'append' or 'compacted')."""

    kind: str
    turns: int
    append_tokens: Distribution | None  # uncached prefill of a turn
    long_append_ratio: float | None  # share of turns that append more than the result's long_append_tokens
    hit_ratio: Distribution | None  # share of its prompt that the session had before


@dataclass(frozen=True)
class Result:
    verdict: str | None  # VERDICTS; None with a reason
    reason: str | None
    rule: str | None  # how uncached prefill was found: 'blocks', 'parent' or None
    sessions_judged: int  # of two or more turns that start new
    first_turn_share_p50: float | None
    later_hit_ratio_p50: float | None
    first_turn_share_threshold: float
    later_hit_ratio_threshold: float
    long_append_tokens: int
    prefill_share: (
        dict[str, float] | None
    )  # of the trace's uncached prefill: first_turns, later_turns, subagents
    sessions: tuple[SessionClass, ...]
    later_turns: tuple[TurnClass, ...]
    output_tokens_first: Distribution | None
    output_tokens_later: Distribution | None
    unknown_requests: int  # left out: prompt length or prefix unknown, or those of the session's first turn
    share_curve: Curve
    append_curve: Curve


def analyze(trace: Trace, options: AnalyzeOptions) -> Result:
    rows = trace.requests([*COLUMNS, "status", *TURN, "attempt", "origin", "output_tokens"])
    rows = rows.filter(pl.col("status").cast(pl.String).is_in(REACHED_AN_ENGINE))
    uncached, rule = uncached_prefill(trace, rows)
    turns = Turns(
        session=numbered(rows["session_id"]),
        prompt_tokens=floats(rows["prompt_tokens"]),
        uncached_tokens=uncached,
        output_tokens=floats(rows["output_tokens"]),
        origin=texts(rows["origin"]),
        is_subagent=rows["agent_path"].is_not_null().to_numpy(),
    )
    first_try = _first_tries(rows)
    return two_phase(Turns._make(column[first_try] for column in turns), options, rule)


def _first_tries(rows: pl.DataFrame) -> NDArray[np.bool_]:
    """Requests that repeat no turn: a prompt sent again does, whether or not the log says that it is a retry;
    another branch of a conversation has its turn's number but a prompt of its own."""
    same_turn = pl.struct("session_id", *TURN)
    same_prompt = pl.struct("session_id", *TURN, "prompt_tokens", "tip_node")
    first_try = same_prompt.is_first_distinct() & ((pl.col("attempt") == 0) | same_turn.is_first_distinct())
    return rows.select(first_try).to_series().to_numpy()


def two_phase(turns: Turns, options: AnalyzeOptions, rule: str | None = "blocks") -> Result:
    """The analysis itself, on plain arrays."""
    known = ~np.isnan(turns.uncached_tokens) & _first_is_known(turns)
    t = Turns._make(column[known] for column in turns)
    s, later = _sessions(t)
    hit = 1 - t.uncached_tokens / np.maximum(t.prompt_tokens, 1)
    several = s.turns >= 2
    judged = several & (t.origin[s.first_row] == "new")
    share_p50 = median(s.first_share[judged])
    hit_p50 = median(hit[later & np.isin(t.session, s.session[judged])])
    verdict, reason = _verdict(share_p50, hit_p50, options, rule)
    return Result(
        verdict=verdict,
        reason=reason,
        rule=rule,
        sessions_judged=int(judged.sum()),
        first_turn_share_p50=share_p50,
        later_hit_ratio_p50=hit_p50,
        first_turn_share_threshold=options.first_turn_share,
        later_hit_ratio_threshold=options.later_hit_share,
        long_append_tokens=options.long_append_tokens,
        prefill_share=_prefill_share(t, s, later),
        sessions=_session_classes(t, s),
        later_turns=_turn_classes(t, later, hit, options.long_append_tokens),
        output_tokens_first=distribution(t.output_tokens[s.first_row]),
        output_tokens_later=distribution(t.output_tokens[later]),
        unknown_requests=int((~known).sum()),
        share_curve=cdf_curve("sessions of two or more turns", s.first_share[several]),
        append_curve=cdf_curve("later turns", np.maximum(t.uncached_tokens[later], 1)),
    )


def _first_is_known(turns: Turns) -> NDArray[np.bool_]:
    """Requests of sessions whose first turn is known: no later one may take its place."""
    main = np.flatnonzero(~turns.is_subagent)
    session, start = np.unique(turns.session[main], return_index=True)
    unknown = session[np.isnan(turns.uncached_tokens[main[start]])]
    return ~np.isin(turns.session, unknown)


class _Sessions(NamedTuple):
    """One value per session with a main line."""

    session: NDArray[np.int64]
    first_row: NDArray[np.int64]
    turns: NDArray[np.int64]
    first_share: NDArray[np.float64]  # share of its uncached prefill in turn 0; NaN when it has none


def _sessions(t: Turns) -> tuple[_Sessions, NDArray[np.bool_]]:
    """The sessions, and which requests are later turns of a main line."""
    main = np.flatnonzero(~t.is_subagent)
    session, start, number = np.unique(t.session[main], return_index=True, return_inverse=True)
    first_row = main[start]
    total = np.bincount(number, weights=t.uncached_tokens[main], minlength=session.size)
    share = np.full(session.size, np.nan)
    np.divide(t.uncached_tokens[first_row], total, out=share, where=total > 0)
    later = ~t.is_subagent
    later[first_row] = False
    turns = np.bincount(number, minlength=session.size)
    return _Sessions(session, first_row, turns, share), later


def _verdict(
    share_p50: float | None, hit_p50: float | None, options: AnalyzeOptions, rule: str | None
) -> tuple[str | None, str | None]:
    if rule is None:
        return None, "the trace has neither block chains nor links between turns"
    if share_p50 is None or hit_p50 is None:
        return None, "no session of two or more turns starts new"
    return VERDICTS[share_p50 >= options.first_turn_share, hit_p50 >= options.later_hit_share], None


def _prefill_share(t: Turns, s: _Sessions, later: NDArray[np.bool_]) -> dict[str, float] | None:
    total = t.uncached_tokens.sum()
    if total <= 0:
        return None
    parts = {"first_turns": s.first_row, "later_turns": later, "subagents": t.is_subagent}
    return {name: float(t.uncached_tokens[part].sum() / total) for name, part in parts.items()}


def _session_classes(t: Turns, s: _Sessions) -> tuple[SessionClass, ...]:
    origin = t.origin[s.first_row]
    classes = [("all", np.ones(origin.size, dtype=bool))]
    classes += [(str(name), origin == name) for name in np.unique(origin)]
    several = s.turns >= 2
    return tuple(
        SessionClass(
            name,
            int(chosen.sum()),
            int((chosen & several).sum()),
            distribution(t.prompt_tokens[s.first_row[chosen]]),
            distribution(s.first_share[chosen & several]),
        )
        for name, chosen in classes
    )


def _turn_classes(
    t: Turns, later: NDArray[np.bool_], hit: NDArray[np.float64], long_append: int
) -> tuple[TurnClass, ...]:
    compacted = t.origin == "compacted"
    classes = (("all", later), ("append", later & ~compacted), ("compacted", later & compacted))

    def described(kind: str, chosen: NDArray[np.bool_]) -> TurnClass:
        appended = t.uncached_tokens[chosen]
        long = float((appended > long_append).mean()) if appended.size else None
        return TurnClass(kind, appended.size, distribution(appended), long, distribution(hit[chosen]))

    return tuple(described(kind, chosen) for kind, chosen in classes)
