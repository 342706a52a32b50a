"""The cluster as it is today with one of its settings changed: what `--vary KEY=...` tries."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentctl.cluster import (
    SGLANG_KEYS,
    VLLM_KEYS,
    Cluster,
    KvTier,
    Network,
    Pool,
    Router,
    check_capacities,
)
from agentctl.errors import ConfigError, UsageError
from agentctl.recommend.grid import Axis
from agentctl.recommend.roles import ROLES, unlinked, with_roles
from agentctl.toml import build, check_keys, field_names
from agentctl.validate.back_test import LIMITS

ELSEWHERE = {
    "engines": "--engines 4,8 varies it",
    "profile": "another profile is another comparison: run recommend with it",
    "policy": "--policies A,B varies it",
    "params": "--policies POLICY:KEY=1,2 varies them",
    "scheduler": "another engine has other limits: write a cluster file for it",
    "role": "`agentctl recommend --roles all` tries who computes prompts and who decodes",
    "name": "a name changes nothing",
}
TABLES: Mapping[str, type] = {"pool": Pool, "kv_tier": KvTier, "router": Router, "network": Network}


def with_setting(cluster: Cluster, key: str, value: Any) -> Cluster:
    """`cluster` with one key of its file changed.

    key  KEY of every pool, or TABLE.KEY, or TABLE.NAME.KEY for one of several pools or tiers. A tier of
         capacity_tokens 0 is none. Another block size keeps the memory: kv_blocks is converted

    Raises ConfigError for a key or a value that the file could not have, UsageError for one that is varied
    elsewhere.
    """
    place = f"--vary {key}"
    table, name, own = _parts(key, place)
    known = set(field_names(TABLES[table])) - {"name"}
    if own in ELSEWHERE and own not in known - set(ELSEWHERE):
        raise UsageError("is not varied here", place=place, hint=ELSEWHERE[own])
    at = place.removesuffix(own).rstrip(". ")
    check_keys({own: value}, known - set(ELSEWHERE), at)
    if table == "router":
        return replace(cluster, router=build(Router, {**vars(cluster.router), own: value}, at))
    if table == "network":
        if cluster.network is None:
            raise ConfigError("the cluster has no [network]", place=place)
        return replace(cluster, network=build(Network, {**vars(cluster.network), own: value}, at))
    if table == "kv_tier":
        tiers = _chosen([tier.name for tier in cluster.kv_tiers], name, place)
        changed = tuple(
            _tier(tier, own, value, place) if tier.name in tiers else tier for tier in cluster.kv_tiers
        )
        return replace(cluster, kv_tiers=tuple(tier for tier in changed if tier is not None))
    pools = _chosen([pool.name for pool in cluster.pools], name, place)
    return replace(
        cluster,
        pools=tuple(_pool(pool, own, value, place) if pool.name in pools else pool for pool in cluster.pools),
    )


def variants_of(cluster: Cluster, axes: Sequence[Axis]) -> list[tuple[dict[str, Any], Cluster]]:
    """Every combination of values: (what is set, the cluster). Raises as `with_setting`."""
    found = []
    for values in itertools.product(*(axis.values for axis in axes)):
        settings = dict(zip((axis.key for axis in axes), values, strict=True))
        found.append((settings, with_settings(cluster, settings.items())))
    return found


def with_settings(cluster: Cluster, settings: Iterable[tuple[str, Any]]) -> Cluster:
    """`cluster` with all of these. A tier's capacity is set last: at 0 there is nothing left to set."""
    for key, value in sorted(settings, key=lambda one: one[0].endswith("capacity_tokens")):
        cluster = with_setting(cluster, key, value)
    check_capacities(cluster.kv_tiers, "--vary kv_tier")
    return cluster


def variant_of(cluster: Cluster, settings: Iterable[tuple[str, Any]]) -> Cluster:
    """What a candidate with these settings is simulated on: roles are given to pools that have the rest."""
    own = dict(settings)
    roles = own.pop(ROLES, None)
    variant = with_settings(cluster, own.items())
    return unlinked(variant) if roles is None else with_roles(variant, roles)


def setting_of(cluster: Cluster, key: str) -> Any:
    """The value that `cluster` has under such a key; of several pools the first one's."""
    table, name, own = _parts(key, f"--vary {key}")
    if table in ("router", "network"):
        return getattr(getattr(cluster, table), own, None)
    owners: tuple[Any, ...] = cluster.pools if table == "pool" else cluster.kv_tiers
    return next((getattr(owner, own, None) for owner in owners if name in (None, owner.name)), None)


def _parts(key: str, place: str) -> tuple[str, str | None, str]:
    """Table, name and key of `KEY`, `TABLE.KEY` or `TABLE.NAME.KEY`."""
    table, dot, rest = key.partition(".")
    if not dot:
        return "pool", None, key
    if table not in TABLES:
        check_keys({table: None}, TABLES, "--vary")
    name, _, own = rest.rpartition(".")
    return table, name or None, own


def _chosen(names: list[str], name: str | None, place: str) -> list[str]:
    if name is not None and name not in names:
        raise ConfigError(f"the cluster has no {name!r}", place=place, expected=" or ".join(names) or "none")
    if not names:
        raise ConfigError("the cluster has none to vary", place=place, hint="write one into --cluster C.toml")
    return names if name is None else [name]


def _tier(tier: KvTier, key: str, value: Any, place: str) -> KvTier | None:
    if key == "capacity_tokens" and value == 0 and not isinstance(value, bool):
        return None
    if key == "capacity_tokens" and isinstance(value, float) and value.is_integer():
        value = int(value)
    return build(KvTier, {**vars(tier), key: value}, place.removesuffix(key).rstrip(". "))


def _pool(pool: Pool, key: str, value: Any, place: str) -> Pool:
    others, owner = (VLLM_KEYS, "vllm") if pool.scheduler == "sglang" else (SGLANG_KEYS, "sglang")
    if key in others:
        raise ConfigError(f'belongs to scheduler = "{owner}"', place=place)
    own = getattr(pool.profile, key, None)
    if pool.profile.predictive_only and key in LIMITS and own is not None and value != own:
        raise ConfigError(
            f"is {value}, and the profile's coefficients reproduce a log of engines with {own:,}",
            place=place,
            expected=f"{own:,}: they are not known one by one (predictive_only)",
            hint="calibrate from step logs, which tell how a batch's time depends on what is in it",
        )
    changed = {**vars(pool), key: value}
    size = "page_tokens" if pool.scheduler == "sglang" else "block_tokens"
    if key == size and isinstance(value, int) and value > 0:
        changed |= {"block_tokens": value, "kv_blocks": max(pool.kv_blocks * pool.block_tokens // value, 2)}
    found = build(Pool, changed, place.removesuffix(key).rstrip(". "))
    if found.scheduler == "sglang" and max(found.chunked_prefill_size, 0) % found.page_tokens:
        raise ConfigError(f"chunked_prefill_size is {found.chunked_prefill_size}", place=place,
                          expected=f"a multiple of page_tokens ({found.page_tokens})")  # fmt: skip
    return found
