"""Which pool computes prompts and which decodes: the assignments of roles that `--roles` tries.

Pools of one kind are N engines that are shared out: k compute prompts, N - k decode. Pools that differ (GPU,
cap, limits) stay as they are, and each gets a role: prefill, decode or both.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Literal

from agentctl.cluster import Cluster, Pool
from agentctl.errors import ConfigError, UsageError

ROLES = "roles"  # the setting of a candidate
TOGETHER = "collocated"  # all engines do both
ALL = "all"
Role = Literal["prefill", "both", "decode"]
BEFORE: dict[Role, int] = {
    "prefill": 0,
    "both": 1,
    "decode": 2,
}  # engines that compute prompts are listed together


def check_linked(cluster: Cluster) -> None:
    """Raise ConfigError where nobody knows how long a hand-over would take."""
    if cluster.network is None:
        raise ConfigError(
            "missing, and KV moves between pools of different roles",
            place="[network]",
            expected="bytes_per_s, and latency_s if it has any",
            hint="write [network] and bytes_per_s = 25e9, or what yours is, into --cluster C.toml",
        )


def unlinked(cluster: Cluster) -> Cluster:
    """Without what belongs to pools of different roles, where all are both."""
    if any(pool.role != "both" for pool in cluster.pools):
        return cluster
    return replace(cluster, network=None, router=replace(cluster.router, split=None))


def with_roles(cluster: Cluster, wanted: str) -> Cluster:
    """`cluster` under the assignment of that name."""
    pools = next(pools for name, pools in _assignments(cluster.pools) if name == wanted)
    return unlinked(replace(cluster, pools=pools))


def roles_of(cluster: Cluster) -> str:
    """The name of the assignment that the cluster has."""
    if _is_one_kind(cluster.pools):
        engines = {role: sum(p.engines for p in cluster.pools if p.role == role) for role in BEFORE}
        if engines["both"] == 0 and engines["prefill"] > 0:
            return _shared_out(engines["prefill"], engines["decode"])
        return TOGETHER if engines["both"] == cluster.n_engines else ""
    return _named(cluster.pools)


def others_than_today(cluster: Cluster, asked: str) -> list[str]:
    """The assignments that `--roles` asks for, but for the one that the cluster has.

    asked  `all`, or a list: `1+7,2+6` engines for prompts and for decoding, where pools are of one kind;
           `prefill+decode,both+decode` in the order of the pools, where they differ; `both`: all of them.
           `all` leaves out where only some pools are both: to every policy here that knows of roles such a
           pool computes prompts or decodes, as the others lack
    """
    known = list(dict.fromkeys(name for one in asked.split(",") for name in _fitting(one.strip(), cluster)))
    return [name for name in known if name != roles_of(cluster)]


def check_fits(asked: str, clusters: Iterable[Cluster]) -> None:
    """Raise UsageError for an entry of `--roles` that none of the clusters can be."""
    sizes = list(clusters)
    for one in asked.split(","):
        if not any(_fitting(one.strip(), cluster) for cluster in sizes):
            engines = " or ".join(str(cluster.n_engines) for cluster in sizes)
            raise UsageError(f"{one} is nothing that {engines} engines can be", place="--roles")


def _fitting(asked: str, cluster: Cluster) -> list[str]:
    """The assignments of the cluster that one entry asks for."""
    found = dict(_assignments(cluster.pools))
    if asked == ALL:
        return [name for name, pools in found.items() if not _is_mixture(pools)]
    return [name for name in [_read(asked, cluster)] if name in found]


def _assignments(pools: Sequence[Pool]) -> Iterator[tuple[str, tuple[Pool, ...]]]:
    """All that can serve, by name; no prefill engine without a decoder. Without a prefill engine decoders
    would only be engines that do both."""
    if _is_one_kind(pools):
        n, pool = sum(one.engines for one in pools), replace(pools[0], role="both")
        yield TOGETHER, (replace(pool, engines=n),)
        for k in range(1, n):
            prefill = replace(pool, name="prefill", role="prefill", engines=k)
            yield _shared_out(k, n - k), (prefill, replace(pool, name="decode", role="decode", engines=n - k))
        return
    for roles in itertools.product(BEFORE, repeat=len(pools)):
        if len(set(roles)) > 1 or roles[0] == "both":
            found = tuple(replace(pool, role=role) for pool, role in zip(pools, roles, strict=True))
            yield _named(found), tuple(sorted(found, key=lambda pool: BEFORE[pool.role]))


def _is_mixture(pools: Sequence[Pool]) -> bool:
    return {"both"} < {pool.role for pool in pools}


def _is_one_kind(pools: Sequence[Pool]) -> bool:
    return all(replace(pool, name="", role="both", engines=1) ==
               replace(pools[0], name="", role="both", engines=1) for pool in pools)  # fmt: skip


def _shared_out(prefill: int, decode: int) -> str:
    return f"{prefill} prefill + {decode} decode"


def _named(pools: Sequence[Pool]) -> str:
    if all(pool.role == "both" for pool in pools):
        return TOGETHER
    return ", ".join(f"{pool.name} {pool.role}" for pool in sorted(pools, key=lambda pool: pool.name))


def _read(text: str, cluster: Cluster) -> str:
    """The name of what one entry of the list says. Raises UsageError where it cannot be one."""
    pools, parts = cluster.pools, text.split("+")
    if text == "both":
        return TOGETHER
    if _is_one_kind(pools):
        if match := re.fullmatch(r"(\d+)\+(\d+)", text):
            return _shared_out(int(match[1]), int(match[2]))
        expected = "all, or engines for prompts + engines that decode, such as 1+3,2+2"
    else:
        if len(parts) == len(pools) and set(parts) <= set(BEFORE):
            found = [replace(pool, role=role) for pool, role in zip(pools, parts, strict=True)]  # type: ignore[arg-type]
            return _named(found)
        example = "+".join(["prefill", *["decode"] * (len(pools) - 1)])
        expected = f"all, or a role for each of {', '.join(pool.name for pool in pools)}, such as {example}"
    raise UsageError(f"cannot read {text!r}", place="--roles", expected=expected)
