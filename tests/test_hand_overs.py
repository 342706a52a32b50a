"""What moved between pools, in a document."""

from __future__ import annotations

import pytest
from oracles.pooling import with_roles
from oracles.random_clusters import make_case
from oracles.reference_pools import Network
from oracles.reference_simulator import BatchCoefficients, Limits, Request

from agentctl.errors import UsageError
from agentctl.hand_overs import hand_over_facts, hand_over_section
from agentctl.policies.base import load_policy
from agentctl.sim.driver import simulate
from agentctl.simulate import simulate_policy

# Blocks of 16 tokens at a byte each, 16 bytes/s: a block moves in a second.
CASE = make_case(
    [
        Request(64, 3, 0.0, (1, 2, 3, 4)),
        Request(96, 3, 0.0, (1, 2, 3, 4, 5, 6), 0, 0, 1, 1.0, (0,)),
        Request(32, 1, 0.0, (7, 8), session=1),
    ],
    [], 16, [Limits(kv_blocks=99, batch_time=BatchCoefficients(b0=1.0))],
)  # fmt: skip
CLUSTER = with_roles(CASE, ("prefill", "decode"), Network(16.0, 0.5))


def facts_of(name):
    outcome = simulate(CASE.workload, CLUSTER, load_policy(name))
    return hand_over_facts(CLUSTER, outcome), outcome


def test_conserve_moves_a_session_once():
    facts, outcome = facts_of("conserve-pd")
    assert (facts["requests"], facts["share"], facts["tokens"], facts["bytes"]) == (1, 1 / 3, 64, 64)
    assert facts["per_session_mean"] == 0.5
    assert facts["transfer_s"] == {"p50": 4.5, "p95": 4.5, "max": 4.5}
    assert facts["wait_for_decoder_s"]["max"] == 0.0
    assert outcome.transfer_s.tolist() == [4.5, 0.0, 0.0]


def test_full_disaggregation_moves_every_turn_but_what_the_decoder_has():
    facts, outcome = facts_of("full-disaggregation")
    assert (facts["requests"], facts["tokens"], facts["found_on_decoder_tokens"]) == (2, 64 + 32, 64)
    span = outcome.finish_s.max()
    assert facts["network_share"] == pytest.approx(96 / 16 / span)


def test_the_section_says_what_moved():
    facts, _ = facts_of("conserve-pd")
    section = hand_over_section(facts)
    assert section.sentence.startswith("33.3 % of the requests were handed over, 0.50 per session; 64 tokens")


def test_no_roles_no_hand_overs():
    outcome = simulate(CASE.workload, CASE.cluster, load_policy("round-robin"))
    assert hand_over_facts(CASE.cluster, outcome) is None


@pytest.mark.parametrize("asked", [{"explain": ["r0"]}, {"regret": 1}])
def test_another_engine_is_not_tried_where_engines_have_roles(asked):
    with pytest.raises(UsageError, match="where engines have roles"):
        simulate_policy(CASE.workload, CLUSTER, load_policy("conserve-pd"), (), **asked)
