"""KV tiers by name: `preset = "host"` in a [[kv_tier]] table stands for the keys of agentctl/tiers/host.toml.

A preset may leave out what depends on the engine. Its unit is then one engine block. Its capacity is given
in engines' own pools (`of_pool`) or in bytes, or has to be said. Keys beside `preset` override its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentctl.errors import ConfigError
from agentctl.toml import check_keys, check_schema, read_toml, suggestion

if TYPE_CHECKING:
    from agentctl.cluster import Pool

TIER_SCHEMA = "agentctl/kv-tier/1"
PRESETS = Path(__file__).parent / "tiers"


def tier_preset_names() -> list[str]:
    return sorted(file.stem for file in PRESETS.glob("*.toml"))


def tier_preset(name: str, place: str = "preset") -> dict[str, Any]:
    """A preset's tables: kv_tier, provenance (system, statement, sources), capacity if it has one."""
    if name not in tier_preset_names():
        raise ConfigError(f"{name!r} is no preset", place=place, hint=suggestion(name, tier_preset_names()))
    tables = read_toml(PRESETS / f"{name}.toml")
    check_schema(tables, TIER_SCHEMA, name)
    check_keys(tables, ("schema", "kv_tier", "capacity", "provenance"), f"{name}:")
    return tables


def with_preset(table: Mapping[str, Any], pools: Sequence[Pool], place: str) -> Mapping[str, Any]:
    """The keys of a [[kv_tier]] table and, where it leaves them out, its preset's. Raises ConfigError."""
    if not isinstance(table, Mapping) or "preset" not in table:
        return table
    name = table["preset"]
    if not isinstance(name, str):
        raise ConfigError("is not a string", place=f"{place} preset", expected="a preset's name")
    preset = tier_preset(name, f"{place} preset")
    keys = {"name": name, **preset["kv_tier"], **{key: table[key] for key in table if key != "preset"}}
    if "unit_tokens" not in keys:
        keys["unit_tokens"] = _same(
            [pool.block_tokens for pool in pools], "blocks of different sizes", f"{place} unit_tokens"
        )
    if "capacity_tokens" not in keys:
        keys["capacity_tokens"] = _capacity(preset.get("capacity", {}), pools, f"{place} capacity_tokens")
    return keys


def _capacity(capacity: Mapping[str, Any], pools: Sequence[Pool], place: str) -> int:
    """In tokens, of one tier."""
    check_keys(capacity, ("of_pool", "bytes"), f"{place}:")
    if "of_pool" in capacity:
        tokens = [pool.usable_blocks * pool.block_tokens for pool in pools]
        return int(capacity["of_pool"] * _same(tokens, "KV pools of different sizes", place))
    if "bytes" in capacity:
        sizes = [pool.profile.kv_bytes_per_token for pool in pools]
        size = _same(sizes, "KV of different sizes", place)
        if size is not None:
            return int(capacity["bytes"] / size)
        raise ConfigError(
            "missing, and the profile does not say kv_bytes_per_token: the preset's capacity is in bytes",
            place=place,
        )
    raise ConfigError("missing: the preset leaves it to you", place=place)


def _same(values: Sequence[Any], what: str, place: str) -> Any:
    if len(set(values)) > 1:
        raise ConfigError(f"missing, and the pools have {what}", place=place)
    return values[0]
