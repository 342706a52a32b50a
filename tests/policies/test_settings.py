"""What a router knows: the cluster file's word first, then the production policy's own, then the default."""

from dataclasses import replace

import pytest

from agentctl.cluster import Router
from agentctl.policies._files import Signals
from agentctl.policies._settings import DEFAULTS, router_settings, router_words
from agentctl.policies.base import load_policy


def policy_with(**signals):
    policy = load_policy("vllm-router:kv_aware")
    return replace(policy, file=replace(policy.file, signals=Signals(**signals)))


APPROXIMATE = {
    "index": "approximate",
    "index_params": {"block_tokens": 64, "ttl_s": 120},
    "metrics_interval_s": 5.0,
    "metrics_delay_s": 0.1,
}


def test_a_formula_leaves_the_defaults():
    router, origins = router_settings(Router(), load_policy("lmetric"))
    assert {key: getattr(router, key) for key in DEFAULTS} == DEFAULTS
    assert set(origins.values()) == {"default"}


def test_what_the_cluster_leaves_out_is_the_policys():
    router, origins = router_settings(Router(index_delay_s=0.5), policy_with(**APPROXIMATE))
    assert (router.index, router.index_params, router.metrics_interval_s) == (
        "approximate",
        {"block_tokens": 64, "ttl_s": 120},
        5.0,
    )
    assert (router.index_delay_s, origins["index_delay_s"]) == (0.5, "cluster")
    assert origins["index"] == origins["metrics_delay_s"] == "policy"


def test_parameters_of_an_index_are_overridden_one_by_one():
    router, origins = router_settings(Router(index_params={"ttl_s": 60}), policy_with(**APPROXIMATE))
    assert router.index_params == {"block_tokens": 64, "ttl_s": 60}
    assert origins["index_params"] == "cluster"


def test_another_index_takes_none_of_the_policys_parameters():
    router, _ = router_settings(Router(index="precise"), policy_with(**APPROXIMATE))
    assert (router.index, router.index_params) == ("precise", {})


def test_an_index_of_the_gateways_own_has_no_delay_from_a_policy_with_a_precise_one():
    router, origins = router_settings(Router(index="approximate"), policy_with(index_delay_s=0.5))
    assert (router.index_delay_s, origins["index_delay_s"]) == (0.0, "default")


def test_fresh_metrics_have_no_delay():
    router, origins = router_settings(Router(metrics_interval_s=0.0), policy_with(**APPROXIMATE))
    assert (router.metrics_delay_s, origins["metrics_interval_s"]) == (0.0, "cluster")


@pytest.mark.parametrize(
    ("signals", "words"),
    [
        ({}, "engine metrics are always fresh; the prefix index is precise"),
        (
            APPROXIMATE,
            "engine metrics are published every 5 s and seen 0.1 s later; the prefix index is approximate "
            "(block_tokens 64, ttl_s 120)",
        ),
    ],
)
def test_a_router_is_told_in_words(signals, words):
    assert router_words(router_settings(Router(), policy_with(**signals))[0]) == words
