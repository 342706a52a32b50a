"""Candidates, workloads and the study, put together: the library function behind `agentctl recommend`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np

from agentctl import __version__
from agentctl.cluster import Cluster, check_simulated
from agentctl.energy_use import power_words_beside
from agentctl.engines import Engine
from agentctl.engines.forked import Forked
from agentctl.errors import ConfigError, UsageError
from agentctl.fleet import Asked as Models
from agentctl.fleet import labelled
from agentctl.fleet_use import fleet_facts, fleet_section
from agentctl.policies.base import Policy
from agentctl.present import Section
from agentctl.profile import Profile
from agentctl.recommend import describe, words
from agentctl.recommend.bands import MOST_REPLICATES, bands
from agentctl.recommend.candidates import base_cluster, candidates_of, left_out_of, routers_in_words
from agentctl.recommend.decision import Decision, decide
from agentctl.recommend.deployable import Asked, asked_for, check_trace_fits, deployable, deployment_of
from agentctl.recommend.deployment import Facts, Made, hand_over
from agentctl.recommend.finals import look_inside
from agentctl.recommend.grid import Axis
from agentctl.recommend.objectives import OBJECTIVES, objectives_in
from agentctl.recommend.pairs import INDIFFERENCE
from agentctl.recommend.reach import check_reachable
from agentctl.recommend.roles import check_linked, unlinked
from agentctl.recommend.runs import RUNS_FILE, Runs
from agentctl.recommend.scenario import Scenario, covariance_of
from agentctl.recommend.search import RUNGS_PER_DOUBLING, WARM_UP, Found, Ladder
from agentctl.recommend.sensitivity import Sensitivity, families_of, finalists_of, vary
from agentctl.recommend.study import Plan, Work, study
from agentctl.recommend.validity import REFUSED, Check, Deployed, Evidence, check_all
from agentctl.recommend.world import World
from agentctl.result import Progress, RunResult
from agentctl.simulate import assumptions, cluster_facts, current_policy, trace_facts
from agentctl.slo import Slo, parse_slos
from agentctl.trace import Trace
from agentctl.validate.back_test import BackTest, back_test, wrong_model
from agentctl.validate.run import verdict_of
from agentctl.warm_up import compile_first
from agentctl.workload import Process, Workload, compile_arriving

RECORDED = Ladder(
    -3 * RUNGS_PER_DOUBLING, 2 * RUNGS_PER_DOUBLING
)  # an eighth to REFUSED times the log's load
SYNTHESISED = Ladder(-3 * RUNGS_PER_DOUBLING, 5 * RUNGS_PER_DOUBLING)  # there the rate is ours to choose
# Between models a request has a limit of its own, tau: the longest of the paper's, for nine in ten requests.
# Large models never hold the default's 20 ms a token.
BETWEEN_MODELS = ("ttft <= 1.12s @ 90%",)
DEFAULT_OF_MODELS = ("hard", "soft", "latency-agnostic", "least-loaded", "round-robin")

# Estimates play whole queues, which takes long far beyond what the engines can do
OF_MODELS = Ladder(-3 * RUNGS_PER_DOUBLING, RUNGS_PER_DOUBLING)


def recommend(
    trace: Trace,
    *,
    profile: Profile | None = None,
    cluster: Cluster | None = None,
    policies: Sequence[str] = (),
    engines: Sequence[int] = (),
    vary_settings: Sequence[Axis] = (),
    roles: str | None = None,
    wanted_hit: float | None = None,
    slos: Sequence[str] = (),
    current: str | None = None,
    router: str | None = None,
    objective: str | Sequence[str] = "peak-load",
    models: Models | None = None,
    replay: str | None = None,
    arrivals: Process | None = None,
    replicates: int | None = None,
    sensitivity: bool = True,
    seed: int = 0,
    strict: bool = False,
    runs: Runs | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> RunResult:
    """Compare `policies` x `engines` x `vary_settings` on `trace` and name one, or say that the data cannot.

    profile, cluster  one of them is needed. A profile alone: one pool of it, 4 engines; both: the cluster's
                      limits, the profile's batch times
    policies          names, each perhaps with a grid of parameters (grid.policy_grid); default: one of a kind
    engines           numbers of engines to try; default: the cluster's
    vary_settings     other keys of the cluster file and their values (grid.axis)
    roles             assignments of prefill and decode to the engines, beside today's: `all`, or a list
                      (roles.others_than_today); the cluster's network links them
    wanted_hit        share of prompt tokens that the least KV tier is looked for with (agentctl.tier_picture)
    slos              SLO expressions; none: the default SLO, printed
    current           `POLICY` or `POLICY:key=value,...`; default: round-robin, said not to be the user's
    router            `TARGET` or `TARGET@VERSION`: only what it does exactly is recommended, and written down
    objective         one or several of objectives.OBJECTIVES; the first decides inside their Pareto set
    models            pools serve different models, and labels say how well (agentctl.fleet.Asked)
    arrivals          what makes the starts of sessions, or of requests by themselves: its rate is load 1;
                      None: as logged
    replicates        resampled workloads of the finalists; default: as many of 8, 16, 32, 60 as a budget of
                      simulated requests allows, stated
    sensitivity       run the finalists again under changed assumptions
    engine            where runs are computed (agentctl.engines); default: processes. It changes no result
    runs              what has been measured already; new runs are added to it

    The document has schema `agentctl/recommend/1`; the exit code is 3 when no candidate holds the SLOs at the
    trace's load, when nothing can be decided, or, with `strict`, when a validity check warns. Raises
    InputError, ConfigError, UsageError.
    """
    wanted = objectives_in(objective)
    given = base_cluster(profile, cluster)
    if roles is not None:
        check_linked(given)
    base = given if roles is None else unlinked(given)
    check_simulated(base)
    sizes = sorted(set(engines)) or [base.n_engines]
    sized = {n: given.with_engines(n) if n != base.n_engines else given for n in sizes}
    clusters = {n: unlinked(one) for n, one in sized.items()}
    objectives = parse_slos(slos or (BETWEEN_MODELS if models else ()))
    if models is None:
        if any(one.name == "on-time-utility" for one in wanted):
            raise UsageError("needs --labels", place="--objective on-time-utility", expected="--labels FILE")
        if arrivals is None:
            check_model(trace, base)
    for pool in base.pools:
        covariance_of(pool.profile)
    workload = compile_arriving(trace, replay, arrivals, seed)
    if models:
        workload = labelled(workload, trace, base, models)
        policies = policies or (",".join(DEFAULT_OF_MODELS),)
    if workload.replay == "closed-loop":
        raise UsageError(
            "a closed loop has no load to vary", place="--replay", expected="another replay mode"
        )
    check_reachable(objectives, workload, clusters.values())
    candidates, reference, reference_only = candidates_of(sized, policies, current, vary_settings, roles)
    asked = asked_for(router)
    check_trace_fits(asked, next(iter(clusters.values())), candidates[0].policy, workload)
    deployed = deployable(candidates, asked, sized, reference if reference_only else None)
    candidates = deployed.candidates
    recorded = not workload.starts_synthesised
    ladder = OF_MODELS if models else RECORDED if recorded else SYNTHESISED
    runs = runs or Runs()
    engine = engine or Forked()
    world = World(workload, candidates, objectives, ladder, seed, runs)
    compile_first(((one.policy, one.cluster) for one in candidates), workload)
    work = Work(world.measure, ladder, world.keep, progress, engine)
    later = (MOST_REPLICATES + 1 + (20 if sensitivity else 0)) * min(len(candidates), 5)

    def decided(found: Sequence[Found]) -> Decision:
        return decide(found, reference, wanted, reference_only, ladder, deployed.may_be_chosen)

    def chosen(found: Sequence[Found]) -> Found | None:
        row = decided(found).chosen
        return row.found if row else None

    plan = Plan(replicates, wanted, reference, later, chosen)
    decision = decided(study(candidates, work, plan))
    tested = _back_test(trace, clusters, base if cluster else None, None if models else current)
    banded = bands(finalists_of(decision), work, decision.n_replicates)
    varied = _sensitivity(decision, work, plan, workload, tested) if sensitivity else None
    finals = look_inside(decision, partial(world.simulated, observed=True), ladder, seed, progress)
    acts = _deployed(decision, asked, workload)
    seen = Evidence(trace.meta, workload, decision, recorded, tested, ladder, finals.outcome, acts)
    checks = check_all(seen)
    status, lead, exit_code = _status(decision, checks, strict)
    called = reference if current else f"{reference} (not yours)"
    rate = session_rate_per_min(trace, workload)
    method = (words.replicates(decision.n_replicates, replicates is None), *_method(workload, varied))
    method += tuple(f"{name} left out: {why}" for name, why in left_out_of(base, policies, roles).items())
    if any({"both"} < {pool.role for pool in one.cluster.pools} for one in candidates):
        method += ("policies that name one engine are not tried where only some pools are both",)
    told = describe.Told(
        decision=decision,
        checks=checks,
        ladder=ladder,
        slos=tuple(slo.text for slo in objectives),
        current=called,
        rate_per_min=rate,
        status=status,
        statement=lead
        + words.statement(decision, called, rate)
        + (f" With {workload.arriving.words()} at load 1." if workload.arriving else "")
        + words.fragility(varied),
        assumptions=(
            *method,
            *assumptions(workload, base, routers_in_words(candidates)),
            *power_words_beside(base, [(one.label, one.cluster) for one in candidates]),
        ),
        sensitivity=varied,
        bands=tuple(banded),
        finals=finals,
        wanted_share=_wanted_share(objectives),
        wanted_hit=wanted_hit,
    )
    head = {**_provenance(workload, base, seed), "exit_code": exit_code, "back_test": verdict_of(tested)}
    if models and finals.outcome:
        facts = fleet_facts(finals.outcome, finals.outcome.run())
        head["models"] = facts and {**facts, **asdict(models.question)}
    made_from = {"trace": workload.trace_name, "digest": workload.trace_digest, "seed": seed}
    made = hand_over(
        Facts(
            decision=decision,
            workload=workload,
            ladder=ladder,
            measure=partial(world.at_trace_load, engine=engine),
            outcome=lambda candidate: world.simulated(candidate, Scenario(), 0),
            today=_today(clusters, base if cluster else None, current),
            status=status,
            statement=told.statement,
            slos=told.slos,
            provenance=tuple((key, str(value)) for key, value in made_from.items()),
            seed=seed,
        ),
        asked,
        deployed,
    )
    files = {RUNS_FILE: runs.content(), **(made.files if made else {})}
    document = {**describe.document(told, head), "deploy": made.document if made else None}
    rows = finals.outcome.table() if finals.outcome else None
    sections = describe.sections(told)
    if head.get("models"):
        sections = (*sections[:2], fleet_section(head["models"]), *sections[2:])
    return RunResult(document, _with(made, sections), exit_code, rows, files)


def _deployed(decision: Decision, asked: Asked | None, workload: Workload) -> Deployed | None:
    """What the router that was asked for does in the place of the recommended candidate."""
    if asked is None or decision.chosen is None:
        return None
    one = decision.chosen.candidate
    try:
        emitted = asked.target.emit(deployment_of(one.cluster, one.policy, asked, workload, None))
    except ConfigError as error:  # a setting that was tried and cannot be written down
        return Deployed(asked.name, "none", (error.message,))
    return Deployed(asked.name, emitted.fit, emitted.differences)


def _today(
    clusters: Mapping[int, Cluster], given: Cluster | None, current: str | None
) -> tuple[Cluster, Policy] | None:
    """The configuration in use: on the cluster given, or the only size asked for; None: not known."""
    today = given or (next(iter(clusters.values())) if len(clusters) == 1 else None)
    return (today, current_policy(current, today)[1]) if current and today else None


def _with(made: Made | None, sections: tuple[Section, ...]) -> tuple[Section, ...]:
    """How it is deployed stands before the question whether the trace can carry it."""
    if made is None or made.section is None:
        return sections
    at = next((n for n, one in enumerate(sections) if one.name == "validity"), len(sections))
    return (*sections[:at], made.section, *sections[at:])


def check_model(trace: Trace, cluster: Cluster) -> None:
    """Raise ConfigError when the log is a measured run of another model than the profile's.

    Sessions without recorded starts are no such run: replaying them on another model is a question of its
    own.
    """
    measured_run = trace.meta.get("time", {}).get("origin") != "synthesised"
    wrong = wrong_model(trace, cluster) if measured_run else None
    if wrong:
        raise wrong


def _sensitivity(
    decision: Decision, work: Work, plan: Plan, workload: Workload, tested: BackTest
) -> Sensitivity | None:
    rows = finalists_of(decision)
    if not rows:
        return None
    slow = abs(tested.error.value) if tested.error and tested.error.value is not None else None
    recorded = not workload.starts_synthesised
    families = families_of([row.candidate for row in rows], recorded, workload.replay, slow)
    first = OBJECTIVES["peak-load" if decision.objective == "gpus" else decision.objective]
    return vary(rows, families, work, first, plan.rungs)


def _wanted_share(objectives: Sequence[Slo]) -> float | None:
    """The share of requests that has to be within the objective; None: there are several, or it is a mean."""
    percent = objectives[0].percent if len(objectives) == 1 else None
    return None if percent is None else percent / 100


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


def _provenance(workload: Workload, base: Cluster, seed: int) -> dict[str, Any]:
    return {
        "agentctl_version": __version__,
        "trace": trace_facts(workload),
        "cluster": cluster_facts(base),
        "replay": workload.replay,
        "arrivals": workload.arriving.facts() if workload.arriving else None,
        "seed": seed,
        "requests": workload.n_requests,
        "counts": workload.counts,
    }


def session_rate_per_min(trace: Trace, workload: Workload) -> float | None:
    """Session starts per minute: as made, or between the first and the last start of the log."""
    if workload.arriving:
        return 60 * workload.arriving.per_s
    synthesised = trace.meta.get("time", {}).get("session_rate_per_min")
    if synthesised is not None:
        return float(synthesised)
    starts = workload.session_starts()
    span = float(np.ptp(starts)) if starts.size else 0.0
    return 60.0 * (starts.size - 1) / span if span > 0 else None


def _status(decision: Decision, checks: Sequence[Check], strict: bool) -> tuple[str, str, int]:
    """The status of the verdict, what to say before it, and the exit code."""
    if decision.chosen is None:
        return "not evaluated", "", 3
    warned, failed = ([check.id for check in checks if check.status == status] for status in ("WARN", "FAIL"))
    reasons = [f"this trace cannot carry a claim ({', '.join(failed)})"] if failed else []
    reasons += [f"--strict is on and {', '.join(warned)} warn"] if strict and warned else []
    if reasons:
        return "declined", f"Declined: {'; '.join(reasons)}. ", 3
    scores = [row.found.at[0].score for row in decision.rows]
    met = any(score is not None and score >= 0 for score in scores)
    if not (decision.chosen.holds if decision.objective == "gpus" else met):
        surely = " with 95 % confidence" if decision.objective == "gpus" else ""
        return "objective not met", f"No candidate holds the objectives at the trace's load{surely}. ", 3
    if decision.n_replicates < 2:
        return "not evaluated", "", 0
    return ("clear" if decision.clear else "no clear winner"), "", 0


def _method(workload: Workload, varied: Sensitivity | None) -> tuple[str, ...]:
    if process := workload.arriving:
        scaled = (
            f"the trace's load (load 1) is {process.per_s:.4g} {process.of}/s; other loads multiply that "
            f"rate, and bring the {process.of} again, as those of others, where there are not enough; every "
            "resampled workload has arrivals of its own"
        )
    elif workload.starts_synthesised:
        scaled = (
            "session starts are synthesised: a lower rate spreads them out, a higher one draws more sessions"
        )
    else:
        scaled = (
            f"other loads thin or clone whole sessions, shifted in time; at most {REFUSED:g} times the log's"
        )
    counted = (
        f"sessions that start in the first {WARM_UP:.0%} of the time are simulated and not counted: engines "
        "start empty"
    )
    dropped = (
        f"who is surely worse than the best by more than {INDIFFERENCE:.0%} drops out (indifference "
        "zone) after 8, 16 or 32 of the resampled workloads"
    )
    untested = () if varied else ("sensitivity was not evaluated",)
    return scaled, counted, dropped, *untested
