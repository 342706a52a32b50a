"""The numbers of `reuse`, on datasets small enough to check by hand and on a public trace."""

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from oracles.datasets import write_dataset
from oracles.tries import branching_chains, plant

from agentctl.analyzers import reuse
from agentctl.analyzers.base import AnalyzeOptions, as_json
from agentctl.analyzers.belady import belady_hit_blocks, intervals
from agentctl.analyzers.counted import Counted
from agentctl.analyzers.lru_curve import lru_hit_tokens
from agentctl.analyzers.reuse_capacity import capacities
from agentctl.analyzers.reuse_ratios import hit_tokens, stretch_tokens
from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import stretches
from agentctl.analyzers.working_set import waiting_blocks

OPTIONS = AnalyzeOptions()
SAMPLES = Path(__file__).parents[2] / "sample_traces"
DATA = Path(__file__).parents[1] / "data"


def analyze(folder, rows, options=OPTIONS, block_tokens=16, **meta):
    return reuse.analyze(
        write_dataset(folder / "t.trace", rows, block_tokens=block_tokens, meta=meta), options
    )


def row(arrival_s, session, blocks, **more):
    return {"arrival_s": arrival_s, "session_id": session, "blocks": blocks, **more}


TWO_SESSIONS = [
    row(0.0, "a", [1, 2], prompt_tokens=32),
    row(4.0, "b", [1, 3], prompt_tokens=30),  # a's first block; its last block is partial
    row(10.0, "a", [1, 2, 4], prompt_tokens=48),  # block 1 was last used by b
    row(30.0, "b", [1, 3], prompt_tokens=30),  # the same prompt again, partial block and all
]


def test_ratios_of_two_sessions_by_hand(tmp_path):
    result = analyze(tmp_path, TWO_SESSIONS)
    assert result.prompt_tokens == 140
    assert result.ideal_token_ratio == (0 + 16 + 32 + 30) / 140
    assert result.ideal_token_ratio_full_blocks == (0 + 16 + 32 + 16) / 140
    assert result.ideal_request_mean == pytest.approx((0 + 16 / 30 + 32 / 48 + 1) / 4)
    assert result.ideal_block_ratio == 5 / 9
    assert result.last_half.token_ratio == 62 / 78
    assert (result.blocks, result.distinct_blocks) == (9, 4)


def test_the_two_holder_rules_differ_where_sessions_share_a_prefix(tmp_path):
    result = analyze(tmp_path, TWO_SESSIONS)
    assert result.intra_session == (16 + 14) / 78  # block 2 of a, and b's partial block
    assert result.intra_session_any_holder == (32 + 30) / 78
    assert result.intra_session + result.inter_session == 1
    assert result.intra_session_any_holder + result.inter_session_any_holder == 1


def test_reuse_by_turn_and_since_last_use_by_hand(tmp_path):
    result = analyze(tmp_path, TWO_SESSIONS)
    assert [(t.first_turn, t.requests, t.ideal_token_ratio) for t in result.by_turn] == [
        (0, 2, 16 / 62),
        (1, 2, 62 / 78),
    ]
    # 16 tokens after 4 s, 16 after 6 s, 16 after 10 s, 16 after 20 s, 14 after 26 s
    assert result.reuse_interval_s == {"p50": 10.0, "p80": 20.0, "p90": 26.0, "p99": 26.0}
    assert [(p.interval_s, p.token_share) for p in result.reuse_interval_cdf] == [
        (4.0, 16 / 78), (6.0, 32 / 78), (10.0, 48 / 78), (20.0, 64 / 78), (26.0, 1.0),
    ]  # fmt: skip


def test_late_turns_are_grouped_and_the_last_group_is_open(tmp_path):
    rows = [row(float(t), "a", [1], turn_index=t) for t in (0, 11, 19, 250)]
    groups = [(t.first_turn, t.last_turn, t.requests) for t in analyze(tmp_path, rows).by_turn]
    assert groups == [(0, 0, 1), (10, 19, 2), (100, None, 1)]


