"""Arguments of engines that are written here: type, range and default, by engine and version.

Taken from the engines' sources; neither parser can be imported without torch. A flag that is not in its table
is not written.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agentctl.errors import ConfigError
from agentctl.toml import suggestion

Kind = Literal["int", "float", "text", "json", "switch"]


class Argument(NamedTuple):
    kind: Kind
    default: Any = None  # None: none, or set at start
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()  # of a JSON object


Table = dict[str, Argument]

CONNECTORS = (
    "OffloadingConnector", "SimpleCPUOffloadConnector", "LMCacheConnectorV1", "LMCacheMPConnector",
    "NixlConnector", "MooncakeConnector", "MooncakeStoreConnector", "MultiConnector",
)  # fmt: skip
VLLM_0_33_0: Table = {
    "--max-model-len": Argument("int", least=1),
    "--max-num-batched-tokens": Argument(
        "int", least=1
    ),  # 8192 on GPUs of 70 GiB, 16384 from 160 GiB, else 2048
    "--max-num-seqs": Argument("int", least=1),  # 1024 on the same, else 256
    "--block-size": Argument("int", 16, least=1),
    "--long-prefill-token-threshold": Argument("int", 0, least=0),
    "--prefill-schedule-interval": Argument("int", 1, least=1),
    "--watermark": Argument("float", 0.0, least=0, most=1),
    "--scheduling-policy": Argument("text", "fcfs", choices=("fcfs", "priority")),
    "--enable-chunked-prefill": Argument("switch"),
    "--enable-prefix-caching": Argument("switch"),
    "--no-enable-prefix-caching": Argument("switch"),
    "--scheduler-reserve-full-isl": Argument("switch"),
    "--no-scheduler-reserve-full-isl": Argument("switch"),
    "--tensor-parallel-size": Argument("int", 1, least=1),
    "--kv-transfer-config": Argument(
        "json", keys=("kv_connector", "kv_role", "kv_connector_extra_config", "kv_load_failure_policy")
    ),
    "--kv-events-config": Argument(
        "json", keys=("enable_kv_cache_events", "publisher", "endpoint", "topic", "buffer_steps")
    ),
}
SGLANG_0_5_23: Table = {
    "--context-length": Argument("int", least=1),
    "--chunked-prefill-size": Argument("int", least=-1),  # 8192 on GPUs of 60 to 160 GB
    "--max-prefill-tokens": Argument("int", 16384, least=1),
    "--max-running-requests": Argument("int", least=1),
    "--page-size": Argument("int", least=1),
    "--schedule-policy": Argument(
        "text", "fcfs",
        choices=("fcfs", "lpm", "random", "dfs-weight", "lof", "routing-key", "hrrn",
                 "shortest-prefill-first"),
    ),
    "--schedule-conservativeness": Argument("float", 1.0, least=0),
    "--enable-mixed-chunk": Argument("switch"),
    "--disable-radix-cache": Argument("switch"),
    "--tensor-parallel-size": Argument("int", 1, least=1),
    "--enable-hierarchical-cache": Argument("switch"),
    "--hicache-ratio": Argument("float", 2.0, least=0),
    "--hicache-write-policy": Argument(
        "text", "write_through", choices=("write_through", "write_back", "write_through_selective")
    ),
    "--hicache-storage-backend": Argument("text", choices=("file", "mooncake", "hf3fs", "nixl")),
    "--hicache-storage-prefetch-policy": Argument(
        "text", "timeout", choices=("best_effort", "wait_complete", "timeout")
    ),
    "--kv-events-config": Argument("json", keys=("publisher", "endpoint", "topic", "buffer_steps")),
}  # fmt: skip
TABLES: dict[str, dict[str, Table]] = {  # newest version first
    "vllm": {"0.33.0": VLLM_0_33_0},
    "sglang": {"0.5.23": SGLANG_0_5_23},
}


def table_of(engine: str, version: str | None = None) -> tuple[str, Table]:
    """The version, by default the newest known, and its table; raises ConfigError."""
    known = TABLES[engine]
    if version is not None and version not in known:
        raise ConfigError(f"version {version!r} of {engine} is not known", expected=" or ".join(known))
    found = version or next(iter(known))
    return found, known[found]


def check_arguments(arguments: Mapping[str, str | None], table: Table, place: str) -> None:
    """Raise ConfigError for a flag, a type or a value that the table does not have.

    arguments  flag -> value as it is written; None for a switch
    """
    for flag, value in arguments.items():
        if flag not in table:
            raise ConfigError("unknown argument", place=f"{place} {flag}", hint=suggestion(flag, table))
        fault = _fault(table[flag], value)
        if fault:
            raise ConfigError(f"is {value!r}", place=f"{place} {flag}", expected=fault)


def _fault(argument: Argument, value: str | None) -> str | None:
    """What would be right, None when it is."""
    if argument.kind == "switch" or value is None:
        return None if (argument.kind == "switch") == (value is None) else "a switch, or a value"
    if argument.kind == "json":
        return _json_fault(argument, value)
    if argument.kind == "text":
        return None if value in argument.choices else " or ".join(argument.choices)
    try:
        found = int(value) if argument.kind == "int" else float(value)
    except ValueError:
        return "a whole number" if argument.kind == "int" else "a number"
    if argument.least is not None and not found >= argument.least:
        return f"at least {argument.least:g}"
    if argument.most is not None and not found <= argument.most:
        return f"at most {argument.most:g}"
    return None


def _json_fault(argument: Argument, value: str) -> str | None:
    try:
        found = json.loads(value)
    except json.JSONDecodeError:
        return "JSON"
    if not isinstance(found, dict):
        return "a JSON object"
    unknown = set(found) - set(argument.keys)
    if unknown:
        return f"only the keys {', '.join(argument.keys)}"
    if "kv_connector" in found and found["kv_connector"] not in CONNECTORS:
        return " or ".join(CONNECTORS)
    return None
