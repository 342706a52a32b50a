"""The judge's KV tiers by hand: scenarios small enough to compute on paper.

Blocks and units hold 16 tokens, a token is 1 byte. A batch takes 1 s, and 1 s more per block of prefill; a
decode adds nothing. Chains name a block by a letter. `place` says on which engine each request is.
"""

import pytest
from oracles.reference_simulator import BatchCoefficients, Limits, Request
from oracles.reference_tiers import Tier, TieredCluster

SECOND_PER_BLOCK = BatchCoefficients(b0=1.0, b_prefill=1 / 16)
LARGE = 1000  # blocks


def cluster(requests, place, tiers, layers=None, **limits):
    engine = Limits(**{"kv_blocks": LARGE, "batch_time": SECOND_PER_BLOCK, **limits})
    n = max(place) + 1
    return TieredCluster(requests, [engine] * n, lambda view, r: place[r], tiers, layers=layers)


def request(chain, tokens, arrival, output=1, parent=-1):
    return Request(tokens, output, arrival, tuple(chain), parent, session=int(arrival))


# A of 4 blocks on engine 0: 0 to 5. B extends it by a block and arrives at 20 on engine 1, which has nothing.
A = request("abcd", 64, 0.0)
B = request("abcde", 80, 20.0)


def run(tiers, requests=(A, B), place=(0, 1), **options):
    return cluster(list(requests), place, tiers, **options).run()


def test_t1_a_miss_here_and_a_hit_there_is_a_load():
    tier = Tier(read_bytes_per_s=32, write_bytes_per_s=16, latency_s=0.5)
    a, b = run([tier])
    assert a.finish == 5.0  # 1 + 4 blocks; storing costs it nothing
    # 64 of 80 tokens (never all): 0.5 + 64/32 = 2.5 s. Then a batch of one block: 20 + 2.5 + 2.
    assert (b.hit, b.tier_hits, b.load_s) == (0, (64,), 2.5)
    assert (b.scheduled, b.first_token, b.prefilled) == (22.5, 24.5, 16)


def test_t2_latency_comes_once_per_round_of_parallel_units():
    # 4 units, 3 at a time: ceil(4/3) = 2 latencies of 0.5, and 64/32.
    assert run([Tier(read_bytes_per_s=32, latency_s=0.5, parallel=3)])[1].load_s == 3.0


def test_t3_a_unit_cannot_be_found_before_its_store_has_ended():
    # A ends at 5; 64 bytes at 16/s are there at 9. At 8.5 everything is computed: 1 + 5. At 9 it is loaded.
    early, late = request("abcde", 80, 8.5), request("abcde", 80, 9.0)
    slow = Tier(write_bytes_per_s=16)
    assert (run([slow], (A, early))[1].tier_hits, run([slow], (A, early))[1].finish) == ((0,), 14.5)
    assert (run([slow], (A, late))[1].tier_hits, run([slow], (A, late))[1].finish) == ((64,), 11.0)


def test_t4_hits_are_whole_units_and_of_the_first_only_what_is_missing_moves():
    # Units of 32: A's 64 tokens are two. C shares 48 tokens with it, and finds one unit.
    tier, c = Tier(unit_tokens=32, read_bytes_per_s=8), request("abcx", 64, 20.0)
    assert run([tier], (A, c))[1].tier_hits == (32,)
    # Engine 1 has computed "a" (D, 17 tokens): a local hit of 16, so 16 tokens of the first unit and 32 more.
    d, e = request("a", 17, 10.0), request("abcde", 80, 20.0)
    result = run([tier], (A, d, e), (0, 1, 1))[2]
    assert (result.hit, result.tier_hits, result.load_s) == (16, (48,), 48 / 8)


def test_t5_loads_of_two_engines_share_the_tier():
    # 64 bytes each at 32/s: 2 s alone, 4 s together, when they start together.
    c = request("abcdf", 80, 20.0)
    results = run([Tier(read_bytes_per_s=32)], (A, B, c), (0, 1, 2))
    assert [r.load_s for r in results] == [0.0, 4.0, 4.0]
    # 1 s apart: B moves 32 alone; from 21 both at 16/s: B ends at 23, C has 32 left, alone again: 24.
    later = request("abcdf", 80, 21.0)
    results = run([Tier(read_bytes_per_s=32)], (A, B, later), (0, 1, 2))
    assert [r.load_s for r in results] == [0.0, 3.0, 3.0]


def test_t6_an_engine_gets_no_more_than_its_link_passes():
    # The link passes 8 of 32/s: 8 s. Two engines have 8/s each, and the tier 16/s left.
    c = request("abcdf", 80, 20.0)
    results = run([Tier(read_bytes_per_s=32, engine_read_bytes_per_s=8)], (A, B, c), (0, 1, 2))
    assert [r.load_s for r in results] == [0.0, 8.0, 8.0]


