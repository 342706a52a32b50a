"""The README of deploy/: how to apply, what differs, what to watch, how to go back, how to confirm."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentctl.cluster import Cluster
from agentctl.emit._canary import Watch
from agentctl.emit._records import short_name
from agentctl.emit._switchback import Effect, Switchback
from agentctl.emit.base import Deployment, Emitted, Target
from agentctl.emit.engine_args import EngineArgs
from agentctl.policies._settings import router_words, settled
from agentctl.policies.base import Policy
from agentctl.report.escape import printable


@dataclass(frozen=True)
class Standing:
    """A policy that was compared and what it would be in the target; `distance` in words, from the run."""

    policy: str
    deployed_as: str | None
    why: tuple[str, ...]
    distance: str


@dataclass(frozen=True)
class Handover:
    """What a recommendation hands over.

    deployment  the recommended configuration as it was simulated, today's beside it
    target      None: no router was asked for
    statement   of the verdict
    standings   every policy that was compared, in the target
    plan        switchback, and the effect it is planned for
    not_yet     why nothing should be applied, by the verdict; None: it may be
    """

    deployment: Deployment
    target: Target | None
    statement: str
    slos: tuple[str, ...]
    standings: tuple[Standing, ...] = ()
    watched: tuple[Watch, ...] = ()
    plan: Switchback | None = None
    effect: Effect | None = None
    provenance: tuple[tuple[str, str], ...] = ()
    not_yet: str | None = None


@dataclass(frozen=True)
class Written:
    """The files of one configuration, and what they came from."""

    files: Mapping[str, str]
    router: Emitted | None
    engines: tuple[EngineArgs, ...]


def readme(handed: Handover, new: Written, today: Written | None, refused: str | None) -> Iterator[str]:
    deployment, target = handed.deployment, handed.target
    program = f" on {target.NAME} {deployment.version}" if target else ""
    yield f"# Deploy {_code(short_name(deployment.policy))}{program}"
    yield ""
    yield _text(handed.statement)
    yield ""
    if refused:
        yield f"**Nothing here can be applied:** {_text(refused)}."
        yield ""
    yield from _apply(handed, new)
    yield from _fits(handed, new)
    yield from _changes(deployment, today)
    yield from _watch(handed)
    yield from _rollback(handed, today)
    yield from _confirm(handed)
    yield "## Made from"
    yield ""
    yield from _bullets(f"{_text(what)}: {_code(value)}" for what, value in handed.provenance)
    yield from _bullets(
        ["`simulated/` runs again: `agentctl simulate TRACE --cluster simulated/cluster.toml`"]
    )


def _apply(handed: Handover, new: Written) -> Iterator[str]:
    yield "## Apply"
    yield ""
    steps = [*_limits_of_power(handed.deployment.cluster)]
    steps += [
        f"start {pool.engines} engines of pool {_code(pool.name)} with `{folder}/start.sh` "
        f"({engine.engine} {engine.version})"
        for folder, engine, pool in _engine_folders(new.engines, handed.deployment.cluster)
    ]
    if new.router:
        steps += [_text(step) for step in new.router.apply]
    for n, step in enumerate(steps, 1):
        yield f"{n}. {step}"
    if not steps:
        yield "There is nothing to apply."
    yield ""
    if new.router and new.router.headers:
        yield "Clients have to send:"
        yield ""
        for header in new.router.headers:
            yield f"- header {_code(header.name)}: {_text(header.value)} ({_text(header.why)})"
        yield ""
    needs = [*(new.router.needs if new.router else ()), *(need for one in new.engines for need in one.needs)]
    if needs:
        yield "It also has to be so that:"
        yield ""
        yield from _bullets(map(_text, needs))


def _limits_of_power(cluster: Cluster) -> Iterator[str]:
    """What an engine's own flags cannot say."""
    for pool in cluster.pools:
        told = f"on every GPU of pool {_code(pool.name)} run"
        if pool.power_cap_w is not None:
            yield f"{told} {_code(f'nvidia-smi -pl {pool.power_cap_w:.0f}')} (power cap)"
        if pool.sm_clock_mhz is not None:
            yield f"{told} {_code(f'nvidia-smi -lgc {pool.sm_clock_mhz:.0f}')} (clock lock)"


def _engine_folders(engines: Sequence[EngineArgs], cluster: Cluster) -> Iterator[tuple[str, EngineArgs, Any]]:
    for n, (engine, pool) in enumerate(zip(engines, cluster.pools, strict=bool(engines)), 1):
        yield ("engines" if len(engines) == 1 else f"engines-{n}"), engine, pool


def _fits(handed: Handover, new: Written) -> Iterator[str]:
    """What was simulated against what is deployed."""
    yield "## What was simulated"
    yield ""
    router = handed.deployment.cluster.router
    yield f"{router_words(router)[0].upper()}{router_words(router)[1:]}; gateways: {router.gateways}."
    yield ""
    differences = [
        *(new.router.differences if new.router else ()),
        *(d for e in new.engines for d in e.differences),
    ]
    if differences:
        yield "What is deployed differs from it:"
        yield ""
        yield from _bullets(map(_text, differences))
    elif new.router:
        yield "The files of the router do exactly this."
        yield ""
    if handed.target is None:
        yield "No router was asked for (`--router TARGET`): here are the engines' arguments and the policy."
        yield ""
    if handed.standings:
        yield "| compared | deployed as | distance | why |"
        yield "| --- | --- | --- | --- |"
        for one in handed.standings:
            deployed = "nothing" if one.deployed_as is None else _code(one.deployed_as)
            cells = (_code(one.policy), deployed, _text(one.distance), _text("; ".join(one.why)))
            yield f"| {' | '.join(cells)} |"
        yield ""


