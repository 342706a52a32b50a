"""What a run says of its energy: laws that hold between its numbers, and what is unknown."""

import math
from pathlib import Path

import numpy as np
import pytest
from oracles.random_clusters import workload_of
from oracles.reference_simulator import Request

from agentctl.cluster import Cluster, Network, Pool, cluster_of
from agentctl.energy_use import power_words_beside
from agentctl.metrics import METRICS, measure
from agentctl.policies.base import load_policy
from agentctl.profile import load_profile
from agentctl.sim.driver import simulate
from agentctl.simulate import simulate_policy
from agentctl.slo import parse_slos

REQUESTS = [
    Request(800 + 10 * n, 20 + n, arrival=0.3 * n, session=n % 4, gap=0.5, chain=()) for n in range(12)
]
A40 = Path(__file__).parent / "data" / "power" / "a40-qwen3-0.6b.toml"
ENERGY = [name for name in METRICS if name.endswith(("_j", "energy_ratio"))]


def pool(name, profile, **keys):
    known = load_profile(profile)
    return Pool(name, known, known.kv_blocks, 16, max_num_batched_tokens=2048, **keys)


def facts(*pools, network=None):
    workload = workload_of(REQUESTS, None, "timestamps")
    cluster = Cluster(pools, network=network)
    found = simulate_policy(workload, cluster, load_policy("round-robin"), parse_slos(()))
    return found.document


def test_pools_add_up_to_the_whole_and_requests_and_idle_power_to_their_pool():
    energy = facts(pool("new", "h200-qwen3-8b"), pool("old", A40, engines=2))["energy"]
    pools = energy["pools"]
    assert sum(one["energy_j"] for one in pools) == pytest.approx(energy["total_energy_j"])
    assert energy["mean_w"] * energy["span_s"] == pytest.approx(energy["total_energy_j"])
    for one, n in zip(pools, (1, 2), strict=True):
        above = one["prefill_j"] + one["decode_j"] + one["mixed_j"]
        assert one["idle_j"] == pytest.approx(n * one["idle_w"] * energy["span_s"])
        assert one["energy_j"] == pytest.approx(above + one["idle_j"])
        assert one["idle_w"] < one["decode_w"] < one["prefill_w"] <= 700
    assert [one["source"] for one in pools] == ["literature", "fitted"]


def test_joules_of_requests_and_idle_power_are_all_there_is():
    cluster = cluster_of(load_profile("h200-qwen3-8b"), 2)
    outcome = simulate(workload_of(REQUESTS, None, "timestamps"), cluster, load_policy("round-robin"))
    metrics = measure(outcome.run())
    span = outcome.finish_s.max() - outcome.arrival_s.min()
    total = outcome.energy_j.sum() + 2 * 120 * span
    assert metrics["total_energy_j"]["value"] == pytest.approx(total)
    assert metrics["session_energy_j"]["mean"] == pytest.approx(outcome.energy_j.sum() / 4)
    assert metrics["energy_per_session_j"]["value"] == pytest.approx(total / 4)
    tokens = sum(r.prompt + r.output for r in REQUESTS)
    assert metrics["tokens_per_j"]["value"] == pytest.approx(tokens / total)
    assert metrics["output_tokens_per_j"]["value"] == pytest.approx(sum(r.output for r in REQUESTS) / total)
    table = outcome.table()["energy_j"]
    np.testing.assert_array_equal(table.to_numpy(), outcome.energy_j)


def test_a_pool_of_unknown_power_leaves_the_whole_unknown_and_says_why():
    document = facts(pool("new", "h200-qwen3-8b"), pool("dark", "h100-qwen3-8b"))
    energy = document["energy"]
    assert energy["total_energy_j"] is None and energy["mean_w"] is None
    assert energy["pools"][0]["energy_j"] > 0
    assert "nothing is published" in energy["pools"][1]["reason"]
    assert document["metrics"]["total_energy_j"]["value"] is None
    assert document["metrics"]["energy_j"]["n"] == 6  # of the engine that is known


