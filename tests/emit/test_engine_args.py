"""Engines are started with the limits that were simulated, each a flag of a versioned table."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace

import pytest
from oracles.yaml_reader import read_yaml

from agentctl.cluster import KvTier, cluster_of, parse_cluster
from agentctl.emit._engine_tables import SGLANG_0_5_23, TABLES, VLLM_0_33_0, check_arguments
from agentctl.emit.engine_args import engine_args
from agentctl.errors import ConfigError
from agentctl.profile import load_profile

CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 4)
POOL = CLUSTER.pools[0]
TIER = KvTier("host", "engine", 1_000_000, 5e10, 5e10, unit_tokens=16, use_if_faster=False)
SGLANG = parse_cluster(
    {
        "schema": "agentctl/cluster/1",
        "pool": [{"name": "main", "profile": "h100-qwen3-8b", "scheduler": "sglang", "page_tokens": 16,
                  "chunked_prefill_size": 4096, "mixed_chunk": True, "conservativeness": 0.8}],
    },
    "c.toml",
)  # fmt: skip


def args_of(pool=POOL, tiers=(), router_args=None, cluster=CLUSTER):
    return engine_args(replace(cluster, pools=(pool,), kv_tiers=tiers), router_args)[0]


def transfer(found):
    return json.loads(found.arguments["--kv-transfer-config"])


def test_vllm_gets_every_limit_of_the_pool():
    pool = replace(
        POOL, max_num_batched_tokens=4096, max_num_seqs=64, block_tokens=32, max_model_len=40_000,
        watermark=0.01, long_prefill_token_threshold=2048, prefill_schedule_interval=2,
        scheduling_policy="priority", prefix_caching=False, reserve_full_prompt=False,
    )  # fmt: skip
    flags = args_of(pool).arguments
    assert flags == {
        "--tensor-parallel-size": "1",
        "--max-model-len": "40000",
        "--max-num-batched-tokens": "4096",
        "--max-num-seqs": "64",
        "--block-size": "32",
        "--enable-chunked-prefill": None,
        "--long-prefill-token-threshold": "2048",
        "--prefill-schedule-interval": "2",
        "--watermark": "0.01",
        "--scheduling-policy": "priority",
        "--no-enable-prefix-caching": None,
        "--no-scheduler-reserve-full-isl": None,
    }


def test_sglang_gets_its_own_limits():
    found = engine_args(SGLANG)[0]
    assert found.words[:3] == ("python", "-m", "sglang.launch_server")
    flags = found.arguments
    assert flags["--chunked-prefill-size"] == "4096"
    assert flags["--max-prefill-tokens"] == "16384"
    assert flags["--max-running-requests"] == "2048"
    assert flags["--page-size"] == "16"
    assert flags["--schedule-conservativeness"] == "0.8"
    assert flags["--enable-mixed-chunk"] is None
    assert "--disable-radix-cache" not in flags


def test_the_command_is_what_the_arguments_say():
    found = args_of(tiers=(TIER,), router_args={"--kv-events-config": '{"publisher":"zmq"}'})
    words = shlex.split(found.command().replace("\\\n", ""))
    assert words[:3] == ["vllm", "serve", "Qwen/Qwen3-8B"]
    read = {}
    for word in words[3:]:
        if word.startswith("--"):
            read[flag := word] = None
        else:
            read[flag] = word
    assert read == dict(found.arguments)


@pytest.mark.parametrize("table", [VLLM_0_33_0, SGLANG_0_5_23])
def test_what_the_table_does_not_have_is_refused(table):
    numbers = [flag for flag, argument in table.items() if argument.kind == "int"]
    for bad in ({"--max-num-sequences": "1"}, {numbers[0]: "-2"}, {numbers[0]: "many"}, {numbers[0]: None},
                {"--schedule-policy": "best"}, {"--scheduling-policy": "best"}, {"--watermark": "1.5"},
                {"--enable-prefix-caching": "yes"}, {"--enable-mixed-chunk": "yes"},
                {"--kv-events-config": "{"}, {"--kv-events-config": "[]"},
                {"--kv-events-config": '{"publsher":"zmq"}'}):  # fmt: skip
        with pytest.raises(ConfigError, match="here"):
            check_arguments(bad, table, "here")


def test_a_connector_that_is_not_there_is_refused():
    with pytest.raises(ConfigError, match="--kv-transfer-config"):
        check_arguments({"--kv-transfer-config": '{"kv_connector":"Offloading"}'}, VLLM_0_33_0, "here")


def test_defaults_are_in_their_own_table():
    for versions in TABLES.values():
        for table in versions.values():
            told = {flag: str(a.default) for flag, a in table.items() if a.default is not None}
            check_arguments(told, table, "default")


def test_a_batch_holds_a_token_of_each_sequence():
    with pytest.raises(ConfigError, match="max_num_seqs is 512"):
        args_of(replace(POOL, max_num_batched_tokens=256, max_num_seqs=512))


def test_a_chunk_is_whole_pages():
    with pytest.raises(ConfigError, match="multiple of page_tokens"):
        args_of(replace(SGLANG.pools[0], chunked_prefill_size=100), cluster=SGLANG)


def test_memory_of_the_host_in_blocks_is_the_offloading_connector():
    found = args_of(tiers=(TIER,))
    assert transfer(found) == {
        "kv_connector": "OffloadingConnector",
        "kv_role": "kv_both",
        "kv_connector_extra_config": {
            "block_size": 16,
            "cpu_bytes_to_use": 1_000_000 * POOL.profile.kv_bytes_per_token,
            "offload_prompt_only": True,
        },
    }
    assert found.differences == ()


def test_chunks_are_lmcache_with_outputs_where_they_were_simulated():
    tier = replace(TIER, unit_tokens=256, overlap="none", write_decode=True)
    found = args_of(tiers=(tier,))
    assert transfer(found)["kv_connector"] == "LMCacheConnectorV1"
    settings = read_yaml(found.files["lmcache.yaml"])
    assert settings["chunk_size"] == 256
    assert settings["save_decode_cache"] is True
    assert settings["max_local_cpu_size"] == pytest.approx(147.456)
    assert found.command().startswith("LMCACHE_CONFIG_FILE=lmcache.yaml vllm serve")
    assert found.differences == ()


def test_a_store_of_the_cluster_and_two_tiers():
    found = args_of(tiers=(replace(TIER, name="store", scope="cluster"),))
    assert transfer(found)["kv_connector"] == "MooncakeStoreConnector"
    assert any("147.5 GB in all" in need for need in found.needs)
    assert any("reads at 50 GB/s with 0 ms" in need for need in found.needs)
    both = args_of(tiers=(TIER, replace(TIER, name="store", scope="cluster")))
    inner = transfer(both)["kv_connector_extra_config"]["connectors"]
    assert [one["kv_connector"] for one in inner] == ["OffloadingConnector", "MooncakeStoreConnector"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"use_if_faster": True}, "always loaded"),
        ({"inclusion": "exclusive"}, "stays in the GPU's pool"),
        ({"unit_tokens": 256}, "lets the engine wait"),
        ({"scope": "cluster", "overlap": "none"}, "asynchronous"),
    ],
)
def test_what_a_connector_does_otherwise_is_said(change, words):
    found = args_of(tiers=(replace(TIER, **change),))
    assert any(words in one for one in found.differences), found.differences


def test_hicache_is_as_large_as_simulated():
    pool = SGLANG.pools[0]
    tokens = pool.usable_blocks * pool.block_tokens
    tier = replace(TIER, capacity_tokens=3 * tokens, overlap="layerwise", write_decode=True, write="back")
    found = args_of(pool, (tier,), cluster=SGLANG)
    assert found.arguments["--hicache-ratio"] == "3"
    assert found.arguments["--hicache-write-policy"] == "write_back"
    assert found.differences == ()
    third = args_of(
        pool, (tier, replace(tier, name="store", scope="cluster", write="through")), cluster=SGLANG
    )
    assert third.arguments["--hicache-storage-backend"] == "mooncake"


def test_a_tier_needs_the_bytes_of_a_token():
    pool = replace(POOL, profile=replace(POOL.profile, kv_bytes_per_token=None))
    with pytest.raises(ConfigError, match="kv_bytes_per_token"):
        args_of(pool, (TIER,))


def test_events_of_sglang_have_no_switch():
    events = {"--kv-events-config": '{"enable_kv_cache_events":true,"publisher":"zmq"}'}
    assert engine_args(SGLANG, events)[0].arguments["--kv-events-config"] == '{"publisher":"zmq"}'
    assert args_of(router_args=events).arguments["--kv-events-config"] == events["--kv-events-config"]


def test_a_hostile_model_name_is_one_word():
    name = "x'; rm -rf / #\n"
    found = args_of(replace(POOL, profile=replace(POOL.profile, model=name)))
    assert shlex.split(found.command().replace("\\\n", ""))[2] == name


def test_a_profile_without_a_model_says_so():
    found = args_of(replace(POOL, profile=replace(POOL.profile, model=None)))
    assert found.words[-1] == "MODEL"
    assert any("MODEL" in need for need in found.needs)


def test_a_model_without_a_limit_has_to_take_the_longest_request():
    found = engine_args(CLUSTER, longest_total=123_456)[0]
    assert "--max-model-len" not in found.arguments
    assert any("123,456" in need for need in found.needs)
    limited = replace(CLUSTER, pools=(replace(POOL, max_model_len=131_072),))
    assert not any("123,456" in need for need in engine_args(limited, longest_total=123_456)[0].needs)
