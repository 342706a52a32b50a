"""What a run says of its KV tiers, from a run small enough for paper."""

from __future__ import annotations

import math

import pyarrow.compute as pc
import pytest
from oracles.comparison import policy_of
from oracles.random_clusters import make_case
from oracles.reference_simulator import BatchCoefficients, Limits, Request
from oracles.reference_tiers import Tier
from oracles.tiering import with_tiers

from agentctl.cluster import KvTier
from agentctl.estimators.batch_time import BatchTime
from agentctl.sim.driver import simulate
from agentctl.tier_use import break_even_tokens, tier_facts, tier_section

SECOND_PER_BLOCK = BatchCoefficients(b0=1.0, b_prefill=1 / 16)
# A of 4 blocks of 16 tokens on engine 0 from 0 to 5 s, B of 5 that extend it at 20 s on engine 1.
A, B = Request(64, 1, 0.0, (1, 2, 3, 4)), Request(80, 1, 20.0, (1, 2, 3, 4, 5), session=1)
KEYS = {"read_bytes_per_s": 32.0, "write_bytes_per_s": 16.0}


def run(*tiers: Tier):
    engine = Limits(kv_blocks=1000, batch_time=SECOND_PER_BLOCK)
    case = with_tiers(make_case([A, B], [], 16, [engine] * 2), list(tiers))
    return simulate(case.workload, case.cluster, policy_of(lambda view, r: r)), case.cluster


def test_a_load_of_a_global_tier_is_in_the_outcome_the_metrics_and_the_facts():
    outcome, cluster = run(Tier(capacity_tokens=160, **KEYS))
    table = outcome.table()
    assert table["hit_tokens"].to_pylist() == [0, 0]
    assert table["hit_global_tokens"].to_pylist() == [0, 64]
    assert table["transfer_s"].to_pylist() == [0.0, 2.0]
    assert pc.all(pc.is_null(table["hit_host_tokens"])).as_py()  # there is no such tier
    (facts,) = tier_facts(cluster, outcome.tiers, outcome.run())
    # A stores 64 bytes from 5 on, B the 16 that it adds; B reads 64 of 144 prompt tokens: 20 + 2 + 2 s.
    assert (facts["hit_tokens"], facts["hit_ratio"]) == (64, 64 / 144)
    assert (facts["loaded_bytes"], facts["stored_bytes"]) == (64, 80)
    assert facts["read_share"] == pytest.approx(64 / (32 * 24))
    assert (facts["most_tokens"], facts["occupancy"], facts["replaced_tokens"]) == (80, 0.5, 0)


def test_what_replaced_units_gave_is_counted():
    outcome, cluster = run(Tier(capacity_tokens=64, **KEYS))
    (facts,) = tier_facts(cluster, outcome.tiers, outcome.run())
    assert (facts["occupancy"], facts["replaced_tokens"]) == (1.0, 0)  # B's fifth unit finds no place
    outcome, cluster = run(Tier(capacity_tokens=48, scope="engine", **KEYS))
    (facts,) = tier_facts(cluster, outcome.tiers, outcome.run())
    assert (facts["stores"], facts["hit_tokens"], facts["replaced_tokens"]) == (2, 0, 0)


def tier(**keys) -> KvTier:
    return KvTier("t", "cluster", 1000, unit_tokens=16, write_bytes_per_s=1.0,
                  **{"read_bytes_per_s": 128.0, **keys})  # fmt: skip


def batch_time(b_prefill: float, b_attention: float = 0.0) -> BatchTime:
    return BatchTime("hinge", 0.0, b_prefill, 0.0, 0.0, 0.0, b_attention, 0.0, 0.0, 0.0)


def test_break_even_lengths_by_hand():
    # 1/8 s a unit of 16 bytes; computing takes 1/4 s a unit
    assert break_even_tokens(tier(), batch_time(1 / 64), 1.0) == 16
    # 1 s of latency: 1 + u/8 < u/4 from u = 9 on
    assert break_even_tokens(tier(latency_s=1.0), batch_time(1 / 64), 1.0) == 9 * 16
    # as fast as computing, or slower: never; a link that passes half is slower
    assert break_even_tokens(tier(), batch_time(1 / 128), 1.0) is None
    assert break_even_tokens(tier(engine_read_bytes_per_s=64.0), batch_time(1 / 64), 1.0) is None
    # a latency per round of 2: 0.1875 + 0.125 > 0.25 for one unit, 0.1875 + 0.25 < 0.5 for two
    assert break_even_tokens(tier(latency_s=0.1875, parallel=2), batch_time(1 / 64), 1.0) == 32
    # attention alone: u/8 < 2^-14 * 16u (16u + 1)/2, that is 16u + 1 > 256
    assert break_even_tokens(tier(), batch_time(0.0, 2**-14), 1.0) == 16 * 16
    # what is computed behind loaded tokens pays for them as its past: 1/4 - 1/8 s a unit is as fast
    assert break_even_tokens(tier(), batch_time(1 / 64)._replace(b_past=1 / 128), 1.0) is None


def test_the_section_warns_of_a_tier_that_never_pays():
    outcome, cluster = run(Tier(read_bytes_per_s=1.0, write_bytes_per_s=math.inf, capacity_tokens=160))
    section = tier_section(tier_facts(cluster, outcome.tiers, outcome.run()))
    assert "loaded faster" in section.warnings[0]
