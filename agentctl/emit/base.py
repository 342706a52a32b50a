"""What a deployment target is, and how targets are found.

A target is one file of this folder: NAME, VERSIONS (of its program, newest first) and two functions,

    counterpart(policy, cluster, version) -> Policy | None    what the program can do that comes nearest
    emit(deployment) -> Emitted                               the files that make it do so

A counterpart is a Policy of ours, to be simulated as it would be deployed; the policy itself where the
program does exactly that. Nothing lists the files.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, cast

import msgspec

from agentctl.cluster import Cluster, Router
from agentctl.errors import ConfigError
from agentctl.policies._files import FIXED
from agentctl.policies._names import parse_policy
from agentctl.policies._settings import router_settings
from agentctl.policies.base import Policy, load_policy, policy_file_names
from agentctl.toml import suggestion

T = TypeVar("T")
Fit = Literal["exact", "nearest", "none"]
SIGNALS = ("index", "index_params", "index_delay_s", "metrics_interval_s", "metrics_delay_s")
SCRAPED = ("waiting_requests", "running_requests", "kv_used_blocks", "kv_total_blocks", "context_tokens",
           "pending_prefill_tokens", "pending_prefill_pairs")  # fmt: skip
# Uncached tokens are those that the index does not know.
BY_INDEX = ("hit_tokens", "inflight_prefill_tokens", "unpublished_tokens", "pending_prefill_tokens",
            "pending_prefill_pairs", "host_hit_tokens", "global_hit_tokens")  # fmt: skip


@dataclass(frozen=True)
class Deployment:
    """What is written down: what was simulated, no more and no less.

    cluster         settled (policies._settings.settled): what the router knows and how late is said
    version         of the target's program
    longest_prompt  tokens, of the trace; no emitted limit may be below it, nor below
    longest_total   prompt and output of one request
    today           the current configuration, None when it is not known
    """

    cluster: Cluster
    policy: Policy
    version: str
    longest_prompt: int
    longest_total: int
    today: tuple[Cluster, Policy] | None = None


class Header(NamedTuple):
    """What clients must send."""

    name: str
    value: str
    why: str


@dataclass(frozen=True)
class Emitted:
    """What a target makes of a deployment.

    files        relative path -> text; the same deployment gives the same bytes
    fit          exact: these files do what was simulated; nearest: they differ as `differences` say; none:
                 the program has nothing like it, and there are no files
    needs        what else must be so, in words: of engines, of the router
    engine_args  arguments of the engines that this router needs, by flag (None: a switch)
    apply        commands, or what to do in words, in order
    """

    files: Mapping[str, str]
    headers: tuple[Header, ...]
    fit: Fit
    differences: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    engine_args: Mapping[str, str | None] | None = None
    apply: tuple[str, ...] = ()


class Target(Protocol):
    NAME: str
    VERSIONS: tuple[str, ...]
    counterpart: Callable[[Policy, Cluster, str], Policy | None]
    emit: Callable[[Deployment], Emitted]


def targets() -> dict[str, Target]:
    """All targets by name: the files of this folder that have VERSIONS."""
    import agentctl.emit as folder

    names = sorted(module.name for module in pkgutil.iter_modules(folder.__path__))
    modules = [importlib.import_module(f"{folder.__name__}.{name}") for name in names if name[0] != "_"]
    return {module.NAME: _checked(module) for module in modules if hasattr(module, "VERSIONS")}


def find_target(text: str, place: str = "--router") -> tuple[Target, str]:
    """The target and the version that `TARGET[@VERSION]` asks for; without one the newest known.

    Raises ConfigError for a name or a version that is not known.
    """
    name, at, version = text.strip().partition("@")
    known = targets()
    if name not in known:
        raise ConfigError(f"{name!r} is no target", place=place, hint=suggestion(name, known))
    target = known[name]
    if at and version not in target.VERSIONS:
        raise ConfigError(
            f"version {version!r} of {name} is not known",
            place=place,
            expected=" or ".join(target.VERSIONS),
            hint=f"without @VERSION it is {target.VERSIONS[0]}: compare what changed since",
        )
    return target, version or target.VERSIONS[0]


def _checked(module: ModuleType) -> Target:
    missing = [key for key in Target.__annotations__ if not hasattr(module, key)]
    assert not missing, f"{module.__name__} has no {', '.join(missing)}"
    return cast(Target, module)


# Which policy comes nearest


class Near(NamedTuple):
    """The target's policy that stands for one of ours, and what is then different, in words."""

    policy: str  # as on the command line: `llm-d:affinity` or `smg:manual:assignment_mode=1`
    differs: str


