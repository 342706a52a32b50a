"""Can this trace carry the claim? Checks V1-V11, each with what was found; what was not checked says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from agentctl.coverage import MUCH, NAMES, coverage
from agentctl.emit.base import Fit
from agentctl.recommend.decision import Decision
from agentctl.recommend.objectives import OBJECTIVES
from agentctl.recommend.search import Ladder
from agentctl.sim.outcome import Outcome
from agentctl.validate.back_test import BackTest
from agentctl.validate.words import finding
from agentctl.workload import Workload
from agentctl.workload.load import block_length_s

Status = Literal["OK", "WARN", "FAIL", "NOT EVALUATED", "NOT APPLICABLE"]

LEAST_BLOCKS = 12
NO_BLOCKS = 6  # the spread of fewer is no estimate of anything: a guess
LEAST_LIFETIMES = 10
EXTRAPOLATED = 1.5  # of the recorded load: a claim beyond it is a warning
REFUSED = 4.0  # beyond it no claim is made: the ladder ends there
TOP_SHARE, TOP_TOKENS = 0.01, 0.30
BAD_RECORDS = 0.001  # not of the lines: one line may hold a session of many requests
CUT_SESSIONS = 0.10
INFERRED_SESSIONS = 0.01
GROWTH = 1.5  # of requests in the system from the third to the fourth quarter of the run


@dataclass(frozen=True)
class Check:
    id: str
    question: str
    status: Status
    finding: str


class Evidence(NamedTuple):
    """What the checks look at. `recorded`: session starts are from the log, not synthesised."""

    meta: Mapping[str, Any]  # dataset.json
    workload: Workload
    decision: Decision
    recorded: bool
    back_test: BackTest
    ladder: Ladder = Ladder(0, 0)
    operating: Outcome | None = None  # of the recommended candidate, at `operating_rung`
    router: Deployed | None = None


class Deployed(NamedTuple):
    """What the router that was asked for does in the place of the recommended candidate."""

    router: str  # name and version
    fit: Fit
    differences: tuple[str, ...]


def operating_rung(decision: Decision) -> int:
    """Where the recommended candidate would work: at the trace's own load, or at its peak where that is the
    objective (the highest load that was run and held)."""
    assert decision.chosen is not None
    if OBJECTIVES[decision.objective].at_trace:
        return 0
    at = decision.chosen.found.at
    return max((rung for rung, m in at.items() if m.score is not None and m.score >= 0), default=min(at))


Finding = tuple[Status, str]


def check_all(evidence: Evidence) -> tuple[Check, ...]:
    return tuple(Check(name, question, *find(evidence)) for name, question, find in CHECKS)


def _back_test(evidence: Evidence) -> Finding:
    """V1: the logged run simulated; what could not be compared is a warning, which `strict` fails."""
    status = evidence.back_test.status
    return ("WARN" if status == "UNVALIDATED" else status), finding(evidence.back_test)


def _enough_time(evidence: Evidence) -> Finding:
    if evidence.workload.n_sessions < 2:
        return "FAIL", "one session: every resample of it is the same, so that no interval stands"
    if not evidence.recorded:
        return "NOT APPLICABLE", "session starts are synthesised"
    requests = evidence.workload.requests
    span = float(np.ptp(requests.arrival)) if requests.arrival.size else 0.0
    blocks = span / block_length_s(span)
    start, end = _session_edges(evidence.workload)
    lifetime = float(np.median(end - start))
    text = f"{blocks:.0f} time blocks; the trace is {_times(span, lifetime)} median session lifetimes long"
    if blocks < NO_BLOCKS:
        return "FAIL", f"{text}; fewer than {NO_BLOCKS} time blocks have no interval (a longer log has)"
    return ("WARN" if blocks < LEAST_BLOCKS or span < LEAST_LIFETIMES * lifetime else "OK"), text


def _extrapolation(evidence: Evidence) -> Finding:
    chosen = evidence.decision.chosen
    if not evidence.recorded:
        return "NOT APPLICABLE", "session starts are synthesised: the rate is the load itself"
    if chosen is None or chosen.peak is None:
        return "NOT EVALUATED", "no peak was found"
    load = chosen.peak.value
    text = f"the peak is {load:.2f} times the recorded load; nothing is claimed beyond {REFUSED:g} times"
    return ("WARN" if load > EXTRAPOLATED else "OK"), text


def _calibrated_box(evidence: Evidence) -> Finding:
    """V4: the recommended candidate on the trace, at the load that the decision is about."""
    chosen, outcome = evidence.decision.chosen, evidence.operating
    if chosen is None or outcome is None:
        return "NOT EVALUATED", "nothing was recommended"
    found = coverage(outcome, chosen.candidate.cluster.pools[0].profile.fit)
    if not found:
        return "NOT EVALUATED", "the profile does not say which batches it was calibrated on"
    worst = max(found, key=lambda one: one.outside)
    load = evidence.ladder.load(operating_rung(evidence.decision))
    text = f"at most {worst.outside:.1%} outside: {NAMES[worst.name]}; at {load:.2f} times the trace's load"
    return ("WARN" if worst.outside > MUCH else "OK"), text


def _stability(evidence: Evidence) -> Finding:
    chosen = evidence.decision.chosen
    rung = operating_rung(evidence.decision) if chosen else 0
    at_load = chosen.found.at.get(rung) if chosen else None
    if at_load is None or at_load.in_system_third is None or at_load.in_system_fourth is None:
        return "NOT EVALUATED", "no run at the operating load"
    third, fourth = at_load.in_system_third, at_load.in_system_fourth
    text = (
        f"{third:.1f} requests in the system in the third quarter of the session starts, {fourth:.1f} in the "
        f"last; at {evidence.ladder.load(rung):.2f} times the trace's load"
    )
    assert chosen is not None
    grows = fourth > GROWTH * third and fourth - third > chosen.candidate.engines
    return ("WARN" if grows else "OK"), text


def _cut_sessions(evidence: Evidence) -> Finding:
    """A session counts as cut when the trace ends within a median gap of its last request."""
    if not evidence.recorded:
        return "NOT APPLICABLE", "session starts are synthesised"
    requests = evidence.workload.requests
    gaps = _gaps(evidence.workload)
    if not gaps.size:
        return "OK", "no session has a second turn"
    _, end = _session_edges(evidence.workload)
    cut = float(np.mean(requests.arrival.max() - end < np.median(gaps)))
    text = f"{cut:.1%} of sessions may be cut by the end of the trace"
    return ("WARN" if cut > CUT_SESSIONS else "OK"), text


def _inferred_sessions(evidence: Evidence) -> Finding:
    sources: Mapping[str, int] = evidence.meta.get("sessions", {}).get("source", {})
    rows = sum(sources.values())
    inferred = sum(n for source, n in sources.items() if source in ("message_chain", "block_chain"))
    conflicts = int(evidence.meta.get("chain_conflicts") or 0)
    share = inferred / rows if rows else 0.0
    text = f"{share:.1%} of requests are in inferred sessions; {conflicts} block ids contradict their chain"
    return ("WARN" if share > INFERRED_SESSIONS or conflicts else "OK"), text


def _skew(evidence: Evidence) -> Finding:
    requests = evidence.workload.requests
    tokens = np.bincount(requests.session, weights=requests.prompt_tokens + requests.output_tokens)
    top = max(1, round(TOP_SHARE * tokens.size))
    share = float(np.sort(tokens)[-top:].sum() / tokens.sum())
    text = f"the largest {top} of {tokens.size} sessions hold {share:.1%} of the tokens"
    return ("WARN" if share > TOP_TOKENS else "OK"), text


def _quarantine(evidence: Evidence) -> Finding:
    records = evidence.meta.get("records", {})
    read, bad = int(records.get("read") or 0), int(records.get("quarantined") or 0)
    if not read:
        return "NOT EVALUATED", "the dataset does not say how many records it was made of"
    return ("WARN" if bad > BAD_RECORDS * read else "OK"), f"{bad:,} of {read:,} records were set aside"


def _gaps_known(evidence: Evidence) -> Finding:
    workload = evidence.workload
    if workload.replay not in ("thinktime", "closed-loop"):
        return "WARN", f"replay is {workload.replay}: a slower cluster does not slow the sessions down"
    later = int((workload.requests.turn > 0).sum())
    missing = sum(n for reason, n in workload.counts.items() if "causal" in reason)
    text = f"{missing} of {later} later turns have no known gap and follow the log's clock"
    return ("WARN" if missing else "OK"), text


def _router_semantics(evidence: Evidence) -> Finding:
    """V11: the formula of a paper, or a router's own policy with its own signals."""
    chosen = evidence.decision.chosen
    if chosen is None:
        return "NOT EVALUATED", "nothing was recommended"
    router = evidence.router
    if router is not None:
        if router.fit == "none":
            return "FAIL", f"not on {router.router}: {'; '.join(router.differences)}"
        differs = f"{router.router} differs from what was simulated: {'; '.join(router.differences)}"
        exact = f"{router.router} does what was simulated"
        return ("OK", exact) if router.fit == "exact" else ("WARN", differs)
    file = chosen.candidate.policy.file
    if file is None:
        return "NOT EVALUATED", (
            f"{chosen.candidate.name} was simulated as its paper or baseline has it, and no router was named"
        )
    return "OK", f"simulated as {file.router} {file.version} does it: {file.select or 'its default'}"


