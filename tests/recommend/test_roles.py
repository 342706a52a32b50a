"""Who computes prompts and who decodes: the assignments that are tried, and which one is told to be best."""

from dataclasses import replace

import numpy as np
import pytest
from oracles.datasets import write_dataset

from agentctl.cluster import Network, check_simulated, parse_cluster
from agentctl.emit.base import targets
from agentctl.errors import ConfigError, UsageError
from agentctl.policies._settings import settled
from agentctl.recommend import recommend
from agentctl.recommend.candidates import candidates_of
from agentctl.recommend.grid import Axis
from agentctl.recommend.roles import others_than_today, roles_of, unlinked, with_roles
from agentctl.recommend.variants import variant_of
from agentctl.sim.driver import simulate
from agentctl.simulate import policy_of
from agentctl.workload import compile_workload

ENGINE = {
    "name": "main",
    "engines": 4,
    "block_tokens": 16,
    "kv_blocks": 4000,
    "price_per_hour": 2.0,
    "batch_time": {"model": "hinge", "b0": 5e-3, "b_prefill": 2e-4, "b_decode": 1e-4},
}


def made_of(*pools, network=True):
    cluster = parse_cluster({"schema": "agentctl/cluster/1", "pool": list(pools)}, "c.toml")
    sized = tuple(
        replace(pool, profile=replace(pool.profile, kv_bytes_per_token=100_000)) for pool in cluster.pools
    )
    return replace(cluster, pools=sized, network=Network(100e9, 1e-3) if network else None)


ALIKE = made_of(ENGINE)
FAST = {**ENGINE, "name": "fast", "engines": 2}
SLOW = {**ENGINE, "name": "slow", "engines": 2, "batch_time": {**ENGINE["batch_time"], "b_prefill": 4e-3}}
UNLIKE = made_of(FAST, SLOW)


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """240 prompts of 1,600 tokens, all different, one every 2 s (0.32 s on a fast engine, 6.4 s on a slow
    one); 100 tokens each, so that a prompt beside it adds a third to a request's time per token."""
    rows = [
        {
            "arrival_s": 2.0 * n,
            "session_id": f"s{n:03}",
            "blocks": list(range(1000 * n + 1, 1000 * n + 101)),
            "output_tokens": 100,
            "e2e_s": 2.0,
        }
        for n in range(240)
    ]
    return write_dataset(tmp_path_factory.mktemp("traces") / "prompts.trace", rows, block_tokens=16)


def shapes(cluster):
    return [(pool.name, pool.role, pool.engines) for pool in cluster.pools]


def test_engines_of_one_kind_are_shared_out_in_every_way():
    assert others_than_today(ALIKE, "all") == [
        "1 prefill + 3 decode", "2 prefill + 2 decode", "3 prefill + 1 decode",
    ]  # fmt: skip
    split = with_roles(ALIKE, "1 prefill + 3 decode")
    assert shapes(split) == [("prefill", "prefill", 1), ("decode", "decode", 3)]
    assert (split.n_engines, split.n_gpus, split.price_per_hour) == (4, 4, 8.0)
    assert split.network == ALIKE.network
    check_simulated(split)


def test_a_list_tries_what_fits_the_engines_and_nothing_twice():
    assert others_than_today(ALIKE, "1+3, 1+7,1+3") == ["1 prefill + 3 decode"]


def test_what_the_cluster_is_today_is_no_other_assignment():
    split = with_roles(ALIKE, "2 prefill + 2 decode")
    assert roles_of(split) == "2 prefill + 2 decode"
    assert others_than_today(split, "all") == ["collocated", "1 prefill + 3 decode", "3 prefill + 1 decode"]
    assert shapes(with_roles(split, "collocated")) == [("prefill", "both", 4)]
    assert others_than_today(split, "both") == ["collocated"]