def counterpart_of(
    policy: Policy, cluster: Cluster, router: str, nearest: Mapping[str, Near], without: Iterable[str] = ()
) -> Policy | None:
    """The policy itself where `router` has its formula with these parameters and signals, else the nearest.

    nearest  by the name of the formula, for those that the router does not have
    without  policy files of this router that its version does not have

    With the formula but a parameter that the router fixes, another tie rule or other signals, the nearest
    is the router's own policy with the parameters that it takes.
    """
    names = [name for name in policy_file_names() if name.startswith(f"{router}:") and name not in without]
    own = [loaded(cluster, name) for name in names]
    same = [theirs for theirs in own if theirs.choose is policy.choose]
    if policy.file and policy.file.name in names:
        same = [theirs for theirs in same if theirs.name == policy.name]
    found = [with_params_of(theirs, policy, cluster) for theirs in same]
    for theirs in found:
        if decides_alike(policy, theirs, cluster):
            return policy
    if found:
        return min(found, key=lambda theirs: len(different_signals(policy, theirs, cluster)))
    near = nearest.get(formula_of(policy))
    return loaded(cluster, *parse_policy(near.policy, router)) if near else None


def formula_of(policy: Policy) -> str:
    return policy.file.formula if policy.file else policy.name


def loaded(cluster: Cluster, name: str, params: Mapping[str, float] | None = None) -> Policy:
    """A policy with the profile's coefficients and its router's own tie rule."""
    profile = cluster.pools[0].profile
    batch_time = None if profile.predictive_only else profile.batch_time
    return load_policy(name, params, batch_time=batch_time)


def with_params_of(theirs: Policy, policy: Policy, cluster: Cluster) -> Policy:
    """The router's policy with the parameters of `policy` where the router lets its operator set them."""
    given = theirs.file.params if theirs.file else {}
    settable = {key for key in theirs.params if key not in given or given[key].key != FIXED}
    values = {key: value for key, value in policy.params.items() if key in settable}
    return loaded(cluster, theirs.name, {key: v for key, v in values.items() if not math.isnan(v)})


def decides_alike(policy: Policy, theirs: Policy, cluster: Cluster) -> bool:
    """Whether both choose the same engine in every state: formula, parameters, ties and signals."""
    return (
        policy.choose is theirs.choose
        and policy.tie == theirs.tie
        and _same(policy.params, theirs.params)
        and not different_signals(policy, theirs, cluster)
    )


def different_signals(policy: Policy, theirs: Policy, cluster: Cluster) -> list[str]:
    """Settings of the router that are not the same under the two policies, of those that `policy` reads."""
    ours, other = (router_settings(cluster.router, one)[0] for one in (policy, theirs))
    return [key for key in signals_of(policy) if getattr(ours, key) != getattr(other, key)]


def signals_of(policy: Policy) -> tuple[str, ...]:
    """Settings of [router] that matter to the policy, by what it sees."""
    index = any(field in BY_INDEX for field in policy.sees)
    scraped = any(field in SCRAPED for field in policy.sees)
    return (SIGNALS[:3] if index else ()) + (SIGNALS[3:] if scraped else ())


def undeployed_signals(router: Router, can: Mapping[str, Any], policy: Policy) -> tuple[str, ...]:
    """What was simulated of the router's knowledge and is not so in the program, in words.

    can  setting -> what the program does; settings that can be configured are left out
    """
    keys = [key for key in signals_of(policy) if key in can and getattr(router, key) != can[key]]
    return tuple(f"{key} was simulated as {getattr(router, key)}, deployed it is {can[key]}" for key in keys)


