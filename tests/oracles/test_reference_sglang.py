"""Sequences of SGLang's scheduler, derived by hand from its source: the judge must agree.

A sequence lists the tokens computed per step. Pages hold one token; prompts are distinct and the pool is
large unless a test says otherwise.
"""

import random

import pytest
from oracles.reference_sglang import Cluster, Engine, Limits, Pool, path
from oracles.reference_simulator import AFTER_END, Job, Names, Request

LARGE = 10_000  # pages


class Bench:
    """One engine driven step by step; requests are letters."""

    def __init__(self, trace_block=1, **limits):
        self.limits = Limits(**{"kv_blocks": LARGE, **limits})
        self.trace_block = trace_block
        self.letters, self.requests, self.hits, self.ratios = [], [], {}, []

    def request(self, letter, prompt, output, chain=(), parent=None):
        self.letters.append(letter)
        number = -1 if parent is None else self.letters.index(parent)
        self.requests.append(Request(prompt, output, chain=tuple(chain), parent=number))
        return self

    def run(self, arrivals, one_at_a_time=False):
        """arrivals: step -> letters that arrive before it, or letters in turn. Returns {letter: tokens}."""
        self.engine = engine = Engine(
            self.limits, Names(self.requests, self.trace_block, self.limits.block_tokens)
        )
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
            self.ratios.append(engine.ratio)
            for chunk in engine.batch:
                self.hits.setdefault(self.letters[chunk.job.r], []).append(chunk.context)
            steps.append({self.letters[r]: tokens for r, tokens in plan.items()})
            engine.finish(float(len(steps)))
            assert_no_page_is_lost(engine)


def assert_no_page_is_lost(engine):
    """Every page is unused, in the tree, or held by one request outside the tree; locks count requests."""
    pool = engine.pool
    pages = list(pool.unused)
    for node in pool.nodes():
        pages += node.pages
        users = [job for job, end in engine.node.items() if set(node.pages) <= set(path(end))]
        assert node.locks == len(users)
    for job in engine.running:
        pages += job.blocks[job.cached :]
        assert path(engine.node[job]) == job.blocks[: job.cached]
    assert sorted(pages) == list(range(pool.usable))


# ------------------------------------------------------------------------------------- the golden sequences


def test_g1_prefill_fills_the_chunk_and_a_second_request_takes_what_is_left():
    bench = Bench(chunked_prefill_size=100).request("A", 250, 3).request("B", 30, 3)
    assert bench.run({0: "AB"}) == [
        {"A": 100}, {"A": 100}, {"A": 50, "B": 30}, {"A": 1, "B": 1}, {"A": 1, "B": 1},
    ]  # fmt: skip


def g2(**limits):
    bench = Bench(chunked_prefill_size=64, **limits)
    return bench.request("A", 20, 6).request("B", 150, 3).request("C", 40, 2).run({0: "A", 1: "BC"})


def test_g2_prefills_run_alone_and_decodes_wait_for_them():
    assert g2() == [
        {"A": 20}, {"B": 64}, {"B": 64}, {"B": 22, "C": 40}, {"A": 1, "B": 1, "C": 1}, {"A": 1, "B": 1},
        {"A": 1}, {"A": 1}, {"A": 1},
    ]  # fmt: skip


def test_g3_with_mixed_chunks_decodes_and_prefills_share_the_batch():
    assert g2(mixed_chunk=True) == [
        {"A": 20}, {"A": 1, "B": 63}, {"A": 1, "B": 63}, {"A": 1, "B": 24, "C": 39},
        {"A": 1, "B": 1, "C": 1}, {"A": 1, "B": 1, "C": 1},
    ]  # fmt: skip


@pytest.mark.parametrize(("page", "computed"), [(1, 1), (16, 16)])
def test_g4_a_hit_is_whole_pages_and_never_the_whole_prompt(page, computed):
    bench = Bench(block_tokens=page).request("A", 64, 1, chain=range(64)).request("B", 64, 1, chain=range(64))
    assert bench.run("AB", one_at_a_time=True) == [{"A": 64}, {"B": computed}]


@pytest.mark.parametrize("page", [1, 16])
def test_g4_identical_prompts_in_one_batch_both_compute(page):
    bench = Bench(block_tokens=page).request("A", 64, 2, chain=range(64)).request("B", 64, 2, chain=range(64))
    assert bench.run({0: "AB"}) == [{"A": 64, "B": 64}, {"A": 1, "B": 1}]
    assert len(bench.engine.pool.unused) == LARGE - 64 // page - (2 if page == 1 else 0)  # one copy stays