def test_pools_that_differ_get_every_role_that_can_serve():
    """Not all prefill, where nobody decodes; not all decode, which would do both; not what they are today."""
    assert others_than_today(UNLIKE, "all") == ["fast prefill, slow decode", "fast decode, slow prefill"]
    mixtures = others_than_today(UNLIKE, "prefill+both,both+prefill,both+decode,decode+both,prefill+prefill")
    assert mixtures == [
        "fast prefill, slow both", "fast both, slow prefill",
        "fast both, slow decode", "fast decode, slow both",
    ]  # fmt: skip
    for name in [*others_than_today(UNLIKE, "all"), *mixtures]:
        variant = with_roles(UNLIKE, name)
        assert roles_of(variant) == name
        check_simulated(variant)
    assert shapes(with_roles(UNLIKE, "fast decode, slow prefill")) == [
        ("slow", "prefill", 2), ("fast", "decode", 2),
    ]  # fmt: skip


@pytest.mark.parametrize("policy", ["conserve-pd", "full-disaggregation", "ppd", "deflection", "ampd"])
@pytest.mark.parametrize(
    ("mixture", "like"),
    [
        ("fast both, slow decode", "fast prefill, slow decode"),
        ("fast prefill, slow both", "fast prefill, slow decode"),
        ("fast both, slow prefill", "fast decode, slow prefill"),
    ],
)
def test_a_pool_that_is_both_among_others_does_what_these_do_not(trace, policy, mixture, like):
    """So that `all` need not try mixtures."""
    workload = compile_workload(trace)
    runs = []
    for name in (mixture, like):
        cluster = with_roles(UNLIKE, name)
        chosen = policy_of(cluster, policy)
        runs.append(simulate(workload, settled(cluster, chosen), chosen))
    for key in ("first_token_s", "finish_s"):
        np.testing.assert_array_equal(getattr(runs[0], key), getattr(runs[1], key))


@pytest.mark.parametrize(
    ("cluster", "asked", "words"),
    [
        (ALIKE, "1", "such as 1+3"),
        (ALIKE, "prefill+decode", "such as 1+3"),
        (UNLIKE, "1+3", "such as prefill+decode"),
        (UNLIKE, "prefill+decode+both", "for each of fast, slow"),
    ],
)
def test_an_entry_that_cannot_be_read_says_what_could(cluster, asked, words):
    with pytest.raises(UsageError) as caught:
        others_than_today(cluster, asked)
    assert words in caught.value.message and caught.value.message.startswith("--roles")


def test_a_network_belongs_to_pools_of_different_roles_only():
    assert unlinked(ALIKE).network is None
    check_simulated(unlinked(ALIKE))
    split = with_roles(ALIKE, "1 prefill + 3 decode")
    assert unlinked(split) is split


def test_settings_come_before_roles():
    settings = (("pool.main.max_num_seqs", 32), ("roles", "1 prefill + 3 decode"))
    assert [pool.max_num_seqs for pool in variant_of(ALIKE, settings).pools] == [32, 32]


def test_every_policy_meets_every_assignment_and_today_stays_the_reference():
    found, reference, reference_only = candidates_of(
        {4: ALIKE}, ["lmetric,conserve-pd"], None, [Axis("max_num_seqs", (256, 64))], "1+3"
    )
    assert [one.title for one in found] == [
        "lmetric", "lmetric, 1 prefill + 3 decode",
        "lmetric, max_num_seqs 64", "lmetric, max_num_seqs 64, 1 prefill + 3 decode",
        "conserve-pd", "conserve-pd, 1 prefill + 3 decode",
        "conserve-pd, max_num_seqs 64", "conserve-pd, max_num_seqs 64, 1 prefill + 3 decode",
        "round-robin",
    ]  # fmt: skip
    assert (reference, reference_only) == ("round-robin", True)
    assert [one.cluster.network is None for one in found] == ["prefill" not in one.title for one in found]


def test_a_policy_that_names_one_engine_is_not_asked_where_pools_are_both_and_more():
    found, _, _ = candidates_of({4: UNLIKE}, ["lmetric,ppd"], None, (), "prefill+decode,prefill+both")
    asked = {name: [one.label for one in found if one.name == name] for name in ("lmetric", "ppd")}
    assert asked["ppd"] == ["", "fast prefill, slow decode", "fast prefill, slow both"]
    assert asked["lmetric"] == ["", "fast prefill, slow decode"]


def test_by_default_policies_that_place_both_halves_are_tried_too():
    with_all = {one.name for one in candidates_of({4: ALIKE}, (), None, (), "all")[0]}
    assert {"conserve-pd", "full-disaggregation", "ppd", "deflection", "ampd", "lmetric"} <= with_all
    gateways = replace(ALIKE, router=replace(ALIKE.router, gateways=2))
    assert "conserve-pd" not in {one.name for one in candidates_of({4: gateways}, (), None, (), "all")[0]}


