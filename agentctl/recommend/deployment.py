"""From a decision to the folder deploy/: what is recommended, what to watch, and how to confirm it online."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from agentctl.cluster import Cluster
from agentctl.emit._canary import NAMES, Watch, watch
from agentctl.emit._readme import Handover, Standing
from agentctl.emit._switchback import Effect, Switchback, switchback
from agentctl.emit.deploy import deploy_files
from agentctl.errors import ConfigError
from agentctl.policies.base import Policy
from agentctl.present import Section, Table, Value
from agentctl.recommend.decision import Decision, Row
from agentctl.recommend.deployable import Asked, Deployable, deployment_of
from agentctl.recommend.objectives import OBJECTIVES
from agentctl.recommend.pairs import Range, compare
from agentctl.recommend.search import Candidate, Found, Ladder, Measured
from agentctl.sim.outcome import Outcome
from agentctl.sim.pair_state import has_roles
from agentctl.workload import Workload

WATCHED_REPLICATES = 8  # resamples that the canary's intervals are taken from
CAN_BE_DEPLOYED = ("clear", "no clear winner")  # a verdict that a rollout may be built on
CLEAR_SPREAD = 2.0  # standard deviations, as in all intervals here


class Made(NamedTuple):
    """files by path; section for the report, where a router was asked for; part of the document."""

    files: dict[str, bytes]
    section: Section | None
    document: dict[str, Any]


class Facts(NamedTuple):
    """What is known when the decision stands.

    measure   (candidate, replicates) -> what runs at the trace's own load say
    outcome   the trace under the recommended candidate at its own load
    today     the configuration in use, None when it was not given
    """

    decision: Decision
    workload: Workload
    ladder: Ladder
    measure: Callable[[Candidate, Sequence[int]], list[Measured]]
    outcome: Callable[[Candidate], Outcome]
    today: tuple[Cluster, Policy] | None
    status: str
    statement: str
    slos: tuple[str, ...]
    provenance: tuple[tuple[str, str], ...]
    seed: int


def hand_over(facts: Facts, asked: Asked | None, who: Deployable) -> Made | None:
    """The files of deploy/ for the recommended candidate; None when there is none."""
    chosen = facts.decision.chosen
    if chosen is None:
        return None
    candidate = chosen.candidate
    measured = _at_trace_load(facts, chosen.found)
    effect = _effect(facts, measured)
    plan = _plan(facts, candidate, effect)
    standings = _standings(facts, asked, who)
    handed = Handover(
        deployment=deployment_of(candidate.cluster, candidate.policy, asked, facts.workload, facts.today),
        target=asked.target if asked else None,
        statement=facts.statement,
        slos=facts.slos,
        standings=tuple(standings),
        watched=_watched(candidate, measured),
        plan=plan,
        effect=effect,
        provenance=facts.provenance,
        not_yet=None if facts.status in CAN_BE_DEPLOYED else f"the verdict is: {facts.status}",
    )
    files = deploy_files(handed)
    section = _section(asked, candidate, standings, handed) if asked else None
    return Made(files, section, _document(asked, handed, files))


def _at_trace_load(facts: Facts, found: Found) -> list[Measured]:
    """At the trace's own load: of the trace, then of some resamples."""
    n = min(len(found.replicates), WATCHED_REPLICATES)
    known = {0: found.at.get(0), **{k: at.get(0) for k, at in enumerate(found.at_replicates[:n], 1)}}
    missing = [k for k in range(n + 1) if known.get(k) is None]
    known |= dict(zip(missing, facts.measure(found.candidate, missing), strict=True))
    return [one for k in range(n + 1) if (one := known[k]) is not None]


def _watched(candidate: Candidate, measured: Sequence[Measured]) -> tuple[Watch, ...]:
    engine = candidate.cluster.pools[0].scheduler
    trace, *replicates = measured
    found = [
        watch(key, getattr(trace, key), [getattr(one, key) for one in replicates], engine) for key in NAMES
    ]
    return tuple(one for one in found if one is not None)


EFFECTS = {"ttft_p50_s": "TTFT p50", "ttft_p95_s": "TTFT p95", "attained": "the share within all objectives"}


def _effect(facts: Facts, new: Sequence[Measured]) -> Effect | None:
    """What tells the two configurations apart best: the difference that is largest against its own spread.

    None where today's configuration is not given, or is the new one.
    """
    if facts.today is None:
        return None
    engines = facts.today[0].n_engines
    rows = [row for row in facts.decision.rows if row.is_current and row.candidate.engines == engines]
    if not rows or rows[0] is facts.decision.chosen:
        return None
    today = _at_trace_load(facts, rows[0].found)
    found = [one for key in EFFECTS if (one := _effect_on(key, today, new)) is not None]
    return max(found, key=lambda one: one[0])[1] if found else None


def _effect_on(key: str, today: Sequence[Measured], new: Sequence[Measured]) -> tuple[float, Effect] | None:
    """How far the difference stands out of its spread, and the effect."""
    values = [(getattr(a, key), getattr(b, key)) for a, b in zip(today, new, strict=False)]
    pairs = [(a, b) for a, b in values if a is not None and b is not None]
    if len(pairs) < 3:  # the trace, and two resamples
        return None
    (before, after), *replicates = pairs
    spread = statistics.stdev(b - a for a, b in replicates)
    stands_out = abs(after - before) / spread if spread else 0.0
    sd_today, sd_new = (statistics.stdev(pair[arm] for pair in replicates) for arm in (0, 1))
    is_clear = stands_out > CLEAR_SPREAD
    return stands_out, Effect(EFFECTS[key], before, after, sd_today, sd_new, is_clear)