def test_g5_the_full_flag_keeps_a_request_out_until_another_leaves():
    bench = Bench(kv_blocks=100).request("A", 30, 40).request("B", 20, 40)
    assert bench.run({0: "AB"}) == [{"A": 30}, *[{"A": 1}] * 39, {"B": 20}, *[{"B": 1}] * 39]


def test_g6_equal_outputs_the_longer_prompt_is_retracted_to_the_end():
    bench = Bench(kv_blocks=200)
    bench.request("A", 20, 100, chain=range(20)).request("B", 24, 85, chain=range(100, 124))
    assert bench.run({0: "A", 1: "B"}) == [
        {"A": 20}, {"B": 24}, *[{"A": 1, "B": 1}] * 78, *[{"A": 1}] * 21, {"B": 79}, *[{"B": 1}] * 5,
    ]  # fmt: skip
    assert bench.ratios[80] == 99 / 101
    assert bench.hits["B"][79] == 24


# ------------------------------------------------------------------------ the rules as written, one by one


def test_the_new_token_ratio_falls_over_600_decode_steps_and_starts_afresh_when_idle():
    bench = Bench().request("A", 10, 702).request("B", 10, 2)
    bench.run("AB", one_at_a_time=True)
    assert bench.ratios[0] == 0.7
    assert bench.ratios[300] == pytest.approx(0.7 * (1 + 0.14) / 2)
    assert bench.ratios[601:702] == pytest.approx([0.098] * 101)
    assert bench.ratios[702] == pytest.approx(0.098)  # B came the moment A ended: there was no idle look
    later = Bench(kv_blocks=100).request("A", 30, 40).request("B", 20, 40)
    later.run({0: "AB"})
    assert later.ratios[39] < 0.7 == later.ratios[40]  # B was kept out: the engine looked and found nothing


def test_a_leaver_is_noticed_one_decode_step_later():
    """C (36 < 40 - 0.7 * 9 is false) waits for A. A ends in step 1; 2 still decodes; 3 admits C."""
    bench = Bench(kv_blocks=100).request("A", 40, 2).request("B", 20, 9).request("C", 30, 5)
    assert bench.run({0: "ABC"}) == [
        {"A": 40, "B": 20}, {"A": 1, "B": 1}, {"B": 1}, {"C": 30}, *[{"B": 1, "C": 1}] * 4, *[{"B": 1}] * 2,
    ]  # fmt: skip


def test_ignore_eos_reserves_all_of_the_output():
    """B needs 66 < 180 - 0.7 * 159 = 68.7; with the whole output reserved 66 < 21 is false."""
    for ignore, second in ((False, {"B": 60}), (True, {"A": 1})):
        bench = Bench(kv_blocks=200, ignore_eos=ignore).request("A", 20, 160).request("B", 60, 5)
        assert bench.run({0: "A", 1: "B"})[1] == second


def test_a_prompt_is_cut_at_a_page_and_budgets_are_charged_in_whole_pages():
    bench = Bench(block_tokens=16, chunked_prefill_size=64).request("A", 20, 1).request("B", 60, 1)
    assert bench.run({0: "AB"}) == [{"A": 20, "B": 32}, {"B": 28}]
    bench = Bench(block_tokens=16, chunked_prefill_size=64)
    bench.request("A", 20, 1).request("B", 20, 1).request("C", 20, 1)
    assert bench.run({0: "ABC"}) == [{"A": 20, "B": 20}, {"C": 20}]
    bench = Bench(block_tokens=16, chunked_prefill_size=64, mixed_chunk=True)
    bench.request("A", 20, 3).request("B", 100, 1)
    assert bench.run({0: "A", 1: "B"}) == [{"A": 20}, {"B": 48, "A": 1}, {"B": 52, "A": 1}]


@pytest.mark.parametrize(("output", "first"), [(19, {"A": 10}), (18, {"A": 10, "B": 60})])
def test_an_admission_must_leave_something(output, first):
    """A is charged 10 + 9 + 1 of 100; B 60 + output + 1 must be less than the other 80."""
    bench = Bench(kv_blocks=100).request("A", 10, 9).request("B", 60, output)
    assert bench.run({0: "AB"})[0] == first


def test_an_admission_looks_4096_output_tokens_ahead():
    requests = [Request(10, 9000), Request(10, 5000)]
    engine = Engine(Limits(LARGE), Names(requests, None, 1))
    for r, request in enumerate(requests):
        engine.enqueue(Job(r, request, 0.0, 0))
    assert engine.schedule() == {0: 10, 1: 10}


