"""Candidates, workloads and the study, put together: the library function behind `agentctl recommend`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from agentctl import __version__
from agentctl.cluster import Cluster, check_simulated
from agentctl.errors import UsageError
from agentctl.metrics import Run
from agentctl.policies._settings import settled
from agentctl.profile import Profile
from agentctl.recommend import describe, words
from agentctl.recommend.candidates import base_cluster, candidates_of, left_out_of, routers_in_words
from agentctl.recommend.decision import OBJECTIVES, Decision, decide
from agentctl.recommend.parallel import n_workers
from agentctl.recommend.search import RUNGS_PER_DOUBLING, Candidate, Ladder
from agentctl.recommend.study import study
from agentctl.recommend.validity import REFUSED, Check, Evidence, check_all
from agentctl.result import Progress, RunResult
from agentctl.sim.driver import simulate
from agentctl.simulate import assumptions, cluster_facts, current_policy, trace_facts
from agentctl.slo import parse_slos
from agentctl.toml import suggestion
from agentctl.trace import Trace
from agentctl.validate.back_test import BackTest, back_test
from agentctl.validate.run import verdict_of
from agentctl.workload import Workload, compile_workload, resample, scale_load, take_sessions

RECORDED = Ladder(
    -3 * RUNGS_PER_DOUBLING, 2 * RUNGS_PER_DOUBLING
)  # an eighth to REFUSED times the log's load
SYNTHESISED = Ladder(-3 * RUNGS_PER_DOUBLING, 5 * RUNGS_PER_DOUBLING)  # there the rate is ours to choose


def recommend(
    trace: Trace,
    *,
    profile: Profile | None = None,
    cluster: Cluster | None = None,
    policies: Sequence[str] = (),
    engines: Sequence[int] = (),
    slos: Sequence[str] = (),
    current: str | None = None,
    objective: str = "peak-load",
    replay: str | None = None,
    replicates: int | None = None,
    seed: int = 0,
    strict: bool = False,
    progress: Progress | None = None,
) -> RunResult:
    """Compare `policies` x `engines` on `trace` and name one, or say that the data cannot.

    profile, cluster  one of them is needed. A profile alone: one pool of it, 4 engines; both: the cluster's
                      limits, the profile's batch times
    policies          names; default: all
    engines           numbers of engines to try; default: the cluster's
    slos              SLO expressions; none: the default SLO, printed
    current           `POLICY` or `POLICY:key=value,...`; default: round-robin, said not to be the user's
    objective         peak-load | gpus (decision.OBJECTIVES)
    replicates        resampled workloads; default: what ends in tens of seconds, stated

    The document has schema `agentctl/recommend/1`; the exit code is 3 when no candidate holds the SLOs at the
    trace's load, when nothing can be decided, or, with `strict`, when a validity check warns. Raises
    InputError, ConfigError, UsageError.
    """
    if objective not in OBJECTIVES:
        raise UsageError("unknown objective", place=objective, hint=suggestion(objective, OBJECTIVES))
    base = base_cluster(profile, cluster)
    check_simulated(base)
    sizes = sorted(set(engines)) or [base.n_engines]
    clusters = {n: base.with_engines(n) if n != base.n_engines else base for n in sizes}
    objectives = parse_slos(slos)
    workload = compile_workload(trace, replay=replay)
    if workload.replay == "closed-loop":
        raise UsageError(
            "a closed loop has no load to vary", place="--replay", expected="another replay mode"
        )
    candidates, reference, reference_only = candidates_of(clusters, policies, current)
    recorded = not workload.starts_synthesised
    ladder = RECORDED if recorded else SYNTHESISED

    @lru_cache(maxsize=4)  # candidates of a replicate follow each other
    def workload_at(replicate: int, load: float) -> Workload:
        drawn = workload if replicate == 0 else resample(workload, seed + replicate)
        return at_load(drawn, load, seed)

    def run(candidate: Candidate, on: Workload) -> Run:
        cluster = settled(clusters[candidate.engines], candidate.policy)
        return simulate(on, cluster, candidate.policy, seed=seed).run()

    _compile_all(run, candidates, workload)
    found = study(candidates, workload_at, run, ladder, objectives, replicates, progress, n_workers())
    decision = decide(found, reference, objective, reference_only)
    tested = _back_test(trace, clusters, base if cluster else None, current)
    checks = check_all(Evidence(trace.meta, workload, decision, recorded, tested))
    status, lead, exit_code = _status(decision, checks, strict)
    called = reference if current else f"{reference} (not yours)"
    rate = session_rate_per_min(trace, workload)
    method = (words.replicates(decision.n_replicates), *_method(recorded))
    left_out = left_out_of(base, policies)
    if left_out:
        method += (
            f"{', '.join(left_out)} left out: takes coefficients of the profile, which are not known singly",
        )
    told = describe.Told(
        decision=decision,
        checks=checks,
        ladder=ladder,
        slos=tuple(slo.text for slo in objectives),
        current=called,
        rate_per_min=rate,
        status=status,
        statement=lead + words.statement(decision, called, rate),
        assumptions=(*method, *assumptions(workload, base, routers_in_words(base, candidates))),
    )
    head = {**_provenance(workload, base, seed), "exit_code": exit_code, "back_test": verdict_of(tested)}
    return RunResult(describe.document(told, head), describe.sections(told), exit_code)


def _back_test(
    trace: Trace, clusters: Mapping[int, Cluster], given: Cluster | None, current: str | None
) -> BackTest:
    """V1, on the cluster as it is today: the one given, or the only size asked for.

    Sizes that are only tried do not say how many engines the log's router had: there the log's own placement
    is the only one.
    """
    today = next(iter(clusters.values())) if len(clusters) == 1 else given
    base = today or next(iter(clusters.values()))
    policy = current_policy(current, base)[1] if current and today else None
    return back_test(trace, base, policy, resize=True)


def _compile_all(
    run: Callable[[Candidate, Workload], Run], candidates: list[Candidate], on: Workload
) -> None:
    """One session with every policy, so that the simulator is compiled once and not in every worker."""
    first = take_sessions(on, np.array([0]), on.session_starts()[:1])
    for candidate in {candidate.policy.name: candidate for candidate in candidates}.values():
        run(candidate, first)


def _provenance(workload: Workload, base: Cluster, seed: int) -> dict[str, Any]:
    return {
        "agentctl_version": __version__,
        "trace": trace_facts(workload),
        "cluster": cluster_facts(base),
        "replay": workload.replay,
        "seed": seed,
        "requests": workload.n_requests,
        "counts": workload.counts,
    }


def at_load(workload: Workload, load: float, seed: int) -> Workload:
    """The workload at a multiple of its session start rate.

    Synthesised starts are spread out for a lower rate, which keeps all sessions; recorded ones are thinned.
    """
    if workload.starts_synthesised and load < 1:
        starts = workload.session_starts()
        spread = starts.min() + (starts - starts.min()) / load
        return take_sessions(workload, np.arange(workload.n_sessions), spread)
    return scale_load(workload, load, seed)


def session_rate_per_min(trace: Trace, workload: Workload) -> float | None:
    """Session starts per minute: as synthesised, or between the first and the last start of the log."""
    synthesised = trace.meta.get("time", {}).get("session_rate_per_min")
    if synthesised is not None:
        return float(synthesised)
    starts = workload.session_starts()
    span = float(np.ptp(starts)) if starts.size else 0.0
    return 60.0 * (starts.size - 1) / span if span > 0 else None


def _status(decision: Decision, checks: Sequence[Check], strict: bool) -> tuple[str, str, int]:
    """The status of the verdict, what to say before it, and the exit code."""
    warned = [check.id for check in checks if check.status in ("WARN", "FAIL")]
    if decision.chosen is None:
        return "not evaluated", "", 3
    failed = [check.id for check in checks if check.status == "FAIL"]
    if failed:
        return "declined", f"Declined: this trace cannot carry a claim ({', '.join(failed)}). ", 3
    if strict and warned:
        return "declined", f"Declined: --strict is on and {', '.join(warned)} warn. ", 3
    scores = [row.found.at[0].score for row in decision.rows]
    met = any(score is not None and score >= 0 for score in scores)
    if not (decision.chosen.holds if decision.objective == "gpus" else met):
        return (
            "objective not met",
            "No candidate holds the objectives at the trace's load; the best of them: ",
            3,
        )
    if decision.n_replicates < 2:
        return "not evaluated", "", 0
    return ("clear" if decision.clear else "no clear winner"), "", 0


def _method(recorded: bool) -> tuple[str, ...]:
    scaled = (
        f"other loads thin or clone whole sessions, shifted in time; at most {REFUSED:g} times the log's"
        if recorded
        else "session starts are synthesised: a lower rate spreads them out, a higher one draws more sessions"
    )
    untested = "sensitivity (calibration draws, stale metrics, gateways, a lost engine) was not evaluated"
    return scaled, untested
