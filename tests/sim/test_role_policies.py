"""Policies that know of roles against the judge's placements, and their laws."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.comparison import QUIET
from oracles.pooling import NETWORKS, check_placer, with_roles
from oracles.random_clusters import cases, make_case
from oracles.reference_placement import Disaggregated, Needs, Pinned
from oracles.reference_pools import Network
from oracles.reference_simulator import BatchCoefficients, Limits, Request

from agentctl.errors import ConfigError
from agentctl.policies.base import load_policy
from agentctl.sim.driver import simulate

ROLES = st.sampled_from(
    [("prefill", "decode"), ("prefill", "decode", "decode"), ("prefill", "prefill", "decode"),
     ("decode", "prefill", "decode"), ("prefill", "both", "decode"), ("both", "decode"), ("both", "both")]
)  # fmt: skip
NEEDS = st.sampled_from([("conserve-pd", 0.0), ("conserve-pd", 0.5), ("conserve-pd", 0.9), ("oracle", 0.0)])


def parts(roles):
    """(engines that compute prompts for others, engines that sessions are bound to)."""
    if set(roles) == {"both"}:
        return [], list(range(len(roles)))
    kind = "prefill" if "prefill" in roles else "both"
    prefill = [e for e, role in enumerate(roles) if role == kind]
    return prefill, [e for e in range(len(roles)) if e not in prefill]


def needs_of(case, roles, kv="oracle", quantile=0.9):
    tokens = (case.limits[0].kv_blocks - 1) * case.limits[0].block_tokens
    return Needs(case.requests, {e: tokens for e in parts(roles)[1]}, kv, quantile)


@settings(QUIET, max_examples=150)
@given(cases(), ROLES, NETWORKS, NEEDS)
def test_conserve_places_as_the_judge_does(case, roles, network, which):
    kind, quantile = which
    kv = "oracle" if kind == "oracle" else "quantile" if quantile else "per_turn"
    name, params = ("oracle-conserve-pd", {}) if kind == "oracle" else (kind, {"quantile": quantile})
    case = one_gateway(case)
    rates = {e: 1.0 for e in parts(roles)[0]}
    outcome = check_placer(
        case, roles, network, lambda: Pinned(needs_of(case, roles, kv, quantile), rates),
        policy=load_policy(name, params),
    )  # fmt: skip
    moves = np.bincount(case.workload.requests.session[outcome.moved_tokens + outcome.decode_hit_tokens > 0])
    assert (moves <= 1).all(), "KV moves once per session"


@settings(QUIET, max_examples=150)
@given(cases(), ROLES.filter(lambda roles: set(roles) != {"both"}), NETWORKS, st.booleans())
def test_full_disaggregation_places_as_the_judge_does(case, roles, network, at_hand_over):
    case = one_gateway(case)
    rates = {e: 1.0 for e in parts(roles)[0]}
    check_placer(
        case, roles, network, lambda: Disaggregated(needs_of(case, roles), rates, at_hand_over),
        policy=load_policy("full-disaggregation", {"at_hand_over": float(at_hand_over)}),
    )  # fmt: skip


def one_gateway(case):
    """These policies keep books of all sessions."""
    return replace(
        case,
        settings=replace(case.settings, gateways=1),
        cluster=replace(case.cluster, router=replace(case.cluster.router, gateways=1)),
    )


def test_several_gateways_would_each_keep_books_of_their_own():
    case = conversation(2)
    cluster = with_roles(case, ("prefill", "decode"), FAST)
    cluster = replace(cluster, router=replace(cluster.router, gateways=2))
    with pytest.raises(ConfigError, match="keeps books"):
        simulate(case.workload, cluster, load_policy("conserve-pd"))


FAST = Network(1e9)
STEP = BatchCoefficients(b0=0.01, b_prefill=0.001)


def conversation(turns, n=1, output=8):
    """n sessions of so many turns, 32 tokens longer each, 1 s apart."""
    requests = []
    for session in range(n):
        for turn in range(turns):
            before = len(requests) - 1 if turn else -1
            chain = tuple(2 * turns * session + k + 1 for k in range(2 * (turn + 1)))
            requests.append(
                Request(32 * (turn + 1), output, float(session), chain, before, session,
                        1 if turn else 0, 1.0, (before,) if turn else ())
            )  # fmt: skip
    order = sorted(range(len(requests)), key=lambda r: (requests[r].arrival, r))
    assert order == list(range(len(requests)))
    return make_case(requests, [], 16, [Limits(kv_blocks=200, batch_time=STEP)])


def run(name, params=None, turns=4, n=2, roles=("prefill", "decode", "decode"), seed=0):
    case = conversation(turns, n)
    cluster = with_roles(case, roles, FAST)
    chosen = load_policy(name, params, batch_time=cluster.pools[0].profile.batch_time)
    return simulate(case.workload, cluster, chosen, seed)


@pytest.mark.parametrize("name", ["conserve-pd", "oracle-conserve-pd", "ppd"])
def test_later_turns_stay_where_the_first_one_went(name):
    outcome = run(name)
    engines = outcome.decode_engine.reshape(2, 4)
    assert (engines == engines[:, :1]).all()
    assert (outcome.engine.reshape(2, 4)[:, 0] == 0).all()
    assert (outcome.engine.reshape(2, 4)[:, 1:] == engines[:, 1:]).all()
    assert (outcome.moved_tokens.reshape(2, 4) > 0).tolist() == [[True, False, False, False]] * 2


def test_full_disaggregation_moves_what_is_new_in_every_turn():
    outcome = run("full-disaggregation", n=1)
    assert (outcome.engine == 0).all() and (outcome.moved_tokens > 0).all()


def test_errors_send_later_turns_to_a_prefill_engine():
    shares = []
    for error_share in (0.0, 0.5, 1.0):
        outcome = run("conserve-pd", {"error_share": error_share}, turns=8, n=6)
        later = np.arange(48) % 8 > 0
        shares.append((outcome.engine[later] == 0).mean())
    assert shares[0] == 0 and shares[2] == 1 and 0.3 < shares[1] < 0.7


def test_no_errors_is_conserve_to_the_last_bit():
    assert run("conserve-pd").table().equals(run("conserve-pd", {"error_share": 0.0}).table())


@pytest.mark.parametrize("name", ["ampd", "deflection"])
def test_a_prompt_stays_local_where_steps_stay_short_and_goes_where_they_would_not(name):
    lax, strict = (run(name, {"tbt_slo_s": tbt_slo_s}, n=1) for tbt_slo_s in (10.0, 1e-6))
    assert (strict.engine == 0).all()
    assert (lax.engine[1:] == lax.decode_engine[1:]).all()


def test_flipped_decisions_of_ampd_go_the_other_way():
    right, flipped = (run("ampd", {"tbt_slo_s": 10.0, "error_share": share}, n=1) for share in (0.0, 1.0))
    assert (right.engine[1:] != 0).all() and (flipped.engine[1:] == 0).all()


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("oracle-conserve-pd", {}),
        ("conserve-pd", {}),
        ("conserve-pd", {"quantile": 0.9}),
        ("ampd", {}),
        ("ppd", {}),
    ],
)
def test_nobody_is_refused_who_fits_an_engine(name, params):
    """A session that rewrites its history puts in more than any decoder has; so does a quantile of such."""
    rewritten = [
        Request(96, 8, float(session), tuple(range(6 * r + 1, 6 * r + 7)), -1, session, 1 if turn else 0, 1.0,
                (r - 1,) if turn else ())
        for session in range(3) for turn in range(3) for r in [3 * session + turn]
    ]  # fmt: skip
    case = make_case(rewritten, [], 16, [Limits(kv_blocks=14, batch_time=STEP)])  # 208 tokens
    cluster = with_roles(case, ("prefill", "decode"), FAST)
    chosen = load_policy(name, params, batch_time=cluster.pools[0].profile.batch_time)
    assert simulate(case.workload, cluster, chosen).done.all()


@pytest.mark.parametrize("name", ["full-disaggregation", "conserve-pd", "ppd", "deflection", "ampd"])
@pytest.mark.parametrize("at_hand_over", [0.0, 1.0])
def test_without_roles_policies_of_roles_place_on_one_engine(name, at_hand_over):
    params = {"at_hand_over": at_hand_over} if name == "full-disaggregation" else {}
    outcome = run(name, params, roles=("both", "both"))
    assert outcome.done.all() and not outcome.moved_tokens.any()
