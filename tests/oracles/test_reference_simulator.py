"""Sequences that the real vLLM V1 scheduler produced (0.33.0, driven step by step): the judge must agree.

A sequence lists the tokens scheduled per step. Blocks hold 16 tokens; prompts are distinct and the pool is
large unless a test says otherwise.
"""

import pytest
from oracles.reference_simulator import Engine, Job, Limits, Names, Pool, Request

LARGE = 1000  # blocks


class Bench:
    """One engine driven step by step; requests are letters."""

    def __init__(self, trace_block=16, **limits):
        self.limits = Limits(**{"kv_blocks": LARGE, **limits})
        self.trace_block = trace_block
        self.letters, self.requests, self.hits = [], [], {}
        self.free = []

    def request(self, letter, prompt, output, chain=(), parent=None):
        self.letters.append(letter)
        self.requests.append(
            Request(
                prompt,
                output,
                chain=tuple(chain),
                parent=-1 if parent is None else self.letters.index(parent),
            )
        )
        return self

    def run(self, arrivals, one_at_a_time=False):
        """arrivals: step -> letters that arrive before it, or letters in turn. Returns {letter: tokens}."""
        engine = Engine(self.limits, Names(self.requests, self.trace_block, self.limits.block_tokens))
        queue = list(arrivals) if one_at_a_time else []
        steps = []
        while True:
            new = [] if one_at_a_time else arrivals.get(len(steps), [])
            if one_at_a_time and queue and not engine.running:
                new = [queue.pop(0)]
            for letter in new:
                r = self.letters.index(letter)
                engine.enqueue(Job(r, self.requests[r], float(r), hit_at_dispatch=0))
            plan = engine.schedule(float(len(steps)))
            if not plan:
                return steps
            self.free.append(len(engine.pool.free))
            for chunk in engine.batch:
                self.hits.setdefault(self.letters[chunk.job.r], chunk.job.hit)
            steps.append({self.letters[r]: tokens for r, tokens in plan.items()})
            engine.finish(float(len(steps)))


def test_s1_prefill_fills_the_budget_and_a_second_request_takes_what_is_left():
    bench = Bench(max_num_batched_tokens=100, max_num_seqs=4).request("A", 250, 3).request("B", 30, 3)
    assert bench.run({0: "AB"}) == [
        {"A": 100}, {"A": 100}, {"A": 50, "B": 30}, {"A": 1, "B": 1}, {"A": 1, "B": 1},
    ]  # fmt: skip
    assert bench.free == [992, 986, 981, 981, 981]


def test_s2_decodes_come_first_and_chunks_share_the_rest():
    bench = Bench(max_num_batched_tokens=64, max_num_seqs=8)
    bench.request("A", 20, 6).request("B", 150, 3).request("C", 40, 2)
    assert bench.run({0: "A", 1: "BC"}) == [
        {"A": 20}, {"A": 1, "B": 63}, {"A": 1, "B": 63}, {"A": 1, "B": 24, "C": 39},
        {"A": 1, "B": 1, "C": 1}, {"A": 1, "B": 1, "C": 1},
    ]  # fmt: skip


def test_s3_long_prefills_are_cut_at_the_threshold():
    bench = Bench(long_prefill_token_threshold=32, max_num_batched_tokens=100)
    bench.request("A", 200, 2).request("B", 200, 2).request("C", 10, 2)
    assert bench.run({0: "ABC"}) == [
        {"A": 32, "B": 32, "C": 10}, {"A": 32, "B": 32, "C": 1},
        *[{"A": 32, "B": 32}] * 4,
        {"A": 8, "B": 8}, {"A": 1, "B": 1},
    ]  # fmt: skip


def test_s3b_the_threshold_does_not_apply_to_a_lone_request():
    bench = Bench(long_prefill_token_threshold=32, max_num_batched_tokens=100).request("A", 200, 2)
    assert bench.run({0: "A"}) == [{"A": 100}, {"A": 100}, {"A": 1}]