def test_working_set_by_hand(tmp_path):
    work = analyze(tmp_path, TWO_SESSIONS).working_set
    # Waiting after each request: {1, 2}, {1, 2, 3}, {1, 3}, {}: three blocks at most.
    assert work.peak_waiting_tokens == 3 * 16
    assert work.window_s == 1.0
    touched = {w.start_s: w.touched_tokens for w in work.windows if w.touched_tokens}
    assert touched == {0.0: 32, 4.0: 32, 10.0: 48, 30.0: 32}
    assert [work.windows[t].waiting_tokens // 16 for t in (0, 3, 5, 29, 30)] == [2, 2, 3, 2, 2]


def test_a_block_touched_twice_in_a_window_counts_once(tmp_path):
    rows = [row(0.0, "a", [1]), row(0.5, "b", [1]), row(1.5, "c", [1])]
    windows = analyze(tmp_path, rows).working_set.windows
    assert [w.touched_tokens for w in windows] == [16, 16]


def test_requests_that_no_engine_took_in_neither_count_nor_fill_the_cache(tmp_path):
    rows = [
        row(0.0, "a", [1], status="error"),
        row(1.0, "a", [2], status="rejected"),
        row(2.0, "a", [3], status="proxy_cache"),
        row(3.0, "a", [1], status="aborted"),
        row(4.0, "a", [2], status="timeout"),
        row(5.0, "a", [3]),
        row(6.0, "a", [1, 2, 3], prompt_tokens=None),
        {"arrival_s": 7.0, "prompt_tokens": 16},
    ]
    result = analyze(tmp_path, rows)
    assert result.requests == 3
    assert result.ideal_token_ratio == 0.0
    assert result.excluded_requests == {
        "status error": 1, "status proxy_cache": 1, "status rejected": 1,
        "unknown blocks": 1, "unknown prompt_tokens": 1,
    }  # fmt: skip
    assert "5 requests left out" in reuse.describe(result).warnings[0]


def test_a_prompt_shorter_than_a_block_counts_as_computed(tmp_path):
    result = analyze(tmp_path, [row(0.0, "a", [], prompt_tokens=10), row(1.0, "a", [1]), row(2.0, "a", [1])])
    assert result.ideal_token_ratio == 16 / 42


def test_a_log_without_blocks_says_so_instead_of_zero(tmp_path):
    result = analyze(tmp_path, [{"arrival_s": 0.0, "prompt_tokens": 5}], block_tokens=None)
    assert result.ideal_token_ratio is None
    assert result.lru_curve == ()
    assert "cannot be computed: the log carries no prompt blocks" in reuse.describe(result).sentence


def test_only_excluded_requests_leave_a_reason_and_their_count(tmp_path):
    result = analyze(tmp_path, [row(0.0, "a", [1], status="error")])
    assert result.ideal_token_ratio is None
    assert result.excluded_requests == {"status error": 1}
    assert "1 status error" in reuse.describe(result).warnings[0]


def test_a_trace_without_any_reuse_is_described(tmp_path):
    result = analyze(tmp_path, [row(0.0, "a", [1]), row(1.0, "b", [2])])
    assert result.ideal_token_ratio == 0.0
    assert result.intra_session is None
    assert result.needed_for_ideal == ()
    assert "finds nothing" in reuse.describe(result).sentence


def test_ids_of_session_scope_leave_the_split_unknown(tmp_path):
    scope = {"kind": "engine", "scope": "session"}
    result = analyze(tmp_path, [row(0.0, "a", [1]), row(1.0, "a", [1])], hash=scope)
    assert result.ideal_token_ratio == 0.5
    assert result.intra_session is result.inter_session is None
    assert any("lower bounds" in warning for warning in reuse.describe(result).warnings)


def test_broken_chains_are_a_warning(tmp_path):
    result = analyze(tmp_path, [row(0.0, "a", [1]), row(1.0, "a", [1])], chain_conflicts=3)
    assert any("3 block ids" in warning for warning in reuse.describe(result).warnings)


def test_one_pool_finds_what_dealt_sessions_cannot_share(tmp_path):
    rows = [row(0.0, "a", [1]), row(1.0, "b", [1]), row(2.0, "a", [1]), row(3.0, "b", [1])]
    options = AnalyzeOptions(engines=(1, 2), kv_tokens_per_engine=40)
    pools = analyze(tmp_path, rows, options).pools
    assert [(p.engines, p.one_pool_ratio, p.dealt_sessions_ratio) for p in pools] == [
        (1, 0.75, 0.75),
        (2, 0.75, 0.5),
    ]


def test_separate_pools_can_find_more_than_one_but_never_more_than_the_bound(tmp_path):
    flood = [row(float(t), "b", [10 * t, 10 * t + 1, 10 * t + 2]) for t in (1, 3, 5)]
    steady = [row(float(t), "a", [1]) for t in (0, 2, 4, 6)]
    options = AnalyzeOptions(engines=(2,), kv_tokens_per_engine=16)
    (pool,) = analyze(tmp_path, flood + steady, options).pools
    assert (pool.one_pool_ratio, pool.dealt_sessions_ratio, pool.bound_ratio) == (0.0, 3 / 13, 3 / 13)


def test_pools_are_left_out_when_the_size_of_an_engine_is_unknown(tmp_path):
    assert analyze(tmp_path, TWO_SESSIONS).pools == ()


def test_capacities_are_whole_blocks_and_end_at_the_largest():
    assert capacities(20) == [1, 2, 3, 4, 6, 8, 12, 16, 20]
    assert capacities(16, per_octave=1) == [1, 2, 4, 8, 16]
    assert capacities(1) == [1]
    assert capacities(0) == []


def test_figures_show_lru_below_the_optimum_below_an_infinite_cache(tmp_path):
    section = reuse.describe(analyze(tmp_path, TWO_SESSIONS))
    capacity, interval, working_set = section.figures
    lru, _, best, infinite = capacity.curves
    assert set(infinite.y) == {78 / 140} == {lru.y[-1]} == {best.y[-1]}
    at = dict(zip(best.x, best.y, strict=True))
    assert all(y <= at[x] for x, y in zip(lru.x, lru.y, strict=True) if x in at)
    assert "within 10 s, 90 % within 26 s" in interval.conclusion
    assert [curve.name for curve in working_set.curves] == ["touched", "will be used again"]
    assert section.sentence.startswith(
        "55.7 % of the prompt tokens were computed before; one LRU pool of 64 "
    )


def test_json_holds_the_keys_of_the_contract_and_no_dataclass(tmp_path):
    found = json.loads(json.dumps(as_json(analyze(tmp_path, TWO_SESSIONS)), allow_nan=False))
    assert {
        "ideal_token_ratio", "ideal_token_ratio_full_blocks", "ideal_request_mean", "intra_session",
        "inter_session", "by_turn", "lru_curve",
    } <= found.keys()  # fmt: skip
    assert found["lru_curve"][-1]["ratio"] == found["ideal_token_ratio"]
    assert found["lru_curve"][0]["tokens"] == 16


@pytest.mark.parametrize("disable_jit", ["0", "1"])
def test_compiled_and_interpreted_kernels_give_the_same_result(tmp_path, disable_jit):
    options = AnalyzeOptions(engines=(2,), kv_tokens_per_engine=40)
    here = as_json(analyze(tmp_path, TWO_SESSIONS, options))
    code = (
        "import json, pathlib, sys\n"
        "from agentctl.analyzers import base, reuse\n"
        "from agentctl.trace import open_trace\n"
        "options = base.AnalyzeOptions(engines=(2,), kv_tokens_per_engine=40)\n"
        "trace = open_trace(pathlib.Path(sys.argv[1]))\n"
        "print(json.dumps(base.as_json(reuse.analyze(trace, options))))\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "t.trace")]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": disable_jit}
    there = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    assert json.loads(there) == json.loads(json.dumps(here))


@given(branching_chains())
def test_stretches_hold_the_hit_tokens_partial_blocks_included(chains):
    trie = plant(chains)
    tails = np.array([5 * (len(chain) % 3) if chain else 0 for chain in chains], np.int64)
    n_blocks = trie.depth[trie.tip].astype(np.int64)
    zeros = np.zeros(len(chains), np.int64)
    counted = Counted(trie.tip, n_blocks, n_blocks * 16 - tails, zeros, zeros, zeros.astype(float), 16, {})
    found = stretches(weave(trie.parent, trie.depth, trie.tip), trie.tip)
    per_request = np.bincount(found.request(), stretch_tokens(counted, found), len(chains))
    assert per_request.tolist() == hit_tokens(counted, found).tolist()


def read_log(path, block_tokens, seconds=1.0):
    """The strands and requests of a hash log as published; it names no sessions."""
    with gzip.open(path) if path.suffix == ".gz" else path.open() as file:
        lines = [json.loads(line) for line in file]
    trie = plant(line["hash_ids"] for line in lines)
    counted = Counted(
        tip=trie.tip,
        n_blocks=trie.depth[trie.tip].astype(np.int64),
        prompt_tokens=np.array([line["input_length"] for line in lines]),
        session=np.arange(len(lines)),
        turn=np.zeros(len(lines), np.int64),
        arrival=np.array([line["timestamp"] for line in lines]) * seconds,
        block_tokens=block_tokens,
        excluded={},
    )
    return weave(trie.parent, trie.depth, trie.tip), counted


@pytest.mark.parametrize(
    ("name", "block_tokens", "with_tails", "full_blocks"),
    [
        ("bailian/trace_blksz_16.jsonl.gz", 16, 0.932, 0.931912),
        ("mooncake/trace_512.jsonl", 512, 0.845889, 0.844691),
    ],
)
def test_one_workload_at_two_block_sizes_has_its_known_reuse(name, block_tokens, with_tails, full_blocks):
    strands, counted = read_log(DATA / "formats" / name, block_tokens)
    ideal = reuse.ideal_reuse(counted, stretches(strands, counted.tip))
    assert round(ideal.token_ratio, 6) == with_tails
    assert round(ideal.token_ratio_full_blocks, 6) == full_blocks


@pytest.fixture(scope="module")
def mooncake():
    """One hour of chat requests, blocks of 512 tokens (sample_traces/README.md)."""
    return read_log(SAMPLES / "mooncake_conversation.jsonl.gz", 512, seconds=1e-3)


def test_mooncake_conversation_has_the_published_ideal_reuse(mooncake):
    strands, counted = mooncake
    found = stretches(strands, counted.tip)
    cold = reuse.ideal_reuse(counted, found)
    warm = reuse.ideal_reuse(counted, found, counted.tip.size // 2)
    assert cold.requests == 12_031
    assert [round(r, 5) for r in (cold.token_ratio, warm.token_ratio)] == [0.37362, 0.39811]
    full = (cold.token_ratio_full_blocks, warm.token_ratio_full_blocks)
    assert [round(r, 5) for r in full] == [0.37338, 0.39779]
    assert [round(r, 5) for r in (cold.request_mean, warm.request_mean)] == [0.40938, 0.43089]
    assert [round(r, 5) for r in (cold.block_ratio, warm.block_ratio)] == [0.36641, 0.38996]


def test_mooncake_conversation_has_the_published_lru_curve(mooncake):
    strands, counted = mooncake
    found = stretches(strands, counted.tip)
    half = counted.tip.size // 2
    hits = lru_hit_tokens(found, counted.n_blocks, counted.prompt_tokens, 512, half)
    curve = {p.tokens: p.ratio_last_half for p in reuse.lru_curve(counted, hits, half)}
    tokens = [1024 * k for k in (16, 64, 256, 1024, 4096, 16384)]
    assert [round(curve[t], 4) for t in tokens] == [0.0454, 0.0454, 0.0454, 0.0564, 0.1882, 0.3558]


def test_mooncake_conversation_has_the_published_curve_in_blocks(mooncake):
    strands, counted = mooncake
    found = stretches(strands, counted.tip)
    hits = lru_hit_tokens(found, counted.n_blocks, counted.n_blocks, 1)
    ratios = hits.sum(axis=0) / counted.n_blocks.sum()
    assert [round(100 * ratios[c], 1) for c in (1000, 3000, 10_000, 30_000, 50_000)] == [
        4.5, 6.5, 21.2, 32.6, 35.5,
    ]  # fmt: skip
    needed = [n.tokens for n in reuse.needed_for_ideal(hits, 1)]
    assert [round(n, -2) for n in needed] == [20_900, 31_400, 37_600, 85_200]


def test_mooncake_conversation_has_the_published_reuse_times_and_popularity(mooncake):
    strands, counted = mooncake
    quantiles, _ = reuse.interval_curve(counted, stretches(strands, counted.tip))
    assert [round(q) for q in quantiles.values()] == [114, 324, 519, 1578]
    assert round(reuse.single_use_blocks(strands), 2) == 0.76
    assert round(reuse.top_tenth_reuse(strands), 2) == 0.75


def test_on_mooncake_conversation_the_optimum_needs_a_tenth_of_the_memory_of_lru(mooncake):
    strands, counted = mooncake
    found = stretches(strands, counted.tip)
    to_carry, least = intervals(found), int(waiting_blocks(found).max())
    assert least == 8138
    assert belady_hit_blocks(to_carry, least).tolist() == found.hit_blocks().tolist()
    assert belady_hit_blocks(to_carry, least - 1).sum() == found.hit_blocks().sum() - 1
    lru = lru_hit_tokens(found, counted.n_blocks, counted.n_blocks, 1).sum(axis=0)
    assert lru[least] < 0.5 * lru[-1]
    for point in reuse.belady_curve(counted, found):
        assert point.block_ratio * counted.n_blocks.sum() >= lru[point.tokens // 512]