def test_t7_a_load_and_a_store_share_the_tier():
    # C (2 blocks on engine 0) runs from 17 to 20 and stores 32 bytes from then on: 2 s of work at 16/s. B's
    # load is 64/32 = 2 s of work. Together: both end at 24. B: 4 s, then its batch of 2 s; what it adds, one
    # block, is stored from 26 on, 1 s.
    c = request("xy", 32, 17.0)
    tiered = cluster([A, B, c], (0, 1, 0), [Tier(read_bytes_per_s=32, write_bytes_per_s=16)])
    assert (tiered.run()[1].load_s, tiered.results[1].finish) == (4.0, 26.0)
    assert [(m.kind, m.began, m.ended) for m in tiered.stores[0].moves] == [
        ("store", 5.0, 9.0), ("store", 20.0, 24.0), ("load", 20.0, 24.0), ("store", 26.0, 27.0),
    ]  # fmt: skip


def overlapped(overlap, layers=None):
    """B loads on engine 1 from 20 on, for 64/16 = 4 s; C, of 2 blocks, comes at the same time."""
    c = request("xy", 32, 20.0)
    return run([Tier(read_bytes_per_s=16, overlap=overlap)], (A, B, c), (0, 1, 1), layers=layers)[1:]


def test_t8_async_others_run_while_a_request_loads():
    # C: 20 + 1 + 2 = 23, alone. B loads until 24, then 1 + 1.
    b, c = overlapped("async")
    assert (b.finish, c.finish) == (26.0, 23.0)


def test_t8_none_the_whole_batch_waits_for_the_load():
    # One batch of 1 + 2 blocks: 20 + 4 + (1 + 3) = 28 for both.
    b, c = overlapped("none")
    assert (b.finish, c.finish, b.scheduled) == (28.0, 28.0, 20.0)


def test_t8_layerwise_the_batch_computes_while_it_loads():
    # max(4, 1 + 3) = 4, and of 8 layers the first one's load: 4/8.
    assert [r.finish for r in overlapped("layerwise")] == [24.0, 24.0]
    assert [r.finish for r in overlapped("layerwise", layers=8)] == [24.5, 24.5]


@pytest.mark.parametrize(("read", "used"), [(17.0, True), (16.0, False), (2.0, False)])
def test_t9_a_tier_is_used_only_if_it_beats_recompute(read, used):
    # 64 tokens are 4 s of prefill and 64/read s of loading; equal is not faster. B without: 20 + 1 + 5.
    b = run([Tier(read_bytes_per_s=read, use_if_faster=True)])[1]
    assert b.tier_hits == ((64,) if used else (0,))
    assert b.finish == pytest.approx(20 + 64 / read + 2 if used else 26.0, abs=1e-12)


def test_t9_a_tier_slower_than_recompute_hurts_who_uses_it_anyway():
    # 64/2 = 32 s in place of 4: 20 + 32 + 2 against 26.
    assert run([Tier(read_bytes_per_s=2)])[1].finish == 54.0


def test_t10_an_exclusive_tier_gives_away_what_is_loaded_and_gets_what_is_lost():
    # One engine of 5 usable blocks. A leaves 4; X of 5 blocks takes them all at 10: A's units go to the tier
    # in one store of 64 bytes at 16/s, until 14. X ends at 16. At 20 B finds "abcd", takes 4 blocks for it
    # and X loses them, tail first: a load of 64/32 = 2 s and a store of 4 s of work begin. At 24 the load has
    # ended, the tier has given "abcd" away, and B's fifth block costs X its head: another store, of 1 s. Half
    # each: it ends at 26, and the longer one, with 1 s of work left then, at 27.
    back = Tier(read_bytes_per_s=32, write_bytes_per_s=16, inclusion="exclusive", write="back")
    tiered = cluster([A, request("vwxyz", 80, 10.0), B], (0, 0, 0), [back], kv_blocks=6)
    b, store = tiered.run()[2], tiered.stores[0]
    assert (b.tier_hits, b.load_s, b.finish, len(store.lost)) == ((64,), 4.0, 26.0, 4)
    assert [(m.kind, len(m.names), m.began, m.ended) for m in store.moves] == [
        ("store", 4, 10.0, 14.0), ("load", 4, 20.0, 24.0), ("store", 4, 20.0, 27.0), ("store", 1, 24.0, 26.0),
    ]  # fmt: skip
    assert [name[0] for name in store.units] == ["z", "y", "x", "w", "v"]


