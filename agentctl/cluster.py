"""What is simulated: pools of engines, their router, KV tiers and the network, from a cluster TOML file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from agentctl.errors import ConfigError
from agentctl.pool_power import power_of
from agentctl.profile import MOST, Positive, Profile, Seqs, load_profile, parse_batch_time
from agentctl.tier_presets import with_preset
from agentctl.toml import build, check_keys, check_schema, read_toml

CLUSTER_SCHEMA = "agentctl/cluster/1"
SGLANG_KEYS = (
    "chunked_prefill_size", "max_prefill_tokens", "mixed_chunk", "conservativeness", "ignore_eos",
    "page_tokens",
)  # fmt: skip
VLLM_KEYS = (
    "block_tokens", "max_num_batched_tokens", "long_prefill_token_threshold", "reserve_full_prompt",
    "watermark", "scheduling_policy", "prefill_schedule_interval",
)  # fmt: skip

SGLANG_SEQS = 2048  # its server's default max_running_requests, unless memory allows for more
MAX_ENGINES = 65_536  # of one pool; more is a slip of the finger, and memory for each would run out first

Count = Annotated[int, Meta(ge=0, le=MOST)]
Name = Annotated[str, Meta(pattern=r"\S")]  # not empty
Capacity = Annotated[int, Meta(ge=1, le=10**15)]  # tokens
Seconds = Annotated[float, Meta(ge=0)]
Latency = Annotated[float, Meta(ge=0, le=1e6)]  # s; more is a slip, and sums of times would lose the rest
Rate = Annotated[float, Meta(gt=0)]
Bandwidth = Annotated[
    float, Meta(ge=1, le=1e18)
]  # bytes/s; beyond are slips, and sums of times would overflow
Share = Annotated[float, Meta(ge=0, le=1)]


@dataclass(frozen=True)
class Pool:
    """Engines of one kind. Limits are named as vLLM names them; defaults are those of its scheduler's server.

    A pool of another block size than its profile's keeps the memory: kv_blocks is converted, unless given.
    SGLang's defaults are those of version 0.5.23 on GPUs of 60 to 160 GB. Its pages are blocks here
    (block_tokens is page_tokens), and max_num_seqs is its max_running_requests.
    """

    name: Name
    profile: Profile
    kv_blocks: Annotated[int, Meta(ge=2, le=MOST)]  # as the engine reports it
    block_tokens: Positive
    role: Literal["both", "prefill", "decode"] = "both"
    engines: Annotated[int, Meta(ge=1, le=MAX_ENGINES)] = 1
    scheduler: Literal["vllm", "sglang"] = "vllm"
    max_num_batched_tokens: Positive = 8192
    max_num_seqs: Seqs = 256
    max_model_len: Positive | None = None
    long_prefill_token_threshold: Count = 0  # 0: off
    reserve_full_prompt: bool = True
    watermark: Share = 0.0
    prefix_caching: bool = True
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"
    prefill_schedule_interval: Positive = 1
    # SGLANG_KEYS
    chunked_prefill_size: Annotated[int, Meta(ge=-1, le=MOST)] = 8192  # -1 or 0: prompts are never cut
    max_prefill_tokens: Positive = 16384
    mixed_chunk: bool = False
    conservativeness: Rate = 1.0  # of the admission: more keeps more room for outputs
    ignore_eos: bool = False  # all outputs reach their maximum: all of it is kept back
    page_tokens: Positive = 1
    power_cap_w: Rate | None = None  # of each GPU, as nvidia-smi -pl sets it
    sm_clock_mhz: Rate | None = None  # as nvidia-smi -lgc locks it
    price_per_hour: Annotated[float, Meta(ge=0)] | None = None  # of one engine
    model: str | None = None  # None: the profile's
    price_per_million_prompt_tokens: Annotated[float, Meta(ge=0)] | None = None  # dollars, as a caller pays
    price_per_million_output_tokens: Annotated[float, Meta(ge=0)] | None = None

    @property
    def usable_blocks(self) -> int:
        """vLLM sets one block aside."""
        return self.kv_blocks - (self.scheduler == "vllm")

    @property
    def n_gpus(self) -> int:
        return self.engines * self.profile.tensor_parallel


@dataclass(frozen=True)
class Router:
    """None: as the policy's own router does (its policy file), else a precise index and fresh metrics."""

    policy: str = "round-robin"
    params: dict[str, Any] = field(default_factory=dict)
    gateways: Positive = 1
    index: Literal["precise", "approximate"] | None = None
    index_params: dict[str, Any] | None = None
    index_delay_s: Seconds | None = None
    metrics_interval_s: Seconds | None = None  # 0: always fresh
    metrics_delay_s: Seconds | None = None  # from publishing to the router
    tie: Literal["policy", "first", "rotate", "random", "lexicographic"] = "policy"
    split: dict[str, Any] | None = None  # a Split, where pools have roles


