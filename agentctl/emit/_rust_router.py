"""sglang-router, smg and vllm-router: flags held against a version's table, and a script that starts it.

The files of each: `start.sh`, `engines.txt` with one placeholder a line that the user replaces by an engine's
address, and `router.json`, the same command for machines.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentctl.cluster import Cluster, IndexParams
from agentctl.emit.base import (
    Deployment,
    command,
    decides_alike,
    loaded,
    number,
    signals_of,
    undeployed_signals,
    with_params_of,
)
from agentctl.errors import ConfigError
from agentctl.policies.base import Policy, policy_file_names

COMMAND_SCHEMA = "agentctl/router-command/1"
CHARACTERS = 4  # of a token, where a router's tree holds text
CHARACTER_TREE, TOKEN_TREE = CHARACTERS, 1
PORT, METRICS_PORT = 30_000, 29_000  # the programs' own defaults
ENVIRONMENT = re.compile(r"[A-Z][A-Z0-9_]*")

Value = int | float | str | None  # None: a switch


@dataclass(frozen=True)
class Flag:
    """What a flag takes: one of `choices`, a number from `least` to `most`, or a text; nothing: a switch."""

    whole: bool = False
    least: float | None = None
    most: float = float("inf")
    choices: tuple[str, ...] = ()
    text: bool = False


SWITCH, TEXT = Flag(), Flag(text=True)
SHARE = Flag(least=0, most=1)
COUNT, POSITIVE = Flag(True, 0), Flag(True, 1)


@dataclass(frozen=True)
class Program:
    """A router's program: how it is called, and the flags of each version that are ever written."""

    name: str
    words: tuple[str, ...]
    flags: Mapping[str, Mapping[str, Flag]]


@dataclass(frozen=True)
class Command:
    """`policy` is our name of it; `events`: each engine also has an address of KV events."""

    program: Program
    version: str
    policy: str
    engines: int
    flags: Mapping[str, Value]
    environment: Mapping[str, Value]
    events: bool = False
    optional: Sequence[str] = ()  # lines of the script that may add to the array `more`


def router_files(run: Command) -> dict[str, str]:
    """The script, the list of engines and the command for machines."""
    return {"start.sh": _script(run), "engines.txt": _engines(run), "router.json": _document(run)}


def own_policy(theirs: Policy, cluster: Cluster, router: str) -> Policy:
    """The policy as the router's own file has it, with its keys: `theirs` may be the bare formula."""
    if theirs.file and theirs.file.router == router:
        return theirs
    names = [name for name in policy_file_names() if name.startswith(f"{router}:")]
    own = [with_params_of(loaded(cluster, name), theirs, cluster) for name in names]
    return next(one for one in own if decides_alike(theirs, one, cluster))


def apply_words(program: Program, version: str) -> tuple[str, ...]:
    return (
        "write the engines' addresses into engines.txt, one a line",
        f"pip install {program.name}=={version}, in an environment of its own",
        "bash start.sh",
    )


def own_flags(program: Program, version: str, policy: Policy) -> tuple[dict[str, Value], dict[str, Value]]:
    """Flags and environment variables that make the router decide as its own `policy`, all of them spelt out.

    Raises ConfigError for a value that the program would refuse or not understand.
    """
    assert policy.file is not None, policy.name
    flags: dict[str, Value] = _words(shlex.split(policy.file.select))
    environment: dict[str, Value] = {}
    for name, param in policy.file.params.items():
        given = number(policy.params[name])
        if param.key.startswith("--"):
            flags[param.key] = given
        elif ENVIRONMENT.fullmatch(param.key):
            environment[param.key] = given
    known = program.flags[version]
    place = f"policy {policy.name}"
    return {flag: checked(flag, value, known, place) for flag, value in flags.items()}, environment


def checked(flag: str, value: Value, known: Mapping[str, Flag], place: str) -> Value:
    """The value as the program reads it: numbers stand for the places of `choices`."""
    what = known[flag]
    if what.choices:
        if isinstance(value, int) and 0 <= value < len(what.choices):
            value = what.choices[value]
        if value not in what.choices:
            raise ConfigError(f"is {value!r}", place=f"{place}: {flag}", expected=" or ".join(what.choices))
        return value
    if what == SWITCH:
        return None
    assert isinstance(value, int | float), (flag, value)
    if what.whole and value != int(value):
        raise ConfigError(f"is {value:g}", place=f"{place}: {flag}", expected="a whole number")
    if not (what.least is None or what.least <= value) or value > what.most:
        most = "" if what.most == float("inf") else f" to {what.most:g}"
        expected = f"{what.least:g}{most}" if most else f"at least {what.least:g}"
        raise ConfigError(f"is {value:g}", place=f"{place}: {flag}", expected=expected)
    return value


def tree_size(deployment: Deployment, per_token: int, trees: int = 1) -> int | None:
    """`--max-tree-size` for the capacity that was simulated; None: it is the program's own default.

    per_token  units of the tree in a token
    trees      engines that share the tree

    Raises ConfigError where the tree would not hold the longest prompt of the trace.
    """
    capacity = index_of(deployment).capacity_tokens
    if capacity is None:
        return None
    if capacity < deployment.longest_prompt:
        raise ConfigError(
            f"is {capacity:,}, and the longest prompt of the trace has {deployment.longest_prompt:,} tokens",
            place="[router] index_params capacity_tokens",
            expected=f"at least {deployment.longest_prompt}",
        )
    return capacity * per_token * trees


