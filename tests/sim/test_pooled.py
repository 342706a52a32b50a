"""With roles the simulator agrees with the judge on every request."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from oracles.comparison import QUIET, WEIGHTS, policy_of, weighted
from oracles.pooling import NETWORKS, ROLES, Sided, check_placer, check_pooled, with_roles
from oracles.random_clusters import cases, make_case
from oracles.reference_placement import dynamo_splits, llmd_splits
from oracles.reference_pools import Network, Placement
from oracles.reference_simulator import BatchCoefficients, Limits, Request
from oracles.tiering import UNEVEN, scattered, tiers

from agentctl.cluster import Network as Link
from agentctl.cluster import check_simulated
from agentctl.errors import AgentctlError, ConfigError
from agentctl.sim import roles as answers
from agentctl.sim.driver import simulate
from agentctl.sim.splitting import SIDES, is_split

FAST = Network(1e9, 0.0)


@settings(QUIET, max_examples=300)
@given(cases(), ROLES, NETWORKS, st.integers(0, 2**32))
def test_simulator_equals_the_judge_with_roles(case, roles, network, seed):
    check_pooled(case, roles, network, seed)


@settings(QUIET, max_examples=300)
@given(cases(exact_times=False), ROLES, NETWORKS, st.integers(0, 2**32), st.data())
def test_simulator_equals_the_judge_with_roles_and_tiers(case, roles, network, seed, data):
    # sums of times are not exact: an arrival must not be meant to coincide with an end, and just miss it
    assume(case.concurrency is None and all(q.gap == 0 or q.gap > 1e-6 for q in case.requests))
    some = data.draw(st.lists(tiers(case.limits[0].block_tokens, UNEVEN), min_size=1, max_size=2))
    check_pooled(case, roles, network, seed, some, data.draw(st.sampled_from([None, 4])))


@settings(QUIET, max_examples=300)
@given(scattered(UNEVEN), ROLES, NETWORKS, st.integers(0, 2**32))
def test_simulator_equals_the_judge_with_roles_where_tiers_are_used(drawn, roles, network, seed):
    """Prompts of one tree: what an engine lacks another has often put into a tier."""
    case, some, layers = drawn
    check_pooled(case, roles, network, seed, some, layers)


class Scripted:
    """Request r is placed as `placements` says."""

    def __init__(self, placements):
        self.placements = placements

    def place(self, view, r):
        return self.placements[r]

    def ended(self, r):
        pass


@pytest.mark.parametrize(("roles", "starts"), [(("both", "decode"), 6.0), (("decode", "both"), 5.0)])
def test_room_from_a_transfer_of_no_time_is_there_for_engines_that_have_not_had_their_turn(roles, starts):
    """Steps of 1 s, pools of 8 blocks. One request decodes on the engine for prompts, where another waits for
    the blocks of one that was handed over; its decoder has room for it at 5 s, and hands them back at once.
    The engine goes on with its next step at that instant: before it heard of them, or behind it."""
    here, there = roles.index("both"), roles.index("decode")
    requests = [
        Request(16, 20, 0.0, (1,), session=0),
        Request(32, 3, 0.0, (2, 3), session=1),
        Request(96, 5, 0.0, tuple(range(4, 10)), session=2),  # all that its decoder has until 5 s
        Request(80, 2, 0.5, tuple(range(10, 15)), session=3),  # waits
    ]
    step = BatchCoefficients(b0=1.0)
    case = make_case(requests, [], 16, [Limits(kv_blocks=9, batch_time=step)])
    local, remote = Placement(here, here), Placement(here, there)
    placements = [local, remote, Placement(there, there), local]
    outcome = check_placer(case, roles, Network(math.inf), lambda: Scripted(placements))
    assert outcome.move_began_s[1] == outcome.move_ended_s[1] == 5.0
    assert outcome.scheduled_s[3] == starts


SPLITS = {
    "always": lambda prompt, hit: True,
    "llm-d": lambda prompt, hit: llmd_splits(prompt, hit, 5, 8),
    "dynamo": lambda prompt, hit: dynamo_splits(prompt, hit, 3, 0.5),
}
KEYS = {
    "always": {},
    "llm-d": {"uncached_tokens": 5, "prompt_tokens": 8},
    "dynamo": {"uncached_tokens": 3, "uncached_share": 0.5},
}
TWO_SIDES = st.sampled_from(
    [("prefill", "decode"), ("prefill", "decode", "decode"), ("decode", "prefill", "prefill")]
)


@settings(QUIET, max_examples=150)
@given(cases(), TWO_SIDES, NETWORKS, WEIGHTS, st.sampled_from(sorted(SPLITS)))
def test_a_policy_of_one_engine_is_asked_for_both_sides(case, roles, network, weights, rule):
    def make():
        return Sided(roles, weighted(weights), SPLITS[rule])

    router = replace(case.cluster.router, split={"rule": rule, **KEYS[rule]})
    outcome = check_placer(
        replace(case, cluster=replace(case.cluster, router=router)), roles, network, make,
        policy=policy_of(lambda view, r: weighted(weights)(view, r)),
    )  # fmt: skip
    is_moved = outcome.decode_engine != outcome.engine
    assert (outcome.moved_tokens[~is_moved] == 0).all()


@pytest.mark.parametrize(("hit", "splits"), [(4096, False), (4095, True), (4097, False)])
def test_dynamo_splits_above_its_share_and_not_at_it(hit, splits):
    sides = np.array([(True, 0, 1, 1, 2, 0, 2049, 0.5)], SIDES).view(np.recarray)[0]
    assert is_split(sides, 8192, hit) == splits


def test_llm_d_splits_nothing_by_default():
    case = make_case([Request(64, 3, 0.0, tuple(range(1, 5)))], [], 16, [Limits(kv_blocks=99)])
    cluster = with_roles(case, ("prefill", "decode"), FAST)
    cluster = replace(cluster, router=replace(cluster.router, split={"rule": "llm-d"}))
    outcome = simulate(case.workload, cluster, policy_of(lambda view, r: 0))
    assert (outcome.engine[0], outcome.decode_engine[0]) == (1, 1)


def one_request():
    return make_case([Request(32, 3, 0.0, (1, 2))], [], 16, [Limits(kv_blocks=99)])


@pytest.mark.parametrize("answer", [-1, -7, 2, answers.hand_over(0, 2), answers.hand_over(2, 1)])
def test_an_answer_that_names_no_engine_is_an_error(answer):
    case = one_request()
    cluster = with_roles(case, ("prefill", "decode"), FAST)
    with pytest.raises(ConfigError, match="policy test: chose"):
        simulate(case.workload, cluster, policy_of(lambda view, r: answer, places=True))


def test_a_run_that_stands_still_is_an_error():
    case = one_request()
    cluster = with_roles(case, ("prefill", "decode"), FAST)
    with pytest.raises(AgentctlError, match="stands still: 1 request"):
        simulate(case.workload, cluster, policy_of(lambda view, r: answers.NOT_YET, places=True))


@pytest.mark.parametrize(
    ("roles", "changes", "words"),
    [
        (("prefill", "decode"), {"network": None}, "KV moves between pools"),
        (("prefill", "both"), {}, "names one engine"),
        (("decode", "prefill", "decode"), {}, "stand between"),
        (("prefill", "prefill"), {}, "no pool decodes"),
        (("both", "both"), {"network": Link(1e9)}, "all are both"),
    ],
)
def test_what_cannot_be_simulated_is_refused(roles, changes, words):
    case = one_request()
    cluster = replace(with_roles(case, roles, FAST), **changes)
    with pytest.raises(ConfigError, match=words):
        simulate(case.workload, cluster, policy_of(lambda view, r: 0))


def test_it_is_the_policy_that_was_asked_which_names_one_engine():
    case = one_request()
    cluster = with_roles(case, ("prefill", "both"), FAST)  # whose own policy is another one
    with pytest.raises(ConfigError, match="the policy test names one engine"):
        simulate(case.workload, cluster, policy_of(lambda view, r: 0))


def test_kv_of_one_model_does_not_move_to_another():
    case = one_request()
    cluster = with_roles(case, ("prefill", "decode"), FAST)
    pools = tuple(replace(pool, model=f"m-{pool.role}") for pool in cluster.pools)
    with pytest.raises(ConfigError, match="different models: p0 has m-prefill, p1 has m-decode"):
        simulate(case.workload, replace(cluster, pools=pools), policy_of(lambda view, r: 0))


def test_keys_of_another_rule_are_refused():
    cluster = with_roles(one_request(), ("prefill", "decode"), FAST)
    split = {"rule": "always", "uncached_tokens": 5}
    with pytest.raises(ConfigError, match="does not belong to"):
        check_simulated(replace(cluster, router=replace(cluster.router, split=split)))