def test_roles_that_no_size_can_have_are_a_usage_error():
    with pytest.raises(UsageError, match=r"1\+7 is nothing that 4 engines"):
        candidates_of({4: ALIKE}, ["lmetric"], None, (), "1+3,1+7")
    with pytest.raises(UsageError, match="nothing is tried"):
        candidates_of({4: ALIKE}, ["lmetric"], None, (), "both")


def test_without_a_network_the_key_to_add_is_named(trace):
    with pytest.raises(ConfigError) as caught:
        recommend(trace, cluster=made_of(ENGINE, network=False), roles="all")
    assert "[network]" in caught.value.message and "bytes_per_s = " in caught.value.hint


def test_a_stray_network_is_still_refused_where_no_roles_are_asked_for(trace):
    with pytest.raises(ConfigError, match="links pools of different roles"):
        recommend(trace, cluster=ALIKE)


SLO = ["ttft p90 < 3s", "tpot p90 < 6.5ms"]


@pytest.fixture(scope="module")
def unlike(trace):
    return recommend(
        trace, cluster=UNLIKE, roles="all", policies=["lmetric,ppd"], slos=SLO,
        replicates=3, objective="peak-load,cost", sensitivity=False,
    )  # fmt: skip


def test_the_pool_that_computes_fast_gets_the_prompts(unlike):
    """Slow engines decode as fast as fast ones; collocated they would compute half of the prompts."""
    document = unlike.document
    best = document["verdict"]
    chosen = next(
        one for one in document["candidates"]
        if (one["policy"], one["settings"]) == (best["policy"], _settings_of(unlike))
    )  # fmt: skip
    assert chosen["settings"] == [{"key": "roles", "value": "fast prefill, slow decode"}]
    assert [(pool["name"], pool["role"]) for pool in chosen["pools"]] == [
        ("fast", "prefill"), ("slow", "decode"),
    ]  # fmt: skip
    section = next(one for one in unlike.sections if one.name == "phases")
    assert section.sentence == (
        "Recommended: pool fast (2 engines) computes prompts, pool slow (2 engines) decodes."
    )
    table = section.tables[0]
    assert {row[0] for row in table.rows} == {
        "collocated", "fast prefill, slow decode", "fast decode, slow prefill",
    }  # fmt: skip
    assert table.rows[table.best[0]][0] == "fast prefill, slow decode"
    assert chosen["objectives"]["cost"]["value"] > 0


def _settings_of(result):
    """Of the recommended candidate: the row that the verdict's table marks."""
    table = result.sections[0].tables[0]
    title = table.rows[table.best[0]][0]
    _, _, roles = title.partition(", ")
    return [{"key": "roles", "value": roles}] if roles else []


def test_no_target_writes_roles_down(trace, unlike):
    assert unlike.document["deploy"]["files"]
    readme = unlike.files["deploy/README.md"].decode()
    assert "Nothing here can be applied" in readme and "is not written down yet" in readme
    assert not any(name.endswith("start.sh") for name in unlike.files)
    asked = recommend(
        trace, cluster=ALIKE, roles="2+2", policies=["round-robin"], slos=["ttft p90 < 3s"], replicates=2,
        sensitivity=False, router="llm-d",
    )  # fmt: skip
    standing = {one["policy"]: one["deployed_as"] for one in asked.document["deploy"]["deployed_as"]}
    assert standing["round-robin, 2 prefill + 2 decode"] is None
    assert asked.document["verdict"]["policy"] is None or not _settings_of(asked)


@pytest.mark.parametrize("name", sorted(targets()))
def test_every_target_refuses_roles(name):
    from agentctl.emit.base import Deployment
    from agentctl.policies.base import load_policy

    target = targets()[name]
    policy = load_policy("round-robin")
    cluster = settled(with_roles(ALIKE, "2 prefill + 2 decode"), policy)
    with pytest.raises(ConfigError, match="is not written down yet"):
        target.emit(Deployment(cluster, policy, target.VERSIONS[0], 100, 200))
