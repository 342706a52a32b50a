"""How much tier is enough, of points made by hand and of a run on a real sample."""

from __future__ import annotations

import pytest

from agentctl.cluster import parse_cluster
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.recommend.grid import Axis
from agentctl.recommend.variants import variants_of
from agentctl.side_by_side import run_side_by_side
from agentctl.tier_picture import TierPoint, enough, tier_picture, tiers_of

BOTH = [
    TierPoint("even", 0, 0.0, 0.36, None, None),
    TierPoint("even", 1_000_000, 2e9, 0.66, None, 0.26),
    TierPoint("even", 1_000_000, 1e9, 0.65, None, 0.25),
    TierPoint("even", 9_000_000, 2e9, 0.95, None, 0.48),
    TierPoint("affine", 0, 0.0, 0.71, None, None),
    TierPoint("affine", 9_000_000, 2e9, 0.95, None, 0.09),
]


def test_the_least_tier_has_the_smallest_capacity_then_the_least_bandwidth():
    assert enough(BOTH, "even", 0.3) == BOTH[0]
    assert enough(BOTH, "even", 0.65) == BOTH[2]
    assert enough(BOTH, "even", 0.66) == BOTH[1]
    assert enough(BOTH, "affine", 0.75) == BOTH[5]
    assert enough(BOTH, "even", 0.96) is None


def test_the_section_says_for_every_policy_what_it_needs():
    (section,) = tier_picture(BOTH, 0.7)
    assert section.sentence == (
        "affine finds 70.0 % of the prompt tokens without a tier. even needs 9,000,000 tokens of tier at 2 "
        "GB/s to find 70.0 % of the prompt tokens."
    )
    (wanted,) = tier_picture(BOTH)  # two points below the best: 0.93
    assert "93.0 %" in wanted.sentence
    (never,) = tier_picture(BOTH, 0.99)
    assert "with none of these tiers" in never.sentence
    assert [curve.name for curve in section.figures[0].curves] == ["affine", "even"]


def test_there_is_no_picture_where_all_have_the_same_tiers():
    assert tier_picture([BOTH[0], BOTH[4]]) == ()


def test_a_tier_of_each_engine_counts_once_per_engine():
    pool = {"name": "main", "engines": 3, "profile": "h100-qwen3-8b", "kv_blocks": 100, "block_tokens": 64}
    tiers = [
        {"preset": "host", "capacity_tokens": 1000, "read_bytes_per_s": 1e9},
        {"preset": "rdma-store", "capacity_tokens": 5000, "read_bytes_per_s": 2e9},
    ]
    cluster = parse_cluster({"schema": "agentctl/cluster/1", "pool": [pool], "kv_tier": tiers}, "c.toml")
    assert tiers_of(cluster) == (8000, 5e9)


SAMPLE = "sample_traces/weka_small.jsonl.gz"
POOL = {"name": "main", "engines": 4, "profile": "h100-qwen3-8b", "kv_blocks": 1025, "block_tokens": 64}
TIER = {"name": "global", "preset": "rdma-store", "capacity_tokens": 10_000_000}
CAPACITIES = (0, 100_000, 10_000_000)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    trace = ingest([SAMPLE], tmp_path_factory.mktemp("trace") / "small.trace", IngestOptions()).trace
    cluster = parse_cluster({"schema": "agentctl/cluster/1", "pool": [POOL], "kv_tier": [TIER]}, "c.toml")
    variants = variants_of(cluster, [Axis("kv_tier.capacity_tokens", CAPACITIES)])
    return run_side_by_side(trace, variants, [("round-robin", {}), ("session-sticky", {})])


def test_without_a_tier_balance_loses_what_affinity_keeps_and_with_one_both_find_it(told):
    """SMetric's finding, on a real trace."""
    hits = {
        (run["policy"], run["settings"]["kv_tier.capacity_tokens"]): run["metrics"]["hit_ratio"]["value"]
        for run in told.document["runs"]
    }
    assert hits["round-robin", 0] < 0.8 * hits["session-sticky", 0]
    assert hits["round-robin", 10_000_000] > 0.97 * hits["session-sticky", 10_000_000]
    for policy in ("round-robin", "session-sticky"):
        found = [hits[policy, capacity] for capacity in CAPACITIES]
        assert found == sorted(found)


def test_what_is_varied_is_told_with_every_run(told):
    run = told.document["runs"][1]
    assert (run["settings"], run["cluster"]["kv_tiers"][0]["capacity_tokens"]) == (
        {"kv_tier.capacity_tokens": 100_000}, 100_000,
    )  # fmt: skip
    assert run["tiers"][0]["occupancy"] == pytest.approx(1.0, abs=0.01)