def test_a_cap_that_the_lowest_clock_does_not_keep_is_said():
    pools = tuple(pool(name, "h200-qwen3-8b", power_cap_w=w) for name, w in (("low", 150.0), ("high", 600.0)))
    workload = workload_of(REQUESTS, None, "timestamps")
    found = simulate_policy(workload, Cluster(pools), load_policy("round-robin"), ())
    low, high = found.document["energy"]["pools"]
    assert low["over_cap_w"] == pytest.approx(low["decode_w"] - 150.0) and low["over_cap_w"] > 10
    assert high["over_cap_w"] == 0.0
    section = next(one for one in found.sections if one.name == "energy")
    assert len(section.warnings) == 1 and "pool low: a cap of 150 W a GPU is not kept" in section.warnings[0]


def test_no_metric_of_energy_has_a_value_where_nothing_is_known():
    metrics = facts(pool("dark", "h100-qwen3-8b"))["metrics"]
    assert len(ENERGY) >= 8
    for name in ENERGY:
        assert "not known" in metrics[name]["reason"]
        assert metrics[name].get("value") is None and not metrics[name].get("n")


def test_a_cap_on_decoders_saves_energy_and_costs_no_time_but_in_prefill():
    free, capped = (facts(pool("main", A40, power_cap_w=cap))["energy"]["pools"][0] for cap in (None, 200.0))
    assert capped["energy_j"] < free["energy_j"]
    assert capped["prefill_w"] == pytest.approx(200) and free["prefill_w"] > 280
    assert (free["slowed_s"], capped["clock_source"]) == (0.0, "fitted")
    assert capped["slowed_s"] > 0


def test_what_is_said_of_a_cap_says_on_whose_authority():
    workload = workload_of(REQUESTS, None, "timestamps")
    cluster = Cluster((pool("main", "h200-qwen3-8b", sm_clock_mhz=1200.0),))
    found = simulate_policy(workload, cluster, load_policy("round-robin"), parse_slos(()))
    section = next(one for one in found.sections if one.name == "energy")
    assert "literature (caps and clocks: literature)" in section.sentence
    assumed = " ".join(found.sections[-1].assumptions)
    assert "SM clock locked at 1200 MHz: the effect is literature, not measured" in assumed
    assert not math.isnan(found.document["energy"]["total_energy_j"])


def test_a_cap_that_only_a_variant_has_is_told_once_with_its_name():
    free, capped = (Cluster((pool("main", "h200-qwen3-8b", power_cap_w=cap),)) for cap in (None, 500.0))
    told = power_words_beside(free, [("", free), ("power_cap_w 500", capped), ("power_cap_w 500", capped)])
    assert len(told) == 1
    assert told[0].startswith("with power_cap_w 500: power of pool main (literature)")
    assert "capped at 500 W a GPU: the effect is literature, not measured" in told[0]


def test_prompts_are_the_prefill_pools_tokens_and_outputs_the_decode_pools():
    document = facts(
        pool("first", "h200-qwen3-8b", role="prefill"),
        pool("second", "h200-qwen3-8b", role="decode", engines=2, sm_clock_mhz=1200.0),
        network=Network(25e9, 5e-3),
    )
    energy, (first, second) = document["energy"], document["energy"]["pools"]
    assert first["energy_j"] + second["energy_j"] == pytest.approx(energy["total_energy_j"])
    assert (first["decode_j"], first["output_tokens_per_j"]) == (0.0, 0.0)
    assert second["prefill_j"] == 0.0 and second["decode_j"] > 0
    tokens = sum(r.prompt for r in REQUESTS), sum(r.output for r in REQUESTS)
    assert first["tokens_per_j"] * first["energy_j"] == pytest.approx(tokens[0])
    assert second["tokens_per_j"] * second["energy_j"] == pytest.approx(tokens[1])