@dataclass(frozen=True)
class Split:
    """Which requests have their prompt computed on another engine than their decoder.

    agentctl.sim.splitting says how. Of uncached tokens llm-d wants so many at least (0, its default: splits
    nothing), Dynamo more than so many.
    """

    rule: Literal["always", "llm-d", "dynamo"] = "always"
    uncached_tokens: Count | None = None  # llm-d, dynamo (2048)
    uncached_share: Share | None = None  # dynamo (0.7)
    prompt_tokens: Count | None = None  # llm-d (0): shorter ones are not split


@dataclass(frozen=True)
class IndexParams:
    """An approximate index: per engine, the blocks of the prompts that the gateway has sent there."""

    block_tokens: Positive | None = None  # None: as the engines
    capacity_tokens: Capacity | None = None  # per engine; None: no limit
    ttl_s: Rate | None = None  # since a block was last sent; None: for ever
    eviction: Literal["tail", "head"] = "tail"  # of one prompt the deepest block goes first, or its first one
    # contiguous: an engine matches a prompt as far as it has it from the start; any_engine: wherever it has
    # blocks, as far as any engine has them
    match: Literal["contiguous", "any_engine"] = "contiguous"


@dataclass(frozen=True)
class KvTier:
    """A store of KV behind the engines' own pools. Bandwidths are bytes per second."""

    name: Name
    scope: Literal["engine", "cluster"]
    capacity_tokens: Capacity
    read_bytes_per_s: Bandwidth
    write_bytes_per_s: Bandwidth
    engine_read_bytes_per_s: Bandwidth | None = None  # of one engine's link
    latency_s: Latency = 0.0  # once per load; with parallel = n > 0: once per ceil(units / n)
    parallel: Count = 0
    unit_tokens: Positive = 256
    inclusion: Literal["inclusive", "exclusive"] = "inclusive"
    replacement: Literal["lru"] = "lru"
    write: Literal["through", "back", "selective"] = "through"
    write_decode: bool = False
    use_if_faster: bool = True
    overlap: Literal["none", "async", "layerwise"] = "async"
    layers: Positive | None = None  # of the model: a layer-wise load's first layer is waited for


@dataclass(frozen=True)
class Network:
    """The link between pools."""

    bytes_per_s: Bandwidth
    latency_s: Latency = 0.0


@dataclass(frozen=True)
class Cluster:
    pools: tuple[Pool, ...]
    router: Router = field(default_factory=Router)
    kv_tiers: tuple[KvTier, ...] = ()
    network: Network | None = None

    @property
    def n_engines(self) -> int:
        return sum(pool.engines for pool in self.pools)

    @property
    def n_gpus(self) -> int:
        return sum(pool.n_gpus for pool in self.pools)

    @property
    def price_per_hour(self) -> float | None:
        """Of all engines; None when a pool's price is unknown."""
        prices = [pool.price_per_hour for pool in self.pools]
        known = [p * pool.engines for p, pool in zip(prices, self.pools, strict=True) if p is not None]
        return sum(known) if len(known) == len(prices) else None

    def with_engines(self, n: int) -> Cluster:
        """The same cluster with `n` engines in its only pool."""
        if len(self.pools) != 1:
            raise ConfigError("the number of engines can only be varied in a cluster with one pool")
        if not 1 <= n <= MAX_ENGINES:
            raise ConfigError(f"{n} engines", expected=f"1 to {MAX_ENGINES}")
        return replace(self, pools=(replace(self.pools[0], engines=n),))


def load_cluster(path: Path) -> Cluster:
    """Read cluster.toml; profiles and policies in files are looked up beside it.

    Raises ConfigError with `file: [table] key`.
    """
    return parse_cluster(read_toml(path), str(path), base=path.parent)