def _changes(deployment: Deployment, today: Written | None) -> Iterator[str]:
    yield "## Changes from today"
    yield ""
    if deployment.today is None:
        yield "Today's configuration is not known: give `--cluster` and `--current`."
        yield ""
        return
    before, policy = deployment.today
    rows = list(_differing(settled(before, policy), policy, deployment.cluster, deployment.policy))
    if not rows:
        yield "None: it is today's configuration."
        yield ""
        return
    yield "| setting | today | new |"
    yield "| --- | --- | --- |"
    for name, old, new in rows:
        yield f"| {_text(name)} | {_code(_value(old))} | {_code(_value(new))} |"
    yield ""
    yield "As a diff of files: `changes.diff`." + (
        "" if today and today.router else " Today's router is not among the targets' files."
    )
    yield ""


def _differing(
    before: Cluster, old: Policy, after: Cluster, new: Policy
) -> Iterator[tuple[str, object, object]]:
    if old.name != new.name:
        yield "policy", short_name(old), short_name(new)
    if old.choose is new.choose:  # parameters of another rule are no change of anything
        for key, a in old.params.items():
            b = new.params[key]
            if a != b and not (a != a and b != b):
                yield f"policy {key}", a, b
    yield from _fields("router", before.router, after.router, ("policy", "params"))
    for mine, theirs in zip(before.pools, after.pools, strict=False):
        yield from _fields(f"pool {theirs.name}", mine, theirs, ("profile",))
    if before.kv_tiers != after.kv_tiers:
        yield "KV tiers", [tier.name for tier in before.kv_tiers], [tier.name for tier in after.kv_tiers]
        for was, becomes in zip(before.kv_tiers, after.kv_tiers, strict=False):
            yield from _fields(f"tier {becomes.name}", was, becomes, ())


def _fields(name: str, old: Any, new: Any, without: Sequence[str]) -> Iterator[tuple[str, object, object]]:
    for key in type(new).__dataclass_fields__:
        if key not in without and getattr(old, key) != getattr(new, key):
            yield f"{name} {key}", getattr(old, key), getattr(new, key)


def _watch(handed: Handover) -> Iterator[str]:
    yield "## Watch in the canary"
    yield ""
    if not handed.watched:
        yield "The run has no values at the trace's load."
        yield ""
        return
    yield "As simulated at the trace's load, and the end of the run's interval from which on to go back:"
    yield ""
    yield "| what | simulated | go back if | engine's metric |"
    yield "| --- | --- | --- | --- |"
    for one in handed.watched:
        side = "above" if one.better == "lower" else "below"
        limit = "no interval" if one.threshold is None else f"{side} {_measure(one.threshold, one.unit)}"
        yield f"| {one.name} | {_measure(one.value, one.unit)} | {limit} | {_code(one.query)} |"
    yield ""
    yield from _bullets(
        [
            f"to miss the objectives is a reason too: {' and '.join(map(_code, handed.slos))}",
            "a canary takes whole sessions and their share of the engines, or it sees another load",
            "its caches start cold: judge it after the burn-in of the switchback plan",
        ]
    )


def _rollback(handed: Handover, today: Written | None) -> Iterator[str]:
    yield "## Go back"
    yield ""
    if today is None:
        yield "Keep the configuration that runs now: it is not known here, and going back is applying it."
    elif today.router is None and handed.target is not None:
        yield "Engines: the files in `rollback/`. Today's router is not one that is written here: keep it."
    else:
        yield "Apply the files in `rollback/` in the same order: they are today's configuration."
    yield ""
    yield "Sessions that change their engine find cold caches once more."
    yield ""


def _confirm(handed: Handover) -> Iterator[str]:
    yield "## Confirm online"
    yield ""
    plan = handed.plan
    if plan is None:
        yield "No plan: the run has no sessions to take lifetimes from."
        yield ""
        return
    yield "Switch between today's and the new configuration, whole periods of all traffic:"
    yield ""
    number = "not known" if plan.periods is None else f"{plan.periods:,} ({plan.days:,} days)"
    yield from _bullets(
        [
            f"a period is {_time(plan.period_s)}, at least three median session lifetimes",
            f"its first {_time(plan.burn_in_s)} do not count: sessions and KV of the other one live on",
            f"periods: {number}: {_text(plan.why)}",
            "the order is random, each hour of the day sees both as often: `switchback.json`",
            "compare the means of period means, a period being one observation",
        ]
    )


# Text


def _bullets(items: Any) -> Iterator[str]:
    lines = [f"- {item}" for item in items]
    if lines:
        yield from lines
        yield ""


def _text(text: str) -> str:
    """Prose that may hold names: nothing in it is markup or a second line."""
    escaped = printable(text)
    for character in "\\`*_[]<>#|":
        escaped = escaped.replace(character, f"\\{character}")
    return escaped


def _value(value: object) -> str:
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _code(text: str) -> str:
    """A code span; in tables too a bar stands for itself."""
    shown = printable(text).replace("|", "\\|")
    fence = "`"
    while fence in shown:
        fence += "`"
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown or ' '}{pad}{fence}"


def _measure(value: float, unit: str) -> str:
    if unit == "s":
        return f"{value * 1e3:,.3g} ms" if value < 1 else f"{value:,.3g} s"
    return f"{value:.3f}"


def _time(seconds: float) -> str:
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.3g} s"
