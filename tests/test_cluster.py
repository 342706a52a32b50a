"""Cluster and profile files: every key of the contract is read, every mistake is an error at its place."""

import tomllib

import pytest

from agentctl.cluster import check_simulated, cluster_of, load_cluster, parse_cluster
from agentctl.errors import ConfigError
from agentctl.profile import load_profile, preset_names

FULL = """
schema = "agentctl/cluster/1"
[[pool]]
name = "main"
role = "both"
engines = 8
profile = "h100-qwen3-8b"
scheduler = "vllm"
block_tokens = 64
kv_blocks = 8193
max_num_batched_tokens = 4096
max_num_seqs = 128
max_model_len = 131072
long_prefill_token_threshold = 512
reserve_full_prompt = false
watermark = 0.01
prefix_caching = false
scheduling_policy = "priority"
prefill_schedule_interval = 2
[router]
policy = "smetric"
gateways = 1
index = "precise"
index_delay_s = 0.0
metrics_interval_s = 0.0
tie = "policy"
[router.params]
slack = 0.5
[[kv_tier]]
name = "global"
scope = "cluster"
capacity_tokens = 50_000_000
read_bytes_per_s = 20e9
write_bytes_per_s = 20e9
engine_read_bytes_per_s = 20e9
latency_s = 0.3e-3
parallel = 0
unit_tokens = 256
inclusion = "inclusive"
replacement = "lru"
write = "through"
write_decode = false
use_if_faster = true
overlap = "async"
[network]
bytes_per_s = 25e9
latency_s = 5e-3
"""

SMALL = {"schema": "agentctl/cluster/1", "pool": [{"name": "main", "profile": "h100-qwen3-8b"}]}


def with_pool(**keys):
    return {**SMALL, "pool": [{**SMALL["pool"][0], **keys}]}


def with_network(**keys):
    return {**SMALL, "network": {"bytes_per_s": 1e9, **keys}}


def with_batch_time(**keys):
    coefficients = {"model": "eq9", "b0": 0.01, "b_prefill": 1e-5, **keys}
    pool = {"name": "main", "block_tokens": 16, "kv_blocks": 100, "batch_time": coefficients}
    return {**SMALL, "pool": [pool]}


def with_sglang(**keys):
    return with_pool(scheduler="sglang", **keys)


def test_every_key_of_the_contract_is_read():
    cluster = parse_cluster(tomllib.loads(FULL), "c.toml")
    pool = cluster.pools[0]
    assert (pool.engines, pool.block_tokens, pool.kv_blocks) == (8, 64, 8193)
    assert (pool.max_num_batched_tokens, pool.max_num_seqs, pool.max_model_len) == (4096, 128, 131072)
    assert (pool.long_prefill_token_threshold, pool.reserve_full_prompt, pool.watermark) == (512, False, 0.01)
    assert (pool.prefix_caching, pool.scheduling_policy) == (False, "priority")
    assert pool.prefill_schedule_interval == 2
    assert (cluster.router.policy, cluster.router.params) == ("smetric", {"slack": 0.5})
    assert cluster.kv_tiers[0].capacity_tokens == 50_000_000
    assert cluster.network is not None and cluster.network.bytes_per_s == 25e9


def test_a_pool_takes_from_its_profile_what_it_does_not_say():
    pool = parse_cluster(SMALL, "c.toml").pools[0]
    profile = load_profile("h100-qwen3-8b")
    assert (pool.block_tokens, pool.kv_blocks) == (profile.block_tokens, profile.kv_blocks)


def test_another_block_size_keeps_the_memory():
    pool = parse_cluster(with_pool(block_tokens=64), "c.toml").pools[0]
    profile = load_profile("h100-qwen3-8b")
    assert pool.kv_blocks == profile.kv_blocks * profile.block_tokens // 64


def test_an_sglang_pool_counts_pages_and_has_its_own_servers_defaults():
    pool = parse_cluster(with_sglang(), "c.toml").pools[0]
    profile = load_profile("h100-qwen3-8b")
    assert (pool.block_tokens, pool.page_tokens) == (1, 1)
    assert pool.kv_blocks == pool.usable_blocks == profile.kv_blocks * profile.block_tokens
    assert (pool.chunked_prefill_size, pool.max_prefill_tokens, pool.max_num_seqs) == (8192, 16384, 2048)
    assert (pool.mixed_chunk, pool.conservativeness, pool.ignore_eos) == (False, 1.0, False)
    keys = {"page_tokens": 16, "kv_blocks": 500, "chunked_prefill_size": -1, "max_prefill_tokens": 4096,
            "mixed_chunk": True, "conservativeness": 0.5, "ignore_eos": True, "max_num_seqs": 64}  # fmt: skip
    pool = parse_cluster(with_sglang(**keys), "c.toml").pools[0]
    assert {key: getattr(pool, key) for key in keys} == keys
    assert pool.block_tokens == 16
    check_simulated(parse_cluster(with_sglang(**keys), "c.toml"))