def parse_cluster(tables: Mapping[str, Any], file: str, base: Path | None = None) -> Cluster:
    check_schema(tables, CLUSTER_SCHEMA, file)
    check_keys(tables, ("schema", "pool", "router", "kv_tier", "network"), f"{file}:")
    pools = tuple(_pool(table, f"{file}: [pool]", base) for table in _list(tables, "pool", file))
    if not pools:
        raise ConfigError("missing", place=f"{file}: [[pool]]")
    _check_distinct([pool.name for pool in pools], f"{file}: [pool] name")
    place = f"{file}: [kv_tier]"
    tiers = tuple(
        build(KvTier, with_preset(table, pools, place), place) for table in _list(tables, "kv_tier", file)
    )
    _check_distinct([tier.name for tier in tiers], f"{file}: [kv_tier] name")
    check_capacities(tiers, place)
    network = build(Network, tables["network"], f"{file}: [network]") if "network" in tables else None
    router = build(Router, tables.get("router", {}), f"{file}: [router]")
    build(IndexParams, router.index_params or {}, f"{file}: [router] index_params:")
    build(Split, router.split or {}, f"{file}: [router.split]")
    if base is not None and re.search(r"\.py(:|$)", router.policy):  # a policy in a file, beside this one
        router = replace(router, policy=str(base / router.policy))
    return Cluster(pools, router, tiers, network)


def cluster_of(profile: Profile, engines: int = 1, router: Router | None = None) -> Cluster:
    """One pool of `engines` engines of `profile`, with default limits."""
    pool = _pool_of(profile, {"name": "main", "engines": engines}, f"profile {profile.name}:")
    return Cluster((pool,), router or Router())


def with_profile(cluster: Cluster, profile: Profile) -> Cluster:
    """The cluster's limits with the profile's batch times."""
    return replace(cluster, pools=tuple(replace(pool, profile=profile) for pool in cluster.pools))


def check_capacities(tiers: Iterable[KvTier], place: str) -> None:
    """Raise ConfigError for a tier that could never keep anything."""
    for tier in tiers:
        if tier.capacity_tokens < tier.unit_tokens:
            raise ConfigError(
                f"is {tier.capacity_tokens:,}, and a unit of {tier.name} has {tier.unit_tokens:,} tokens",
                place=f"{place} capacity_tokens",
                expected="room for a unit at least",
            )


def check_simulated(cluster: Cluster) -> None:
    """Raise ConfigError for what this version's simulator cannot do yet: nothing is silently ignored."""
    for pool in cluster.pools:
        place = f"[pool] {pool.name}"
        if pool.role != "both" and pool.scheduler == "sglang":
            raise _not_simulated(f'role = "{pool.role}" with SGLang\'s scheduler', place)
        power_of(pool)
    if len({pool.scheduler for pool in cluster.pools}) > 1:
        raise _not_simulated("a cluster with both schedulers", "[[pool]]")
    router = cluster.router
    if router.index == "approximate" and router.index_delay_s:
        raise ConfigError(
            "belongs to a precise index: an approximate one hears of nothing", place="[router] index_delay_s"
        )
    if router.index != "approximate" and router.index_params:
        raise ConfigError('belongs to index = "approximate"', place="[router] index_params")
    own_index(router)
    if router.metrics_delay_s and not router.metrics_interval_s:
        raise ConfigError(
            "needs a metrics_interval_s above 0: metrics that are always fresh have no delay",
            place="[router] metrics_delay_s",
        )
    if cluster.kv_tiers and any(pool.scheduler == "sglang" for pool in cluster.pools):
        raise _not_simulated("a KV tier behind SGLang's scheduler", "[[kv_tier]]")
    _check_roles(cluster)


SPLIT_KEYS = {
    "always": (),
    "llm-d": ("uncached_tokens", "prompt_tokens"),
    "dynamo": ("uncached_tokens", "uncached_share"),
}


def _check_roles(cluster: Cluster) -> None:
    roles = {pool.role for pool in cluster.pools}
    split = build(Split, cluster.router.split or {}, "[router.split]")
    for key in ("uncached_tokens", "uncached_share", "prompt_tokens"):
        if getattr(split, key) is not None and key not in SPLIT_KEYS[split.rule]:
            raise ConfigError(f'does not belong to rule = "{split.rule}"', place=f"[router.split] {key}")
    if roles == {"both"} and cluster.router.split:
        raise ConfigError("no pool has a role", place="[router.split]", hint="leave it out")
    if roles == {"both"} and cluster.network is not None:
        raise ConfigError(
            "links pools of different roles, and all are both",
            place="[network]",
            hint="leave it out, or let agentctl recommend --roles all find roles",
        )
    if roles == {"decode"}:
        raise ConfigError(
            "no pool computes prompts for others", place="[[pool]] role",
            expected="a pool with role prefill or both", hint="engines that do both have role both",
        )  # fmt: skip
    if roles == {"prefill"}:
        raise ConfigError(
            "no pool decodes", place="[[pool]] role", expected="a pool that decodes, or is both"
        )