def lateness(router: Router, policy: Policy) -> tuple[str, ...]:
    """How late signals may be for the simulation to hold, in words: no setting makes it so."""
    words = {
        "index_delay_s": "events of KV blocks reach the router within {:g} s",
        "metrics_delay_s": "metrics of engines reach the router within {:g} s of their time",
    }
    late = [key for key in signals_of(policy) if key in words and getattr(router, key)]
    return tuple(f"{words[key].format(getattr(router, key))}, as simulated" for key in late)


def instead_of(policy: Policy, theirs: Policy, nearest: Mapping[str, Near]) -> list[str]:
    """That `theirs` is deployed for `policy`, and why it is another; nothing when it is the same."""
    if theirs is policy:
        return []
    near = nearest.get(formula_of(policy)) if formula_of(policy) != formula_of(theirs) else None
    return [f"{theirs.name} instead of {policy.name}" + (f": {near.differs}" if near else "")]


def none_for(policy: Policy, program: str) -> Emitted:
    return Emitted({}, (), "none", (f"{program} has nothing that stands for {policy.name}",))


def fit_of(simulated: Policy, deployed: Policy | None, differences: Sequence[str]) -> Fit:
    if deployed is None:
        return "none"
    return "exact" if deployed is simulated and not differences else "nearest"


def _same(a: Mapping[str, float], b: Mapping[str, float]) -> bool:
    pairs = [(a[key], b[key]) for key in a.keys() & b.keys()]
    return a.keys() == b.keys() and all(x == y or (math.isnan(x) and math.isnan(y)) for x, y in pairs)


# Limits against the trace


def check_limits(deployment: Deployment) -> None:
    """Raise ConfigError when a request of the trace could never run on an engine as it is configured."""
    for pool in deployment.cluster.pools:
        place, total = f"[pool] {pool.name}", deployment.longest_total
        if pool.max_model_len is not None and total > pool.max_model_len:
            raise ConfigError(
                f"max_model_len is {pool.max_model_len:,}, and a request of the trace has {total:,} tokens "
                "with its output",
                place=place,
                expected=f"at least {total}",
                hint="raise max_model_len, or leave such requests out of the trace",
            )
        holds = pool.usable_blocks * pool.block_tokens
        blocks = -(-(total - 1) // pool.block_tokens)  # the last token is never computed
        if blocks > pool.usable_blocks:
            raise ConfigError(
                f"an engine's KV holds {holds:,} tokens, and a request of the trace needs {total - 1:,}",
                place=f"{place} kv_blocks",
                expected=f"at least {blocks + 1} blocks of {pool.block_tokens} tokens",
                hint="more GPUs an engine, a smaller KV type, or a trace without such requests",
            )


def check_roles(deployment: Deployment) -> None:
    """Raise ConfigError for pools of different roles: neither the connectors of such engines nor what a
    router is told of them is written yet."""
    for pool in deployment.cluster.pools:
        if pool.role != "both":
            raise ConfigError(
                f'role = "{pool.role}" is not written down yet',
                place=f"[pool] {pool.name}",
                expected='role = "both"',
                hint="set up the engines' KV connector and the router's roles yourself",
            )


# Text


def read_as(kind: type[T], document: Any, place: str) -> T:
    """The document as msgspec type `kind`; raises ConfigError with the place of what does not fit."""
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        where = f"{place}: {path.rstrip('`').lstrip('.')}" if path else place
        raise ConfigError(text[0].lower() + text[1:].replace("`", ""), place=where) from error


def command(words: Sequence[str]) -> str:
    """A command of one flag a line, quoted for a POSIX shell; ends with a newline."""
    lines: list[str] = []
    for word in words:
        if not lines or (word.startswith("--") and len(word) > 2):
            lines.append(shlex.quote(word))
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n  ".join(lines) + "\n"


def number(value: float) -> int | float:
    """A whole number as such, so that it is written without `.0`."""
    return int(value) if float(value).is_integer() else float(value)