def test_s4_an_identical_prompt_hits_blocks_scheduled_in_the_same_step():
    bench = Bench(max_num_batched_tokens=1000)
    bench.request("A", 64, 2, chain=[1, 2, 3, 4]).request("B", 64, 2, chain=[1, 2, 3, 4])
    assert bench.run({0: "AB"}) == [{"A": 64, "B": 16}, {"A": 1, "B": 1}]
    assert bench.hits["B"] == 48


def test_s4b_a_hit_is_whole_blocks_and_never_the_whole_prompt():
    bench = Bench(max_num_batched_tokens=1000)
    bench.request("A", 65, 1, chain=[1, 2, 3, 4, 5])
    bench.request("B", 64, 1, chain=[1, 2, 3, 4])
    bench.request("C", 65, 1, chain=[1, 2, 3, 4, 5])
    bench.request("D", 80, 1, chain=[1, 2, 3, 4, 9])
    assert bench.run("ABCD", one_at_a_time=True) == [{"A": 65}, {"B": 16}, {"C": 1}, {"D": 16}]
    assert bench.hits == {"A": 0, "B": 48, "C": 64, "D": 64}


def test_s5_the_newest_is_preempted_and_comes_back_with_a_hit():
    bench = Bench(kv_blocks=10, max_num_batched_tokens=1000).request("A", 60, 30).request("B", 60, 30)
    assert bench.run({0: "AB"}) == [
        {"A": 60, "B": 60},
        *[{"A": 1, "B": 1}] * 4,
        *[{"A": 1}] * 25,
        {"B": 17},
        *[{"B": 1}] * 24,
    ]  # fmt: skip
    assert bench.free == [1] * 5 + [4] * 16 + [3] * 9 + [4] * 16 + [3] * 9


def s6(reserve):
    bench = Bench(kv_blocks=12, max_num_batched_tokens=64, reserve_full_prompt=reserve)
    return bench.request("A", 60, 4).request("B", 150, 2).request("C", 20, 2).run({0: "ABC"})


def test_s6_a_prompt_waits_until_it_fits_whole_and_nobody_overtakes():
    assert s6(reserve=True) == [
        {"A": 60}, {"A": 1}, {"A": 1}, {"A": 1}, {"B": 64}, {"B": 64}, {"B": 22}, {"B": 1}, {"C": 20},
        {"C": 1},
    ]  # fmt: skip


def test_s6b_without_the_reserve_chunks_enter_as_they_fit_and_are_preempted():
    assert s6(reserve=False) == [
        {"A": 60, "B": 4}, {"A": 1, "B": 63}, {"A": 1}, {"A": 1}, {"B": 64}, {"B": 22}, {"B": 1}, {"C": 20},
        {"C": 1},
    ]  # fmt: skip


def test_s7_a_third_request_waits_for_a_free_sequence():
    bench = Bench(max_num_seqs=2, max_num_batched_tokens=1000)
    bench.request("A", 20, 3).request("B", 20, 2).request("C", 20, 2)
    assert bench.run({0: "ABC"}) == [{"A": 20, "B": 20}, {"A": 1, "B": 1}, {"A": 1, "C": 20}, {"C": 1}]


def test_s8_a_turn_hits_the_blocks_that_its_session_filled():
    bench = Bench(max_num_batched_tokens=1000)
    bench.request("0", 32, 17, chain=[1, 2])
    bench.request("1", 59, 5, chain=[1, 2, 3, 4], parent="0")
    bench.request("2", 84, 1, chain=[1, 2, 3, 5, 6, 7], parent="1")
    steps = bench.run("012", one_at_a_time=True)
    assert (steps[17], bench.hits["1"]) == ({"1": 11}, 48)
    assert (steps[22], bench.hits["2"]) == ({"2": 36}, 48)  # 63 tokens of turn 1 have KV: 3 full blocks