def index_of(deployment: Deployment) -> IndexParams:
    return IndexParams(**(deployment.cluster.router.index_params or {}))


def signal_differences(deployment: Deployment, theirs: Policy, can: Mapping[str, Any]) -> list[str]:
    """What was simulated of the router's knowledge and cannot be had; of another formula's nothing counts."""
    if theirs.choose is not deployment.policy.choose:
        return []
    late = undeployed_signals(deployment.cluster.router, can, deployment.policy)
    return [*late, *_tree_differences(deployment, deployment.policy)]


def _tree_differences(deployment: Deployment, policy: Policy) -> list[str]:
    """What was simulated of the router's own tree and cannot be had."""
    if deployment.cluster.router.index != "approximate" or "index" not in signals_of(policy):
        return []
    index, found = index_of(deployment), []
    if index.capacity_tokens is None:
        found.append("the tree is trimmed at the router's own default size; simulated was one without limit")
    if index.ttl_s is not None:
        found.append(f"the tree forgets nothing by age; simulated was {index.ttl_s:g} s")
    if (index.eviction, index.match) != ("tail", "contiguous"):
        found.append("the tree is trimmed from the leaves and matches from the start; not so simulated")
    return found


def whole_seconds(interval: float | None) -> int:
    """Between two polls; metrics that were always fresh are polled as often as can be."""
    return max(round(interval or 0), 1)


def gateway_needs(deployment: Deployment) -> list[str]:
    n = deployment.cluster.router.gateways
    return [f"{n} copies of the router, each with counts and a tree of its own"] if n > 1 else []


# Text


def _words(words: Sequence[str]) -> dict[str, Value]:
    """`--policy manual --flag` -> {"--policy": "manual", "--flag": None}."""
    found: dict[str, Value] = {}
    for word in words:
        if word.startswith("--"):
            found[word] = None
        else:
            found[next(reversed(found))] = word
    return found


def _flat(flags: Mapping[str, Value]) -> list[str]:
    return [str(word) for pair in flags.items() for word in pair if word is not None]


def _placeholder(run: Command, engine: int) -> str:
    url = f"http://ENGINE-{engine}:8000"
    return f"{url} tcp://ENGINE-{engine}:5557" if run.events else url


def _engines(run: Command) -> str:
    head = "# One engine a line: its address" + (", and where it publishes KV events" if run.events else "")
    lines = [head, *(_placeholder(run, engine) for engine in range(run.engines))]
    return "".join(f"{line}\n" for line in lines)


def _document(run: Command) -> str:
    return _json(
        {
            "schema": COMMAND_SCHEMA,
            "program": run.program.name,
            "version": run.version,
            "policy": run.policy,
            "command": list(run.program.words),
            "flags": dict(run.flags),
            "environment": {key: str(value) for key, value in run.environment.items()},
            "engines": [_placeholder(run, engine) for engine in range(run.engines)],
        }
    )


def _json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, allow_nan=False) + "\n"


def _script(run: Command) -> str:
    names = "url events" if run.events else "url _"
    lines = [
        "#!/usr/bin/env bash",
        f"# {run.program.name} {run.version}, {run.policy}, {run.engines} engines.",
        "# Write their addresses into engines.txt. HOST, PORT and METRICS_PORT are read from the",
        "# environment, arguments are passed on.",
        "set -euo pipefail",
        'cd "$(dirname "$0")"',
        "engines=() more=()",
        f'while read -r {names} || [ -n "$url" ]; do',
        '  case "$url" in',
        '    "" | "#"*) continue ;;',
        '    *ENGINE-*) echo "engines.txt: $url is a placeholder" >&2; exit 2 ;;',
        "  esac",
        '  engines+=("$url")',
        *(['  more+=(--kv-event-source "$url=$events")'] if run.events else []),
        "done < engines.txt",
        f'if [ "${{#engines[@]}}" -ne {run.engines} ]; then',
        f'  echo "engines.txt: ${{#engines[@]}} engines; {run.engines} were simulated" >&2',
        "  exit 2",
        "fi",
        *run.optional,
        *(f"export {key}={shlex.quote(str(value))}" for key, value in run.environment.items()),
        f"exec {shlex.join(run.program.words)} \\",
        '  --worker-urls "${engines[@]}" \\',
        f'  --host "${{HOST:-0.0.0.0}}" --port "${{PORT:-{PORT}}}" \\',
        f'  --prometheus-host "${{HOST:-0.0.0.0}}" --prometheus-port "${{METRICS_PORT:-{METRICS_PORT}}}" \\',
        *(f"  {line} \\" for line in _flag_lines(run.flags)),
        '  "${more[@]}" "$@"' if run.events or run.optional else '  "$@"',
    ]
    return "".join(f"{line}\n" for line in lines)


def _flag_lines(flags: Mapping[str, Value]) -> list[str]:
    return [line.removesuffix(" \\").strip() for line in command(_flat(flags)).splitlines()]