def test_own_keys_win_over_the_profile():
    assert parse_cluster(with_pool(kv_blocks=50), "c.toml").pools[0].kv_blocks == 50


def test_a_profile_is_looked_up_beside_the_cluster_file(tmp_path):
    profile = 'schema = "agentctl/profile/1"\nblock_tokens = 16\nkv_blocks = 9\n[batch_time]\n'
    (tmp_path / "mine.toml").write_text(profile + 'model = "hinge"\nb0 = 1e-3\nb_prefill = 1e-5\nh0 = 2e-3\n')
    text = 'schema = "agentctl/cluster/1"\n[[pool]]\nname = "main"\nprofile = "mine.toml"\n'
    (tmp_path / "c.toml").write_text(text)
    pool = load_cluster(tmp_path / "c.toml").pools[0]
    assert pool.kv_blocks == 9
    assert pool.profile.batch_time.h0 == 2e-3
    assert pool.profile.batch_time.b_decode == 1e-5  # left out: as b_prefill


def test_every_preset_loads_and_says_where_its_numbers_come_from():
    for name in preset_names():
        profile = load_profile(name)
        assert profile.provenance["source"] in ("measured", "fitted-from-log", "prior", "literature")
        assert profile.provenance["statement"]
        assert cluster_of(profile, engines=3).n_engines == 3


@pytest.mark.parametrize(
    ("tables", "place", "words"),
    [
        (with_pool(enginez=3), "c.toml: [pool] enginez", "did you mean `engines`?"),
        (with_pool(engines=0), "c.toml: [pool] engines", "int >= 1"),
        (with_pool(kv_blocks=10**12), "c.toml: [pool] kv_blocks", "<= 1000000000"),
        (with_pool(kv_blocks=10**20), "c.toml: [pool] kv_blocks", ""),
        (with_pool(max_num_seqs=10**18), "c.toml: [pool] max_num_seqs", "<= 1000000"),
        (with_pool(engines="four"), "c.toml: [pool] engines", "is of type str; expected int"),
        (with_pool(role="decoder"), "c.toml: [pool] role", "expected both or prefill or decode"),
        (with_pool(name=" "), "c.toml: [pool] name", "out of range"),
        (with_network(bytes_per_s=0.5), "c.toml: [network] bytes_per_s", "expected float >= 1.0"),
        (with_network(bytes_per_s=1e300), "c.toml: [network] bytes_per_s", "expected float <= 1e+18"),
        (with_network(latency_s=1e308), "c.toml: [network] latency_s", "expected float <= 1000000.0"),
        (with_pool(watermark=float("nan")), "c.toml: [pool] watermark", "finite"),
        (with_pool(page_tokens=1), "c.toml: [pool] page_tokens", "sglang"),
        (with_sglang(watermark=0.1), "c.toml: [pool] watermark", "vllm"),
        (with_sglang(block_tokens=16), "c.toml: [pool] block_tokens", "page_tokens"),
        (
            with_sglang(chunked_prefill_size=100, page_tokens=16),
            "c.toml: [pool] chunked_prefill_size",
            "multiple",
        ),
        (with_sglang(conservativeness=0.0), "c.toml: [pool] conservativeness", "> 0"),
        (with_pool(profile="h100-qwen"), "profile h100-qwen", "did you mean `h100-qwen3-8b`?"),
        (with_pool(profile=7), "c.toml: [pool] profile", "is not a string"),
        (with_batch_time(b_past=1e-9), "c.toml: [pool.batch_time] b_past", "hinge"),
        (with_batch_time(model="legacy"), "c.toml: [pool.batch_time] model", "never simulated"),
        (with_batch_time(b0=7.3), "c.toml: [pool.batch_time] b0", "is it in another unit?"),
        (with_batch_time(b0=float("nan")), "c.toml: [pool.batch_time] b0", "finite"),
        (with_batch_time(b_prefill=-1e-5), "c.toml: [pool.batch_time] b_prefill", ">= 0"),
        (with_batch_time(b0=0.0), "c.toml: [pool.batch_time] b0", "no time"),
        (with_batch_time(b0=-1.0), "c.toml: [pool.batch_time] b0", ">= 0"),
        ({**SMALL, "pool": []}, "c.toml: [[pool]]", "missing"),
        ({**SMALL, "pool": {"name": "main"}}, "c.toml: [pool]", "a list of tables"),
        ({**SMALL, "pool": SMALL["pool"] * 2}, "c.toml: [pool] name", "used twice"),
        ({**SMALL, "ruter": {}}, "c.toml: ruter", "did you mean `router`?"),
        ({**SMALL, "router": {"tie": "coin"}}, "c.toml: [router] tie", "lexicographic"),
        ({**SMALL, "router": 3}, "c.toml: [router]", "is not a table"),
        ({"pool": SMALL["pool"]}, "c.toml", "agentctl/cluster/1"),
    ],
)
def test_a_mistake_is_an_error_with_its_place_and_a_way_out(tables, place, words):
    with pytest.raises(ConfigError) as caught:
        parse_cluster(tables, "c.toml")
    error = caught.value
    assert error.place == place
    assert words in f"{error.message} {error.hint}"