def test_s8b_the_last_sampled_token_has_no_kv():
    bench = Bench(max_num_batched_tokens=1000)
    bench.request("0", 30, 18, chain=[1, 2]).request("1", 58, 1, chain=[1, 3, 4, 5], parent="0")
    steps = bench.run("01", one_at_a_time=True)
    assert (steps[18], bench.hits["1"]) == ({"1": 26}, 32)  # 47 tokens have KV: 2 full blocks


def test_s9_the_least_recently_used_sequence_loses_its_tail_first():
    x, y, z = ([(name, j) for j in range(n)] for name, n in (("x", 6), ("y", 4), ("z", 4)))
    bench = Bench(kv_blocks=12, max_num_batched_tokens=1000)
    bench.request("X", 96, 1, chain=x).request("Y", 64, 1, chain=y).request("Z", 64, 1, chain=z)
    bench.request("x", 96, 1, chain=x).request("y", 64, 1, chain=y)
    steps = bench.run("XYZxy", one_at_a_time=True)
    assert steps[3:] == [{"x": 48}, {"y": 48}]
    assert (bench.hits["x"], bench.hits["y"]) == (48, 16)


@pytest.mark.parametrize(("watermark", "step_of_b"), [(0.3, 3), (0.0, 0)], ids=["with watermark", "without"])
def test_s10_an_admission_leaves_the_watermark_free(watermark, step_of_b):
    bench = Bench(kv_blocks=20, max_num_batched_tokens=1000, watermark=watermark)
    steps = bench.request("A", 160, 3).request("B", 80, 2).run({0: "AB"})
    assert [step for step, plan in enumerate(steps) if plan.get("B") == 80] == [step_of_b]
    if watermark:
        assert steps == [{"A": 160}, {"A": 1}, {"A": 1}, {"B": 80}, {"B": 1}]


# What follows was not recorded from vLLM: the rules as written, followed by hand.


def test_prefill_runs_in_every_kth_batch_only_while_something_decodes():
    bench = Bench(prefill_schedule_interval=3, max_num_batched_tokens=1000)
    bench.request("A", 20, 6).request("B", 20, 2)
    assert bench.run({0: "A", 1: "B"}) == [
        {"A": 20}, {"A": 1}, {"A": 1}, {"A": 1, "B": 20}, {"A": 1, "B": 1}, {"A": 1},
    ]  # fmt: skip


def test_prefill_does_not_wait_for_its_turn_when_nothing_else_can_run():
    bench = Bench(prefill_schedule_interval=3, max_num_batched_tokens=10).request("A", 25, 1)
    assert bench.run({0: "A"}) == [{"A": 10}, {"A": 10}, {"A": 5}]


def test_priority_decides_who_is_admitted_and_who_is_preempted():
    """8 blocks: Z (worst) cannot grow and leaves; B, which came later, overtakes it and takes its blocks."""
    bench = Bench(kv_blocks=9, max_num_batched_tokens=1000, scheduling_policy="priority")
    bench.request("Z", 64, 3).request("A", 63, 4).request("B", 64, 1)
    for letter, priority in zip("ZAB", (2, 0, 1), strict=True):
        bench.requests[bench.letters.index(letter)].priority = priority
    assert bench.run({0: "ZA", 1: "B"}) == [
        {"A": 63, "Z": 64}, {"A": 1}, {"A": 1}, {"A": 1}, {"B": 64}, {"Z": 65}, {"Z": 1},
    ]  # fmt: skip


def test_an_eviction_forgets_only_its_own_copy():
    pool = Pool(3)
    first, second = pool.take(), pool.take()
    pool.cache(first, "x")
    pool.cache(second, "x")
    assert pool.lookup(["x"]) == [first]  # the one cached first
    pool.release([second, first])  # of a sequence: its last block is reused first
    pool.take()  # never used before
    pool.take()
    assert pool.lookup(["x"]) == [second]
    pool.take()
    assert pool.lookup(["x"]) == []
