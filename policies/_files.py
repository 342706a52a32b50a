"""Policy files: which formula a router runs, with its defaults, its ties, and how old its signals are.

One file `ROUTER-POLICY.toml` for each production policy `ROUTER:POLICY`. The simulator takes its defaults
from it, and a configuration for the router is written from it: what was simulated is what is deployed.

    schema = "agentctl/policy/1"
    name = "vllm-router:kv_aware"    # the file's name, with a colon for the dash that follows the router
    router = "vllm-router"
    version = "0.1.17"               # the version that was read
    select = "--policy kv_aware"     # how the router is told to use this policy
    formula = "lmetric@vllm-router"  # a policy of this folder
    tie = "first"                    # default: the formula's
    about = "..."                    # what somebody should know who deploys it
    [params.NAME]                    # every parameter of the formula
    value = 0.5                      # left out: the formula's default
    unit = "requests"
    key = "--flag"                   # the router's flag or path in its configuration; "(fixed)": it has none
    meaning = "..."
    [signals]                        # default: the precise index and fresh metrics
    metrics_interval_s = 0.05        # how often engine metrics are published
    metrics_delay_s = 0.0            # how long they travel
    index = "approximate"            # precise: fed by the engines' events; approximate: its own guess
    index_delay_s = 0.0
    index_params = {block_tokens = 64, capacity_tokens = 2_000_000, ttl_s = 120}
    [requires]
    engine = ["--kv-events-config ..."]
    client = ["x-session-id, the same in all requests of a session"]
    [provenance]
    source = "..."
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from agentctl.cluster import IndexParams
from agentctl.errors import ConfigError
from agentctl.toml import build, check_keys, check_schema, read_toml

POLICY_SCHEMA = "agentctl/policy/1"
FOLDER = Path(__file__).parent
FIXED = "(fixed)"  # the key of a parameter that the router does not let its operator set

Seconds = Annotated[float, Meta(ge=0)]
Text = Annotated[str, Meta(min_length=1)]


@dataclass(frozen=True)
class Param:
    """One parameter of the formula as the router has it."""

    unit: Text
    key: Text
    meaning: Text
    value: float | None = None


@dataclass(frozen=True)
class Signals:
    """What the router knows, and how late: settings of [router] that a cluster file may leave out (None)."""

    metrics_interval_s: Seconds | None = None
    metrics_delay_s: Seconds | None = None
    index: Literal["precise", "approximate"] | None = None
    index_delay_s: Seconds | None = None
    index_params: dict[str, Any] | None = None


@dataclass(frozen=True)
class Requires:
    """What must be switched on elsewhere for the policy to work as simulated."""

    engine: tuple[str, ...] = ()  # flags
    client: tuple[str, ...] = ()  # headers or fields of the request
    router: tuple[str, ...] = ()  # flags besides those of the parameters


@dataclass(frozen=True)
class PolicyFile:
    name: Text
    router: Text
    version: Text
    formula: Text
    about: Text
    provenance: dict[str, str]
    select: str = ""
    tie: Literal["first", "rotate", "random", "lexicographic"] | None = None
    params: dict[str, Param] = field(default_factory=dict)
    signals: Signals = field(default_factory=Signals)
    requires: Requires = field(default_factory=Requires)


def policy_file_names() -> list[str]:
    """Names of all policy files, sorted. Reads them all."""
    return sorted(load_policy_file(path).name for path in FOLDER.glob("*.toml"))


def find_policy_file(name: str) -> PolicyFile | None:
    """The file of policy `name`, None when there is none."""
    path = FOLDER / _file_name(name)
    return load_policy_file(path) if ":" in name and path.is_file() else None


@cache
def load_policy_file(path: Path) -> PolicyFile:
    """Raises ConfigError with `file: [table] key`."""
    found = parse_policy_file(read_toml(path), path.name)
    if f"{found.name.replace(':', '-')}.toml" != path.name or not found.name.startswith(f"{found.router}:"):
        raise ConfigError(
            f"is {found.name!r}", place=f"{path.name}: name", expected="ROUTER:POLICY of its file"
        )
    return found


def parse_policy_file(tables: Mapping[str, Any], file: str) -> PolicyFile:
    check_schema(tables, POLICY_SCHEMA, file)
    tables = {key: value for key, value in tables.items() if key != "schema"}
    check_keys(tables, PolicyFile.__dataclass_fields__, f"{file}:")
    params = tables.get("params", {})
    if not isinstance(params, Mapping):
        raise ConfigError("is not a table", place=f"{file}: [params]")
    built = {
        **tables,
        "params": {key: build(Param, table, f"{file}: [params.{key}]") for key, table in params.items()},
        "signals": _signals(tables.get("signals", {}), file),
        "requires": build(Requires, tables.get("requires", {}), f"{file}: [requires]"),
    }
    return build(PolicyFile, built, f"{file}:")


def _signals(table: Any, file: str) -> Signals:
    signals = build(Signals, table, f"{file}: [signals]")
    build(IndexParams, signals.index_params or {}, f"{file}: [signals] index_params:")
    return signals


def _file_name(name: str) -> str:
    return f"{name.replace(':', '-')}.toml"