CHECKS: tuple[tuple[str, str, Callable[[Evidence], Finding]], ...] = (
    ("V1", "does the simulator reproduce the logged latencies", _back_test),
    ("V2", "is the trace long enough", _enough_time),
    ("V3", "is the load within reach of the recorded one", _extrapolation),
    ("V4", "are the batches within the calibrated ranges", _calibrated_box),
    ("V5", "is the system stable at its load", _stability),
    ("V6", "are sessions whole", _cut_sessions),
    ("V7", "are sessions and block chains logged", _inferred_sessions),
    ("V8", "do a few sessions hold the tokens", _skew),
    ("V9", "were records set aside", _quarantine),
    ("V10", "are the gaps between turns known", _gaps_known),
    ("V11", "does the policy act as the router does", _router_semantics),
)


def _session_edges(workload: Workload) -> tuple[np.ndarray, np.ndarray]:
    """First and last arrival of each session, as logged."""
    end = np.full(workload.n_sessions, -np.inf)
    np.maximum.at(end, workload.requests.session, workload.requests.arrival)
    return workload.session_starts(), end


def _gaps(workload: Workload) -> np.ndarray:
    """Times between consecutive arrivals of a session."""
    requests = workload.requests
    order = np.lexsort((requests.arrival, requests.session))
    same = np.diff(requests.session[order]) == 0
    return np.diff(requests.arrival[order])[same]


def _times(span: float, lifetime: float) -> str:
    return f"{span / lifetime:.0f}" if lifetime > 0 else "many"