def _plan(facts: Facts, candidate: Candidate, effect: Effect | None) -> Switchback | None:
    outcome = facts.outcome(candidate)
    lifetimes = session_lifetimes_s(outcome)
    span = float(np.ptp(outcome.arrival_s[np.isfinite(outcome.arrival_s)])) if lifetimes.size else 0.0
    if not span:
        return None
    lives, long = np.quantile(lifetimes, (0.5, 0.9), method="nearest")
    return switchback(
        float(lives), float(long), kv_residency_s(outcome, candidate.cluster, span), span, effect, facts.seed
    )


def session_lifetimes_s(outcome: Outcome) -> np.ndarray[Any, np.dtype[np.float64]]:
    """From the arrival of a session's first request to the end of its last; of sessions with an end."""
    n = len(outcome.workload.session_ids)
    session = outcome.workload.requests.session
    first, last = np.full(n, np.inf), np.full(n, -np.inf)
    np.minimum.at(first, session[outcome.done], outcome.arrival_s[outcome.done])
    np.maximum.at(last, session[outcome.done], outcome.finish_s[outcome.done])
    return (last - first)[np.isfinite(first)]


def kv_residency_s(outcome: Outcome, cluster: Cluster, span_s: float) -> float | None:
    """How long it takes to write an engine's KV once over, all engines together; None: nothing is written."""
    done = outcome.done
    written = (
        outcome.computed_prefill_tokens[done].sum() + outcome.workload.requests.output_tokens[done].sum()
    )
    room = sum(pool.engines * pool.usable_blocks * pool.block_tokens for pool in cluster.pools)
    return float(room * span_s / written) if written else None


def _standings(facts: Facts, asked: Asked | None, who: Deployable) -> list[Standing]:
    """Every policy that was compared on as many engines as are recommended, and what it is in the target."""
    chosen = facts.decision.chosen
    assert chosen is not None
    rows = {(row.candidate.title, row.candidate.engines): row for row in facts.decision.rows}
    found = []
    for (title, engines), theirs in who.stands_for.items():
        if engines != chosen.candidate.engines:
            continue
        if theirs is None:
            is_split = has_roles(rows[title, engines].candidate.cluster)
            reason = "roles are not written down yet" if is_split else "nothing comes near"
            found.append(Standing(title, None, (reason,), "none"))
        elif theirs.title == title:
            found.append(Standing(title, title, ("exactly",), "none"))
        else:
            paper, deployed = rows[title, engines], rows[theirs.title, engines]
            why = _why(facts, asked, paper.candidate)
            found.append(Standing(title, theirs.title, why, _distance(paper, deployed, facts)))
    return found


def _why(facts: Facts, asked: Asked | None, paper: Candidate) -> tuple[str, ...]:
    """What the target does otherwise, in its own words."""
    assert asked is not None, "nobody stands for another without a target"
    try:
        return asked.target.emit(
            deployment_of(paper.cluster, paper.policy, asked, facts.workload, None)
        ).differences
    except ConfigError as error:
        return (error.message,)


def _distance(paper: Row, deployed: Row, facts: Facts) -> str:
    """Of the two peaks, paired by replicate, in percent of the paper's."""
    pair = compare(deployed.found, paper.found, OBJECTIVES["peak-load"], facts.ladder)
    if pair is None or paper.peak is None or not paper.peak.value:
        return "not known"
    if pair.low is None or pair.high is None:
        return "not known: both are beyond the loads that were tried" if pair.p else "not known: one run"
    of = 100 / paper.peak.value
    found = Range(pair.value * of, pair.low * of, pair.high * of)
    return f"peak {found.value:+.1f} % (95 % interval {found.low:+.1f} to {found.high:+.1f})"


def _section(asked: Asked, candidate: Candidate, standings: Sequence[Standing], handed: Handover) -> Section:
    what = f"{candidate.title} on {asked.name}"
    sentence = f"deploy/ holds {what}: how to apply it, what to watch, how to go back and how to confirm it."
    if handed.not_yet:
        sentence = f"deploy/ holds no files to apply: {handed.not_yet}."
    rows: tuple[tuple[Value, ...], ...] = tuple(
        (one.policy, one.deployed_as or "nothing", one.distance) for one in standings
    )
    table = Table((("compared", ""), ("deployed as", ""), ("distance", "")), rows)
    watched: tuple[tuple[Value, ...], ...] = tuple(
        (one.name, one.value, one.threshold, one.better) for one in handed.watched if one.unit == "s"
    )
    limits = Table(
        (("watch", ""), ("simulated", "s"), ("go back beyond", "s"), ("better", "")), watched, "Canary"
    )
    tables = (*([table] if rows else []), *([limits] if watched else []))
    return Section("deploy", "How is it deployed?", sentence, tables=tables)


def _document(asked: Asked | None, handed: Handover, files: Mapping[str, bytes]) -> dict[str, Any]:
    return {
        "target": asked.target.NAME if asked else None,
        "version": asked.version if asked else None,
        "policy": handed.deployment.policy.name,
        "not_yet": handed.not_yet,
        "files": sorted(files),
        "deployed_as": [
            {"policy": one.policy, "deployed_as": one.deployed_as, "distance": one.distance}
            for one in handed.standings
        ],
        "watch": [one._asdict() for one in handed.watched],
        "switchback": None
        if handed.plan is None
        else {"period_s": handed.plan.period_s, "burn_in_s": handed.plan.burn_in_s,
              "periods": handed.plan.periods, "days": handed.plan.days},
    }  # fmt: skip
