"""What moved between pools, in a document."""

from __future__ import annotations

import pytest
from oracles.pooling import with_roles
from oracles.random_clusters import make_case
from oracles.reference_pools import Network
from oracles.reference_simulator import BatchCoefficients, Limits, Request

from agentctl.errors import UsageError
from agentctl.hand_overs import hand_over_facts, hand_over_section
from agentctl.metrics import stays
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


# By hand, in seconds: engine 0 computes r0 and r2 until 1, r1 from 8.5 to 9.5. Engine 1 has r0 from 1 to 7.5
# (it moves until 5.5) and r1 from 9.5 to 14 (moves until 12). Engine 2 has nothing to do.
TWO_DECODERS = with_roles(CASE, ("prefill", "decode", "decode"), Network(16.0, 0.5))


@pytest.fixture(scope="module")
def document():
    return simulate_policy(CASE.workload, TWO_DECODERS, load_policy("full-disaggregation"), ()).document


def test_every_token_is_counted_where_it_came_from(document):
    engines = document["engines"]
    assert [one["output_tokens"] for one in engines] == [3, 4, 0]
    assert [one["computed_prefill_tokens"] for one in engines] == [64 + 32 + 32, 0, 0]
    assert [one["requests"] for one in engines] == [3, 0, 0]
    assert [one["decoded_requests"] for one in engines] == [1, 2, 0]
    assert [one["sessions"] for one in engines] == [2, 1, 0]


def test_engines_are_as_uneven_as_those_of_their_role(document):
    metrics = document["metrics"]
    assert metrics["imbalance_prefill"]["value"] == 1.0
    # 3 s on the prefill engine; 6.5 + 4.5 s on one of two decoders
    assert metrics["imbalance_batch"]["value"] == pytest.approx((3 * 1 + 11 * 2) / 14)
    assert metrics["imbalance_pending_prefill_over_time"]["p99"] == 1.0
    assert document["hot_spots"]["hot"] == []


def test_blocks_sessions_and_moves_are_on_both_engines(document):
    metrics = document["metrics"]
    assert metrics["replication"]["value"] == (6 * 2 + 2) / 8
    assert metrics["engines_per_session"]["mean"] == (2 + 1) / 2
    assert metrics["migrations"]["value"] == 1  # r1 is not computed where its session's KV is
    stays = simulate_policy(CASE.workload, TWO_DECODERS, load_policy("conserve-pd"), ()).document
    assert stays["metrics"]["migrations"]["value"] == 0
    assert metrics["transfer_s"]["n"] == 2


def test_outcomes_have_what_moved_and_when():
    table = simulate(CASE.workload, TWO_DECODERS, load_policy("full-disaggregation")).table()
    assert table["sent_s"].to_pylist() == [0.0, 8.5, 0.0]
    assert table["moved_tokens"].to_pylist() == [64, 32, 0]
    assert table["decode_hit_tokens"].to_pylist() == [0, 64, 0]
    assert table["move_began_s"].to_pylist() == [1.0, 9.5, None]
    assert table["move_ended_s"].to_pylist() == [5.5, 12.0, None]
    without = simulate(CASE.workload, CASE.cluster, load_policy("round-robin")).table()
    assert "moved_tokens" not in without.column_names


def test_a_request_is_on_no_engine_while_the_router_keeps_it():
    """Two sessions, one of which fits: the second waits from 0 to the first's end."""
    case = make_case(
        [Request(64, 3, 0.0, (1, 2, 3, 4)), Request(64, 3, 0.0, (5, 6, 7, 8), session=1)],
        [], 16, [Limits(kv_blocks=7, batch_time=BatchCoefficients(b0=1.0))],
    )  # fmt: skip
    cluster = with_roles(case, ("prefill", "decode"), Network(1e9))
    outcome = simulate(case.workload, cluster, load_policy("conserve-pd"))
    there = stays(outcome.run())
    end = outcome.finish_s[0]
    assert outcome.arrival_s.tolist() == [0.0, 0.0] and outcome.sent_s.tolist() == [0.0, end]
    assert there.engine.tolist() == [0, 0, 1, 1]
    assert there.since_s.tolist() == [0.0, end, *outcome.first_token_s]
    assert there.until_s.tolist() == [*outcome.first_token_s, *outcome.finish_s]
