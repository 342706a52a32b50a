"""A cluster with one of its settings changed."""

import dataclasses

import pytest

from agentctl.cluster import KvTier, cluster_of, parse_cluster
from agentctl.errors import ConfigError, UsageError
from agentctl.profile import load_profile
from agentctl.recommend.candidates import candidates_of
from agentctl.recommend.grid import Axis
from agentctl.recommend.variants import setting_of, variants_of, with_setting

PROFILE = load_profile("h100-qwen3-8b")
CLUSTER = cluster_of(PROFILE, 4)
TIER = KvTier("host", "engine", 1_000_000, 20e9, 20e9)
TIERED = dataclasses.replace(CLUSTER, kv_tiers=(TIER,))


def test_a_bare_key_is_one_of_every_pool():
    changed = with_setting(CLUSTER, "max_num_seqs", 64)
    assert changed.pools[0].max_num_seqs == 64
    assert dataclasses.replace(changed.pools[0], max_num_seqs=256) == CLUSTER.pools[0]


def test_a_pool_may_be_named():
    two = dataclasses.replace(
        CLUSTER, pools=(CLUSTER.pools[0], dataclasses.replace(CLUSTER.pools[0], name="big"))
    )
    changed = with_setting(two, "pool.big.max_num_batched_tokens", 2048)
    assert [pool.max_num_batched_tokens for pool in changed.pools] == [8192, 2048]
    assert setting_of(changed, "pool.big.max_num_batched_tokens") == 2048


def test_another_block_size_keeps_the_memory():
    pool, before = with_setting(CLUSTER, "block_tokens", 64).pools[0], CLUSTER.pools[0]
    assert pool.kv_blocks * pool.block_tokens == before.kv_blocks * before.block_tokens


def test_a_page_of_sglang_is_its_block():
    tables = {"name": "main", "scheduler": "sglang", "profile": "h100-qwen3-8b", "kv_blocks": 300_000}
    cluster = parse_cluster({"schema": "agentctl/cluster/1", "pool": [tables]}, "c.toml")
    pool = with_setting(cluster, "page_tokens", 16).pools[0]
    assert (pool.block_tokens, pool.kv_blocks) == (16, 300_000 // 16)


def test_a_tier_of_no_capacity_is_none():
    assert with_setting(TIERED, "kv_tier.host.capacity_tokens", 0).kv_tiers == ()
    assert with_setting(TIERED, "kv_tier.capacity_tokens", 2e6).kv_tiers[0].capacity_tokens == 2_000_000


def test_what_the_router_knows_can_be_varied():
    assert with_setting(CLUSTER, "router.gateways", 4).router.gateways == 4
    assert with_setting(CLUSTER, "router.metrics_interval_s", 0.5).router.metrics_interval_s == 0.5


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("max_num_seq", 64, "did you mean `max_num_seqs`?"),
        ("pol.max_num_seqs", 64, "did you mean `pool`?"),
        ("pool.x.max_num_seqs", 64, "expected main"),
        ("max_num_seqs", 0, "out of range"),
        ("max_num_seqs", "many", "type str"),
        ("watermark", float("nan"), "finite"),
        ("engines", 4, "--engines"),
        ("router.policy", "lmetric", "--policies"),
        ("page_tokens", 16, 'scheduler = "sglang"'),
        ("kv_tier.capacity_tokens", 1, "none to vary"),
        ("network.latency_s", 1, "no [network]"),
    ],
)
def test_what_cannot_be_varied_says_where_why_and_what_can(key, value, words):
    with pytest.raises(UsageError) as caught:
        with_setting(CLUSTER, key, value)
    assert caught.value.message.startswith("--vary ")
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_limits_of_a_profile_that_reproduces_one_log_cannot_be_varied():
    only = dataclasses.replace(PROFILE, max_num_seqs=64, provenance={"predictive_only": True})
    with pytest.raises(UsageError, match="predictive_only"):
        with_setting(cluster_of(only, 4), "max_num_seqs", 128)


def test_every_policy_meets_every_setting_and_todays_configuration_is_a_row():
    axes = [Axis("max_num_seqs", (64, 128)), Axis("router.gateways", (1, 2))]
    found, reference, reference_only = candidates_of({4: CLUSTER}, ["lmetric"], None, axes)
    assert reference == "round-robin" and reference_only
    assert [(c.name, c.label) for c in found] == [
        ("lmetric", "max_num_seqs 64"),
        ("lmetric", "max_num_seqs 64, router.gateways 2"),
        ("lmetric", "max_num_seqs 128"),
        ("lmetric", "max_num_seqs 128, router.gateways 2"),
        ("round-robin", ""),
    ]
    assert [c.cluster.pools[0].max_num_seqs for c in found] == [64, 64, 128, 128, 256]


def test_a_value_of_today_is_no_setting():
    found, _, reference_only = candidates_of(
        {4: CLUSTER}, ["lmetric"], "lmetric", [Axis("max_num_seqs", (256, 64))]
    )
    assert [c.label for c in found] == ["", "max_num_seqs 64"]
    assert not reference_only


def test_too_many_candidates_are_refused_before_they_run():
    with pytest.raises(UsageError, match="at most 500"):
        candidates_of({4: CLUSTER}, ["lmetric"], None, [Axis("max_num_seqs", tuple(range(1, 600)))])


def test_a_tier_too_small_for_a_unit_is_an_error_and_not_a_tier_that_finds_nothing():
    axes = [Axis("kv_tier.unit_tokens", (16, 512)), Axis("kv_tier.capacity_tokens", (0, 256))]
    with pytest.raises(ConfigError, match="a unit of host has 512 tokens"):
        variants_of(TIERED, axes)
    assert len(variants_of(TIERED, axes[1:])) == 2