def own_index(router: Router) -> IndexParams | None:
    """What the gateways' own indexes are like; None where the index is precise."""
    if router.index != "approximate":
        return None
    return build(IndexParams, router.index_params or {}, "[router] index_params:")


def _not_simulated(what: str, place: str) -> ConfigError:
    return ConfigError(
        f"{what} is not simulated yet", place=place, hint="leave it out, or wait for a later version"
    )


def _pool(table: Any, place: str, base: Path | None) -> Pool:
    if not isinstance(table, Mapping):
        raise ConfigError("is not a table", place=place)
    known = [*Pool.__dataclass_fields__, "batch_time"]
    check_keys(table, known, place)
    keys = {key: value for key, value in table.items() if key not in ("profile", "batch_time")}
    if ("profile" in table) == ("batch_time" in table):
        raise ConfigError(
            "needs one of `profile` and [pool.batch_time]",
            place=place,
            hint='profile = "h100-qwen3-8b", or a path',
        )
    if "profile" in table:
        if not isinstance(table["profile"], str):
            raise ConfigError(
                "is not a string", place=f"{place} profile", expected="a path or a preset's name"
            )
        profile = load_profile(table["profile"], base)
    else:
        batch_time, fit = parse_batch_time(table["batch_time"], f"{place[:-1]}.batch_time]")
        profile = Profile(batch_time, fit=fit)
    return _pool_of(profile, keys, place)


def _pool_of(profile: Profile, keys: Mapping[str, Any], place: str) -> Pool:
    """A pool from its own keys and, where it leaves them out, its profile's."""
    scheduler = keys.get("scheduler", "vllm")
    others, owner = (VLLM_KEYS, "vllm") if scheduler == "sglang" else (SGLANG_KEYS, "sglang")
    for key in others:
        if key in keys:
            hint = "its blocks are pages: page_tokens" if key == "block_tokens" else None
            raise ConfigError(f'belongs to scheduler = "{owner}"', place=f"{place} {key}", hint=hint)
    if scheduler == "sglang":
        keys = {**keys, "block_tokens": keys.get("page_tokens", 1)}
    for key in ("block_tokens", "max_num_batched_tokens", "max_num_seqs", "max_model_len"):
        value = getattr(profile, key)
        if key not in keys and value is not None:
            keys = {**keys, key: value}
    if scheduler == "sglang" and "max_num_seqs" not in keys:
        keys = {**keys, "max_num_seqs": SGLANG_SEQS}
    if "block_tokens" not in keys:
        raise ConfigError(
            "missing, and the profile does not say it",
            place=f"{place} block_tokens",
            hint="calibrate with --block-tokens N, or give the [[pool]] block_tokens",
        )
    if "kv_blocks" not in keys:
        keys = {**keys, "kv_blocks": _profile_blocks(profile, keys["block_tokens"], place)}
    pool = build(Pool, {**keys, "profile": profile}, place)
    if pool.scheduler == "sglang" and max(pool.chunked_prefill_size, 0) % pool.page_tokens:
        raise ConfigError(
            f"is {pool.chunked_prefill_size}",
            place=f"{place} chunked_prefill_size",
            expected=f"a multiple of page_tokens ({pool.page_tokens}), as SGLang demands",
        )
    return pool


def _profile_blocks(profile: Profile, block_tokens: Any, place: str) -> int:
    """The profile's KV pool in blocks of `block_tokens` (whose type is not checked yet)."""
    if profile.kv_blocks is None or profile.block_tokens is None:
        raise ConfigError(
            "missing, and the profile does not say it",
            place=f"{place} kv_blocks",
            hint="the engine prints its number of KV blocks at start",
        )
    if not isinstance(block_tokens, int) or block_tokens == profile.block_tokens:
        return profile.kv_blocks
    return profile.kv_blocks * profile.block_tokens // max(block_tokens, 1)


def _list(tables: Mapping[str, Any], key: str, file: str) -> list[Any]:
    value = tables.get(key, [])
    if not isinstance(value, list):
        raise ConfigError("is one table", place=f"{file}: [{key}]", expected=f"[[{key}]], a list of tables")
    return value


def _check_distinct(names: list[str], place: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name!r} is used twice", place=place)
