"""KV tiers as the connectors of engines: what comes nearest, and what it does otherwise.

vLLM 0.33.0: OffloadingConnector (host memory, blocks, asynchronous), LMCache 0.5.6 (host memory, chunks),
MooncakeStoreConnector (one store for the cluster). SGLang 0.5.23: HiCache. Bandwidths and latencies are the
machine's and not set anywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from agentctl.cluster import KvTier, Pool
from agentctl.emit._yaml import yaml_text
from agentctl.errors import ConfigError

LMCACHE_FILE = "lmcache.yaml"
GB = 1e9
WRITES = {"through": "write_through", "back": "write_back", "selective": "write_through_selective"}


class TierArgs:
    """What the KV tiers add; filled in place."""

    def __init__(self) -> None:
        self.arguments: dict[str, str | None] = {}
        self.environment: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.differences: list[str] = []
        self.needs: list[str] = []


def connector(tier: KvTier, pool: Pool, found: TierArgs) -> dict[str, Any]:
    """The connector that comes nearest to a tier; what it does otherwise goes to `found`."""
    _common(tier, found)
    if tier.use_if_faster:
        found.differences.append(
            f"tier {tier.name}: hits are always loaded, simulated only where that was faster"
        )
    if tier.scope == "cluster":
        return _mooncake(tier, pool, found)
    if tier.unit_tokens != pool.block_tokens or tier.overlap != "async":
        return _lmcache(tier, pool, found)
    extra: dict[str, Any] = {"cpu_bytes_to_use": _bytes(tier, pool), "block_size": tier.unit_tokens}
    extra["offload_prompt_only"] = not tier.write_decode
    if tier.write == "selective":
        extra["store_threshold"] = 2
    return {"kv_connector": "OffloadingConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def _lmcache(tier: KvTier, pool: Pool, found: TierArgs) -> dict[str, Any]:
    """Whole chunks in the host's memory; the sizes are in a file of LMCache's own (0.5.6)."""
    found.files[LMCACHE_FILE] = yaml_text(
        {
            "chunk_size": tier.unit_tokens,
            "local_cpu": True,
            "max_local_cpu_size": round(_bytes(tier, pool) / pool.profile.tensor_parallel / GB, 3),
            "use_layerwise": tier.overlap == "layerwise",
            "save_decode_cache": tier.write_decode,
            "cache_policy": "LRU",
        }
    )
    found.environment["LMCACHE_CONFIG_FILE"] = LMCACHE_FILE
    if tier.overlap == "async":
        found.differences.append(
            f"tier {tier.name}: LMCache lets the engine wait for a load, simulated it went on"
        )
    if tier.write == "selective":
        found.differences.append(
            f"tier {tier.name}: LMCache stores every chunk, simulated only those hit again"
        )
    return {"kv_connector": "LMCacheConnectorV1", "kv_role": "kv_both"}


def _mooncake(tier: KvTier, pool: Pool, found: TierArgs) -> dict[str, Any]:
    size = _bytes(tier, pool) / GB
    found.needs.append(
        f"tier {tier.name}: a Mooncake store of {size:,.1f} GB in all (it evicts from 0.9 of them on); "
        "the segment that each client lends is in the store's own configuration"
    )
    if tier.overlap != "async":
        found.differences.append(f"tier {tier.name}: loads are asynchronous, simulated was {tier.overlap}")
    return {"kv_connector": "MooncakeStoreConnector", "kv_role": "kv_both"}


def several(connectors: list[dict[str, Any]]) -> dict[str, Any]:
    extra = {"connectors": connectors}
    return {"kv_connector": "MultiConnector", "kv_role": "kv_both", "kv_connector_extra_config": extra}


def hicache(tier: KvTier, pool: Pool, found: TierArgs) -> None:
    """The second level is the host's memory, the third a store for all; the third needs the second."""
    _common(tier, found)
    found.arguments["--enable-hierarchical-cache"] = None
    if tier.scope == "cluster":
        found.arguments |= {
            "--hicache-storage-backend": "mooncake",
            "--hicache-storage-prefetch-policy": "wait_complete",
        }
        found.needs.append(f"tier {tier.name}: a Mooncake store of {_bytes(tier, pool) / GB:,.1f} GB in all")
        return
    ratio = tier.capacity_tokens / (pool.usable_blocks * pool.block_tokens)
    found.arguments |= {"--hicache-ratio": f"{ratio:.4g}", "--hicache-write-policy": WRITES[tier.write]}
    if tier.overlap != "layerwise":
        found.differences.append(f"tier {tier.name}: loads go layer by layer, simulated was {tier.overlap}")
    if not tier.write_decode:
        found.differences.append(f"tier {tier.name}: outputs are stored too, simulated were prompts alone")
    if tier.unit_tokens != pool.page_tokens:
        found.differences.append(
            f"tier {tier.name}: units are pages of {pool.page_tokens}, simulated {tier.unit_tokens} tokens"
        )


def _common(tier: KvTier, found: TierArgs) -> None:
    own = "" if tier.engine_read_bytes_per_s is None else f", {tier.engine_read_bytes_per_s / GB:g} an engine"
    found.needs.append(
        f"tier {tier.name}: reads at {tier.read_bytes_per_s / GB:g} GB/s{own} with "
        f"{tier.latency_s * 1e3:g} ms a load, as simulated: measure it"
    )
    if tier.inclusion == "exclusive":
        found.differences.append(
            f"tier {tier.name}: what it holds stays in the GPU's pool too, simulated was not"
        )
    if tier.write == "back" and tier.scope == "cluster":
        found.differences.append(
            f"tier {tier.name}: blocks are stored at once, simulated when they were evicted"
        )


def _bytes(tier: KvTier, pool: Pool) -> int:
    size = pool.profile.kv_bytes_per_token
    if size is None:
        raise ConfigError(
            "missing: the capacity of a tier is told in bytes",
            place=f"profile {pool.profile.name}: kv_bytes_per_token",
            hint=f"for [[kv_tier]] {tier.name}",
        )
    return tier.capacity_tokens * size


def json_text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