def test_a_pool_without_kv_blocks_anywhere_names_the_key():
    tables = with_batch_time()
    del tables["pool"][0]["kv_blocks"]
    with pytest.raises(ConfigError, match=r"c\.toml: \[pool\] kv_blocks: missing"):
        parse_cluster(tables, "c.toml")


@pytest.mark.parametrize(
    ("role", "words"), [("prefill", "no pool decodes"), ("decode", "no pool computes prompts for others")]
)
def test_one_role_alone_serves_nothing(role, words):
    with pytest.raises(ConfigError, match=words):
        check_simulated(parse_cluster({**SMALL, "pool": [{**SMALL["pool"][0], "role": role}]}, "c.toml"))


@pytest.mark.parametrize(
    "change",
    [
        {"pool": [{**SMALL["pool"][0], "role": "decode", "scheduler": "sglang"}]},
        {"pool": [SMALL["pool"][0], {**SMALL["pool"][0], "name": "other", "scheduler": "sglang"}]},
        {
            "pool": [{**SMALL["pool"][0], "scheduler": "sglang"}],
            "kv_tier": tomllib.loads(FULL)["kv_tier"],
        },
    ],
)
def test_what_cannot_be_simulated_yet_is_refused_never_ignored(change):
    check_simulated(parse_cluster(SMALL, "c.toml"))
    with pytest.raises(ConfigError, match="not simulated yet"):
        check_simulated(parse_cluster({**SMALL, **change}, "c.toml"))


@pytest.mark.parametrize(
    ("router", "place", "words"),
    [
        ({"index_params": {"blok_tokens": 16}}, "c.toml: [router] index_params: blok_tokens", "block_tokens"),
        ({"index_params": {"ttl_s": 0}}, "c.toml: [router] index_params: ttl_s", "out of range"),
        ({"index_params": {"eviction": "middle"}}, "c.toml: [router] index_params: eviction", "middle"),
        ({"index_params": {"ttl_s": 9.0}}, "[router] index_params", 'belongs to index = "approximate"'),
        ({"index": "approximate", "index_delay_s": 1.0}, "[router] index_delay_s", "hears of nothing"),
        ({"metrics_delay_s": 1.0}, "[router] metrics_delay_s", "needs a metrics_interval_s"),
    ],
)
def test_settings_of_the_router_must_make_sense_together(router, place, words):
    with pytest.raises(ConfigError) as caught:
        check_simulated(parse_cluster({**SMALL, "router": router}, "c.toml"))
    error = caught.value
    assert error.place == place
    assert words in f"{error.message} {error.hint}"


def test_engines_vary_in_a_cluster_with_one_pool_only():
    cluster = parse_cluster(SMALL, "c.toml")
    assert cluster.with_engines(5).n_engines == 5
    second = {**SMALL["pool"][0], "name": "other"}
    with pytest.raises(ConfigError):
        parse_cluster({**SMALL, "pool": [*SMALL["pool"], second]}, "c.toml").with_engines(5)


def test_a_price_is_known_when_every_pool_has_one():
    priced = {**SMALL["pool"][0], "price_per_hour": 2.5, "engines": 4}
    unpriced = {**SMALL["pool"][0], "name": "other"}
    assert parse_cluster({**SMALL, "pool": [priced]}, "c.toml").price_per_hour == 10.0
    assert parse_cluster({**SMALL, "pool": [priced, unpriced]}, "c.toml").price_per_hour is None


@pytest.mark.parametrize("text", ["schema = ", "\xff"])
def test_a_file_that_is_not_toml_is_an_error(tmp_path, text):
    (tmp_path / "c.toml").write_bytes(text.encode("latin-1"))
    with pytest.raises(ConfigError, match="is not TOML"):
        load_cluster(tmp_path / "c.toml")
