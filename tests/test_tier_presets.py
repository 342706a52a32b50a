"""Named KV tiers: every preset is a valid tier with its sources, and keys beside it override it."""

import pytest

from agentctl.cluster import KvTier, check_simulated, parse_cluster
from agentctl.errors import ConfigError
from agentctl.tier_presets import tier_preset, tier_preset_names

NAMES = [
    "hbm", "hicache", "host", "kvbm", "lmcache", "mooncake-store", "nvme", "rdma-store", "vllm-offloading",
]  # fmt: skip
SMALL = {"schema": "agentctl/cluster/1", "pool": [{"name": "main", "profile": "h100-qwen3-8b"}]}


def cluster(*tiers, **pool):
    return parse_cluster(
        {**SMALL, "pool": [{**SMALL["pool"][0], **pool}], "kv_tier": list(tiers)}, "cluster.toml"
    )


def tier(**keys) -> KvTier:
    return cluster(keys).kv_tiers[0]


def test_these_presets_exist():
    assert tier_preset_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_a_valid_tier_and_says_where_it_is_from(name):
    own = {"capacity_tokens": 10_000} if "capacity" not in tier_preset(name) else {}
    found = tier(preset=name, **own)
    assert (found.name, found.scope) == (name, "cluster" if name.endswith("store") else "engine")
    provenance = tier_preset(name)["provenance"]
    assert set(provenance) == {"system", "statement", "sources"}
    assert provenance["statement"].endswith(".") and provenance["sources"]


def test_the_numbers_of_the_four_plain_presets():
    """(read bytes/s, latency) of the design's table."""
    assert [
        (found.read_bytes_per_s, found.latency_s)
        for found in (tier(preset=n, capacity_tokens=1000) for n in ("host", "nvme", "rdma-store"))
    ] == [(50e9, 0.1e-3), (6e9, 0.2e-3), (20e9, 0.3e-3)]


def test_a_capacity_in_pools_is_a_multiple_of_the_engines_own():
    # 25,000 blocks of 16 tokens, one of them never usable.
    assert tier(preset="host").capacity_tokens == 2 * 24_999 * 16
    assert tier(preset="hbm").capacity_tokens == 24_999 * 16


def test_a_capacity_in_bytes_is_divided_by_the_models_bytes_per_token():
    assert tier(preset="lmcache").capacity_tokens == int(5e9) // 147_456


def test_a_unit_that_is_not_said_is_one_block():
    assert cluster({"preset": "host"}, block_tokens=64).kv_tiers[0].unit_tokens == 64
    assert tier(preset="lmcache").unit_tokens == 256


def test_keys_beside_the_preset_override_it():
    found = tier(preset="host", name="dram", read_bytes_per_s=25e9, capacity_tokens=700, overlap="none")
    assert (found.name, found.read_bytes_per_s, found.capacity_tokens) == ("dram", 25e9, 700)
    assert (found.overlap, found.latency_s) == ("none", 0.1e-3)


def test_several_presets_stand_in_order():
    found = cluster({"preset": "hicache"}, {"preset": "mooncake-store", "capacity_tokens": 900})
    assert [one.name for one in found.kv_tiers] == ["hicache", "mooncake-store"]


@pytest.mark.parametrize(
    ("keys", "place", "words"),
    [
        ({"preset": "hots"}, "preset", "did you mean `host`?"),
        ({"preset": 3}, "preset", "is not a string"),
        ({"preset": "nvme"}, "capacity_tokens", "leaves it to you"),
        ({"preset": "host", "latency": 1.0}, "latency", "did you mean `latency_s`?"),
        ({"preset": "host", "latency_s": -1.0}, "latency_s", ">= 0"),
        ({"preset": "host", "capacity_tokens": 0}, "capacity_tokens", ">= 1"),
        ({"preset": "host", "capacity_tokens": 15}, "capacity_tokens", "a unit of host has 16 tokens"),
        ({"preset": "host", "read_bytes_per_s": 1e-300}, "read_bytes_per_s", ">= 1"),
        ({"preset": "host", "engine_read_bytes_per_s": 1e300}, "engine_read_bytes_per_s", "<= 1e+18"),
    ],
)
def test_a_mistake_is_an_error_with_its_place_and_a_way_out(keys, place, words):
    with pytest.raises(ConfigError) as caught:
        tier(**keys)
    assert caught.value.place == f"cluster.toml: [kv_tier] {place}"
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_a_capacity_that_differs_between_pools_has_to_be_said():
    pools = [SMALL["pool"][0], {**SMALL["pool"][0], "name": "other", "kv_blocks": 99}]
    with pytest.raises(ConfigError, match="the pools have KV pools of different sizes"):
        parse_cluster({**SMALL, "pool": pools, "kv_tier": [{"preset": "host"}]}, "c.toml")


def test_a_preset_can_be_simulated_behind_vllm_and_not_yet_behind_sglang():
    check_simulated(cluster({"preset": "host"}))
    with pytest.raises(ConfigError, match="not simulated yet"):
        check_simulated(cluster({"preset": "host"}, scheduler="sglang"))