def test_the_full_flag_is_lost_with_an_empty_running_set():
    """B: 36 < 100 - 71 is false beside A in one batch; one step later 36 < 70 - 0.7 * 39 = 42.7."""
    bench = Bench(kv_blocks=100).request("A", 30, 40).request("B", 10, 25)
    assert bench.run({0: "AB"})[:2] == [{"A": 30}, {"B": 10}]


def test_one_that_ends_with_its_prompt_clears_the_full_flag():
    """C: 32 < 80 - 6.3 - 42 is false beside B; B ends at once and C enters in the next step."""
    bench = Bench(kv_blocks=100).request("A", 20, 10).request("B", 40, 1).request("C", 26, 5)
    assert bench.run({0: "A", 1: "BC"})[:3] == [{"A": 20}, {"B": 40}, {"C": 26}]


def test_a_retracted_request_waits_behind_those_that_wait():
    bench = Bench(kv_blocks=200).request("A", 20, 100).request("B", 24, 85).request("C", 30, 10)
    assert bench.run({0: "A", 1: "B", 70: "C"})[79:82] == [{"A": 1, "B": 1}, {"A": 1}, {"C": 30}]


def test_the_input_budget_ends_a_batch():
    bench = Bench(max_prefill_tokens=50).request("A", 30, 1).request("B", 30, 1).request("C", 30, 1)
    assert bench.run({0: "ABC"}) == [{"A": 30, "B": 30}, {"C": 30}]


def test_nobody_overtakes_a_request_that_does_not_fit():
    bench = Bench(kv_blocks=100).request("A", 50, 3).request("B", 60, 3).request("C", 5, 3)
    assert bench.run({0: "ABC"}) == [
        {"A": 50}, {"A": 1}, {"A": 1}, {"B": 60, "C": 5}, {"B": 1, "C": 1}, {"B": 1, "C": 1},
    ]  # fmt: skip


def test_a_turn_hits_what_its_session_computed_less_the_last_token():
    bench = Bench().request("0", 30, 18, chain=range(30))
    bench.request("1", 58, 1, chain=[*range(30), *range(100, 128)], parent="0")
    assert bench.run("01", one_at_a_time=True)[18] == {"1": 11}  # 47 tokens of turn 0 have KV


def test_the_leaf_used_least_recently_is_evicted_whole():
    """X and Y share 4 of 12 pages. One is wanted: X's end, the older leaf, goes with all its 4."""
    pool = Pool(12)
    x, y, z = (list(range(4)) + [f"{k}{j}" for j in range(4)] for k in "xyz")
    pool.insert(x, pool.take(8))
    node = pool.match(y)
    assert len(path(node)) == 4
    pool.insert(y, path(node) + pool.take(4))
    assert not pool.unused
    assert pool.make_room(1)
    assert len(pool.unused) == 4
    assert (len(path(pool.match(x))), len(path(pool.match(y)))) == (4, 8)
    pool.lock(pool.match(y))
    assert not pool.make_room(5)  # the rest is in use
    assert len(path(pool.match(z))) == 4


@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_crowded_cluster_serves_everyone_and_loses_no_page(page, mixed, seed):
    rng = random.Random(seed)
    requests = []
    for session in range(12):
        chain = [(rng.randrange(3), j) for j in range(rng.randrange(2, 5))]
        arrival = rng.random() * 5
        for turn in range(3):
            last = len(requests) - 1 if turn else -1
            prompt = len(chain) * 4
            output = rng.randrange(1, 25)
            requests.append(
                Request(
                    prompt, output, arrival, tuple(chain), last, session,
                    AFTER_END if turn else 0, rng.random(), (last,) if turn else (),
                )
            )  # fmt: skip
            chain = chain + [(session, turn, j) for j in range(output // 4 + 1 + rng.randrange(3))]
    limits = Limits(
        160 // page, page, chunked_prefill_size=32, mixed_chunk=mixed, max_num_seqs=6, conservativeness=0.1
    )
    cluster = Cluster(requests, [limits] * 2, lambda view, r: r % 2, trace_block=4)
    results = cluster.run()
    assert {result.status for result in results} == {"done"}
    assert sum(result.hit for result in results) > 0
    for request, result in zip(requests, results, strict=True):
        assert result.arrival <= result.scheduled < result.first_token <= result.finish
        assert result.hit < request.prompt
    for engine in cluster.engines:
        assert not engine.running and not engine.node
        assert len(engine.pool.free) == engine.pool.usable
        assert_no_page_is_lost(engine)
