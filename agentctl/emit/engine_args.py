"""What engines are started with: the limits of their pool, and the connectors of the cluster's KV tiers.

vLLM and SGLang, each flag from a table of its version (_engine_tables.py). What was simulated and cannot be
set (bandwidths, the size of the KV pool, which follows from the GPU's memory) is said in words, and so is
what an engine would do otherwise than simulated.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from agentctl.cluster import Cluster, KvTier, Pool
from agentctl.emit._engine_tables import check_arguments, table_of
from agentctl.emit._engine_tiers import TierArgs, connector, hicache, json_text, several
from agentctl.emit.base import command, number
from agentctl.errors import ConfigError

PROGRAMS = {"vllm": ("vllm", "serve"), "sglang": ("python", "-m", "sglang.launch_server", "--model-path")}
MODEL = "MODEL"  # where the profile does not name one


@dataclass(frozen=True)
class EngineArgs:
    """How the engines of one pool are started.

    arguments    flag -> value, None for a switch; in the order they are written
    environment  variables of the process
    files        further files, by name
    differences  what the engine does otherwise than was simulated
    needs        what has to be so and is no argument
    """

    pool: str
    engine: str
    version: str
    words: tuple[str, ...]
    arguments: Mapping[str, str | None]
    environment: Mapping[str, str]
    files: Mapping[str, str]
    differences: tuple[str, ...]
    needs: tuple[str, ...]

    def command(self) -> str:
        """As a shell command that ends with a newline."""
        words = [f"{key}={value}" for key, value in self.environment.items()]
        flags = [word for flag, value in self.arguments.items() for word in (flag, value) if word is not None]
        return command([*words, *self.words, *flags])


def engine_args(
    cluster: Cluster,
    router_args: Mapping[str, str | None] | None = None,
    version: str | None = None,
    longest_total: int | None = None,
) -> tuple[EngineArgs, ...]:
    """For every pool of the cluster.

    router_args    arguments that the chosen router needs of the engines (KV events)
    version        of the engine, by default the newest with a table
    longest_total  tokens of the trace's longest request: what a model without max_model_len has to take

    Raises ConfigError when the table has no such argument or value, or two limits contradict each other.
    """
    return tuple(
        _of_pool(pool, cluster, dict(router_args or {}), version, longest_total) for pool in cluster.pools
    )


def _of_pool(
    pool: Pool,
    cluster: Cluster,
    router_args: dict[str, str | None],
    version: str | None,
    longest_total: int | None,
) -> EngineArgs:
    place = f"[pool] {pool.name}"
    found, table = table_of(pool.scheduler, version)
    build = _vllm if pool.scheduler == "vllm" else _sglang
    limits, tiers = build(pool, cluster.kv_tiers, router_args)
    check_arguments({**limits, **tiers.arguments}, table, place)
    check_together(pool, place)
    model = pool.profile.model or MODEL
    return EngineArgs(
        pool=pool.name,
        engine=pool.scheduler,
        version=found,
        words=(*PROGRAMS[pool.scheduler], model),
        arguments={**limits, **tiers.arguments},
        environment=tiers.environment,
        files=tiers.files,
        differences=tuple(tiers.differences),
        needs=(*_needs(pool, model, longest_total), *tiers.needs),
    )


def check_together(pool: Pool, place: str) -> None:
    """Limits that are right one by one and not together; raises ConfigError."""
    if pool.scheduler == "vllm" and pool.max_num_batched_tokens < pool.max_num_seqs:
        raise ConfigError(
            f"is {pool.max_num_batched_tokens}, and max_num_seqs is {pool.max_num_seqs}",
            place=f"{place} max_num_batched_tokens",
            expected=f"at least {pool.max_num_seqs}, as vLLM demands",
        )
    if pool.scheduler == "sglang" and max(pool.chunked_prefill_size, 0) % pool.page_tokens:
        raise ConfigError(
            f"is {pool.chunked_prefill_size}",
            place=f"{place} chunked_prefill_size",
            expected=f"a multiple of page_tokens ({pool.page_tokens})",
        )


def _needs(pool: Pool, model: str, longest_total: int | None) -> list[str]:
    tokens = pool.usable_blocks * pool.block_tokens
    unlimited = longest_total if pool.max_model_len is None else None
    return [
        *([f"the model takes {unlimited:,} tokens, the trace's longest request"] if unlimited else []),
        *([f"{MODEL} is not named in the profile: set it"] if model == MODEL else []),
        f"each engine reports at least {pool.kv_blocks:,} KV blocks of {pool.block_tokens} tokens "
        f"({tokens:,} tokens) at its start: they follow from the GPU's memory and are no argument here",
    ]


def _vllm(
    pool: Pool, tiers: tuple[KvTier, ...], router_args: dict[str, str | None]
) -> tuple[dict[str, str | None], TierArgs]:
    caching = "--enable-prefix-caching" if pool.prefix_caching else "--no-enable-prefix-caching"
    reserve = (
        "--scheduler-reserve-full-isl" if pool.reserve_full_prompt else "--no-scheduler-reserve-full-isl"
    )
    limits: dict[str, str | None] = {
        "--tensor-parallel-size": str(pool.profile.tensor_parallel),
        **({} if pool.max_model_len is None else {"--max-model-len": str(pool.max_model_len)}),
        "--max-num-batched-tokens": str(pool.max_num_batched_tokens),
        "--max-num-seqs": str(pool.max_num_seqs),
        "--block-size": str(pool.block_tokens),
        "--enable-chunked-prefill": None,
        "--long-prefill-token-threshold": str(pool.long_prefill_token_threshold),
        "--prefill-schedule-interval": str(pool.prefill_schedule_interval),
        "--watermark": str(number(pool.watermark)),
        "--scheduling-policy": pool.scheduling_policy,
        caching: None,
        reserve: None,
        **router_args,
    }
    found = TierArgs()
    connectors = [connector(tier, pool, found) for tier in tiers]
    if connectors:
        whole = connectors[0] if len(connectors) == 1 else several(connectors)
        found.arguments["--kv-transfer-config"] = json_text(whole)
    return limits, found


def _sglang(
    pool: Pool, tiers: tuple[KvTier, ...], router_args: dict[str, str | None]
) -> tuple[dict[str, str | None], TierArgs]:
    limits: dict[str, str | None] = {
        "--tensor-parallel-size": str(pool.profile.tensor_parallel),
        **({} if pool.max_model_len is None else {"--context-length": str(pool.max_model_len)}),
        "--chunked-prefill-size": str(pool.chunked_prefill_size or -1),
        "--max-prefill-tokens": str(pool.max_prefill_tokens),
        "--max-running-requests": str(pool.max_num_seqs),
        "--page-size": str(pool.page_tokens),
        "--schedule-policy": "fcfs",
        "--schedule-conservativeness": str(number(pool.conservativeness)),
        **({"--enable-mixed-chunk": None} if pool.mixed_chunk else {}),
        **({} if pool.prefix_caching else {"--disable-radix-cache": None}),
        **_sglang_events(router_args),
    }
    found = TierArgs()
    for tier in tiers:
        hicache(tier, pool, found)
    return limits, found


def _sglang_events(router_args: dict[str, str | None]) -> dict[str, str | None]:
    """SGLang's events are on when they are configured: its object has no switch."""
    events = router_args.get("--kv-events-config")
    if events is None:
        return router_args
    told = {key: value for key, value in json.loads(events).items() if key != "enable_kv_cache_events"}
    return {**router_args, "--kv-events-config": json_text(told)}