def test_t11_the_least_recently_used_unit_is_replaced_and_of_one_prompt_the_last():
    # 4 units hold "abcd"; "wx" at 10 replaces d, then c. B is left with "ab".
    wx = request("wx", 32, 10.0)
    assert run([Tier(capacity_tokens=64)], (A, wx, B), (0, 0, 1))[2].tier_hits == (32,)
    # 3 units: d finds no place, because the others are on their way in.
    assert run([Tier(capacity_tokens=63)])[1].tier_hits == (48,)
    # To be read is to be used: "vwxy" is newer than "abcd", until C loads that on engine 1 and adds f. Of 9
    # units y and x make room for "ij".
    many = (A, request("vwxy", 64, 6.0), request("abcdf", 80, 12.0), request("ij", 32, 16.0), B)
    tiered = cluster(list(many), (0, 0, 1, 0, 2), [Tier(capacity_tokens=9 * 16)])
    assert tiered.run()[4].tier_hits == (64,)
    assert [name[0] for name in tiered.stores[0].lost[:2]] == ["y", "x"]


def test_t12_selective_stores_what_was_hit_twice():
    # A again at 10: a local hit of "abc" (never all of it), the first. At 15 the second: stored at 15 + 2.
    second, third = request("abcd", 64, 10.0), request("abcd", 64, 15.0)
    selective = Tier(write="selective")
    assert run([selective], (A, second, B), (0, 0, 1))[2].tier_hits == (0,)
    assert run([selective], (A, second, third, B), (0, 0, 0, 1))[3].tier_hits == (48,)


def test_t13_generated_tokens_enter_the_tier_if_it_says_so():
    # 32 tokens of prompt and 33 of output have KV for 64. Prefill until 3, 32 decodes: ends at 35.
    a, b = request("ab", 32, 0.0, output=33), request("abcde", 80, 50.0, parent=0)
    assert run([Tier()], (a, b))[1].tier_hits == (32,)
    assert run([Tier(write_decode=True)], (a, b))[1].tier_hits == (64,)


def test_t14_a_request_is_put_together_from_here_the_host_and_the_store():
    # Engine of 6 blocks, host of 7 units, a store for all. A, then X of 5 blocks (10 to 16), which takes the
    # 2 unused blocks and those of d, c, b, and in the host the units d and c. B finds a here, b in the host,
    # c and d in the store: 16/16 = 1 s and 32/8 = 4 s side by side, then 2 s.
    host = Tier(scope="engine", capacity_tokens=7 * 16, read_bytes_per_s=16)
    shared = Tier(read_bytes_per_s=8)
    b = run([host, shared], (A, request("vwxyz", 80, 10.0), B), (0, 0, 0), kv_blocks=7)[2]
    assert (b.hit, b.tier_hits, b.load_s, b.finish, b.prefilled) == (16, (16, 32), 4.0, 26.0, 16)
    # Another engine's host has nothing.
    assert run([host, shared], (A, B))[1].tier_hits == (0, 64)


def test_t14_a_tier_that_is_not_worth_it_is_left_out_and_the_next_one_asked():
    slow = Tier(scope="cluster", read_bytes_per_s=2, use_if_faster=True)
    fast = Tier(scope="cluster", read_bytes_per_s=32)
    assert run([slow, fast])[1].tier_hits == (0, 64)


def test_t15_of_loaded_requests_that_block_each_other_the_last_gives_way():
    # Engines of 6 blocks; a prompt need not fit whole. P and Q have 3 of their 4 blocks in the tier and load
    # them side by side: 96 bytes at 16/s, from 40 to 46. Neither has a fourth block: Q gives its 3 back, P
    # takes w's and runs until 48. Then Q finds u and v here, loads w (1 s) and runs from 49 to 51.
    before = (A, request("uvwx", 64, 10.0))
    p, q = request("abcd", 64, 40.0), request("uvwx", 64, 40.0)
    options = {"kv_blocks": 7, "reserve_full_prompt": False}
    p, q = run([Tier(read_bytes_per_s=16)], (*before, p, q), (0, 0, 1, 1), **options)[2:]
    assert (p.finish, p.load_s, p.preemptions) == (48.0, 6.0, 0)
    assert (q.finish, q.load_s, q.preemptions, q.tier_hits) == (51.0, 7.0, 0, (48,))


def test_t16_two_of_the_same_prefix_both_load_it():
    # What loads cannot be found before it is here: 128 bytes at 32/s. Then one batch of two blocks.
    c = request("abcdf", 80, 20.0)
    b, c = run([Tier(read_bytes_per_s=32)], (A, B, c), (0, 1, 1))[1:]
    assert (b.tier_hits, c.tier_hits, b.load_s, c.load_s) == ((64,), (64,), 4.0, 4.0)
    assert (b.finish, c.finish) == (27.0, 27.0)
