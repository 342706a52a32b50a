"""SGLang's scheduler in kernels: the golden sequences step by step, and the judge on every request."""

import math

import numpy as np
import pytest
from hypothesis import given, reject, settings
from oracles import crowded
from oracles.comparison import QUIET, WEIGHTS, check_equal, policy_of, run_both, weighted
from oracles.kernels import from_python
from oracles.random_clusters import cases, cluster_of, give_chains, make_case, workload_of
from oracles.reference_sglang import Limits
from oracles.reference_simulator import BatchCoefficients, Request

from agentctl.errors import AgentctlError
from agentctl.sim import sglang
from agentctl.sim.content import compile_content
from agentctl.sim.driver import simulate
from agentctl.sim.make_state import make_limits, make_state
from agentctl.sim.queue import enqueue
from agentctl.sim.steps import cut

ENQUEUE, CUT = from_python(enqueue), from_python(cut)
START, FINISH, SETTLE = map(from_python, (sglang.start, sglang.finish, sglang.settle))


class Bench:
    """One engine whose batches take 1 s, driven by its kernels; requests are letters."""

    def __init__(self, requests, **limits):
        """requests: letter -> (prompt, output) with a prompt of its own, or (prompt, output, chain)."""
        self.letters = list(requests)
        asked, first = [], 1
        for prompt, output, *chain in requests.values():
            asked.append(Request(prompt, output, chain=tuple(*chain) or tuple(range(first, first + prompt))))
            first += prompt
        limits = Limits(**{"kv_blocks": 10_000, "batch_time": BatchCoefficients(b0=1.0), **limits})
        workload = workload_of(asked, 1)
        content = compile_content(workload, limits.block_tokens)
        self.s = make_state(make_limits(cluster_of([limits])), content, workload.requests)
        self.engine = self.s.engines[0]
        self.ratios = {}  # after the plan that begins at a step

    def run(self, arrivals):
        """arrivals: step -> letters that arrive before it. Returns [{letter: tokens}] by step."""
        s, engine, steps = self.s, self.engine, []
        while True:
            self._arrive(arrivals.get(len(steps), ""))
            if engine.n_running or engine.n_waiting:
                START(s, 0, float(len(steps)))
            if s.ends_at[0] == math.inf:
                return steps
            self.ratios[len(steps)] = float(engine.ratio)
            planned = s.planned[0, : engine.n_running].tolist()
            plan = {self.letters[r]: n for r, n in zip(s.running[0].tolist(), planned, strict=False) if n}
            for step in range(len(steps) + 1, int(s.ends_at[0])):
                if step in arrivals:  # in the middle of a run
                    SETTLE(s, 0, float(step))
                    CUT(s, 0)
                    break
            steps += [plan] * max(int(engine.run_steps), 1)
            FINISH(s, 0, float(s.ends_at[0]))

    def _arrive(self, letters):
        for letter in letters:
            ENQUEUE(self.s, 0, self.letters.index(letter), 0)


def test_g1_prefill_fills_the_chunk_and_a_second_request_takes_what_is_left():
    bench = Bench({"A": (250, 3), "B": (30, 3)}, chunked_prefill_size=100)
    assert bench.run({0: "AB"}) == [
        {"A": 100}, {"A": 100}, {"A": 50, "B": 30}, {"A": 1, "B": 1}, {"A": 1, "B": 1},
    ]  # fmt: skip


def g2(**limits):
    requests = {"A": (20, 6), "B": (150, 3), "C": (40, 2)}
    return Bench(requests, chunked_prefill_size=64, **limits).run({0: "A", 1: "BC"})


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
    bench = Bench({"A": (64, 1, range(1, 65)), "B": (64, 1, range(1, 65))}, block_tokens=page)
    assert bench.run({0: "A", 1: "B"}) == [{"A": 64}, {"B": computed}]


@pytest.mark.parametrize("page", [1, 16])
def test_g4_identical_prompts_in_one_batch_both_compute(page):
    bench = Bench({"A": (64, 2, range(1, 65)), "B": (64, 2, range(1, 65))}, block_tokens=page)
    assert bench.run({0: "AB"}) == [{"A": 64, "B": 64}, {"A": 1, "B": 1}]
    assert bench.engine.n_unused == 10_000 - 64 // page - (2 if page == 1 else 0)  # one copy stays


def test_g5_the_full_flag_keeps_a_request_out_until_another_leaves():
    bench = Bench({"A": (30, 40), "B": (20, 40)}, kv_blocks=100)
    assert bench.run({0: "AB"}) == [{"A": 30}, *[{"A": 1}] * 39, {"B": 20}, *[{"B": 1}] * 39]


def test_g6_equal_outputs_the_longer_prompt_is_retracted_to_the_end():
    bench = Bench({"A": (20, 100), "B": (24, 85)}, kv_blocks=200)
    assert bench.run({0: "A", 1: "B"}) == [
        {"A": 20}, {"B": 24}, *[{"A": 1, "B": 1}] * 78, *[{"A": 1}] * 21, {"B": 79}, *[{"B": 1}] * 5,
    ]  # fmt: skip
    assert bench.ratios[80] == 99 / 101


def test_the_new_token_ratio_falls_with_every_decode_also_inside_a_run():
    bench = Bench({"A": (10, 702), "B": (10, 1), "C": (10, 1)})
    bench.run({0: "A", 300: "B", 500: "C"})
    fall = 0.7 * (1 - 0.14) / 600
    assert bench.ratios[0] == 0.7
    assert bench.ratios[301] == pytest.approx(0.7 - 300 * fall)  # B's prompt was no decode
    assert bench.ratios[501] == pytest.approx(0.7 - 499 * fall)
    assert bench.engine.ratio == pytest.approx(0.7 * 0.14)


def run_both_or_none(case, weights):
    """Where the judge says that SGLang would stop, the simulator refuses too."""
    try:
        return run_both(case, weighted(weights))
    except RuntimeError:
        with pytest.raises(AgentctlError, match="no KV in the middle of a batch"):
            simulate(case.workload, case.cluster, policy_of(weighted(weights)), concurrency=case.concurrency)
        return reject()


def test_a_retracted_request_waits_behind_those_that_wait():
    bench = Bench({"A": (20, 100), "B": (24, 85), "C": (30, 10)}, kv_blocks=200)
    assert bench.run({0: "A", 1: "B", 70: "C"})[79:82] == [{"A": 1, "B": 1}, {"A": 1}, {"C": 30}]


def test_a_prompt_that_goes_on_clears_the_full_flag():
    """In step 2 C: 24 + 40 + 1 < 83 - 0.7 * 9 - 17 is false. In step 3 it finds 16 more of B's prompt, and B
    needs less: 8 + 40 + 1 < 67 - 6.3 - 3."""
    requests = {"A": (1, 10, [41]), "B": (33, 1, range(1, 34)), "C": (40, 40, range(1, 41))}
    bench = Bench(requests, kv_blocks=100, chunked_prefill_size=16)
    assert bench.run({0: "A", 1: "BC"})[:4] == [{"A": 1}, {"B": 16}, {"B": 16}, {"B": 1, "C": 8}]


def test_a_batch_that_takes_all_there_is_fills_the_engine_though_nobody_waits():
    """B passes (33 + 44 + 16 < 96 - 0.4) and is charged whole pages, 48 + 16 + 44: C is not tried in step 5.
    A has left in step 4, which is noticed in step 5."""
    requests = {"A": (22, 4), "B": (33, 44), "C": (10, 23)}
    bench = Bench(requests, kv_blocks=8, block_tokens=16, conservativeness=0.3)
    assert bench.run({0: "A", 2: "B", 5: "C"})[4:8] == [
        {"A": 1, "B": 1}, {"B": 1}, {"C": 10}, {"B": 1, "C": 1},
    ]  # fmt: skip


def test_a_retraction_makes_room_for_20_steps():
    """The last request is retracted and its prompt, which nobody runs on, is evicted."""
    sizes = [(27, 44, 1.5, 0), (40, 12, 3.0, 22), (11, 15, 3.5, 0), (1, 42, 6.5, 0), (71, 35, 10.5, 49)]
    requests = [Request(n, out, at, session=r) for r, (n, out, at, _) in enumerate(sizes)]
    prompts = [
        (*range(shared), *range(1000 * r + 1000, 1000 * r + 1000 + n - shared))
        for r, (n, _, _, shared) in enumerate(sizes)
    ]
    give_chains(requests, prompts, 1, hashes_tails=True)
    limits = Limits(169, chunked_prefill_size=16, conservativeness=0.1, batch_time=BatchCoefficients(b0=1.0))
    judged, outcome, told, shown = run_both(make_case(requests, [], 1, [limits]), weighted({}))
    assert shown == told
    check_equal(judged, outcome, relative=0.0)
    assert outcome.preemptions.tolist() == [0, 0, 0, 0, 1]
    assert outcome.finish_s[4] == 77.5  # a whole prefill batch more than if its prompt had stayed


@settings(QUIET, max_examples=300)
@given(cases(sglang=True), WEIGHTS)
def test_sglang_equals_the_judge_to_the_bit_where_arithmetic_is_exact(case, weights):
    judged, outcome, told, shown = run_both_or_none(case, weights)
    assert shown == told
    check_equal(judged, outcome, relative=0.0)


@settings(QUIET, max_examples=100)
@given(cases(exact_times=False, sglang=True), WEIGHTS)
def test_sglang_equals_the_judge_for_arbitrary_times(case, weights):
    judged, outcome, _, _ = run_both_or_none(case, weights)
    check_equal(judged, outcome, relative=1e-9)


@pytest.mark.parametrize("seed", range(40))
def test_crowded_engines_equal_the_judge(seed):
    """120 requests that share prompts and answers on pools that hold a few of them."""
    rng = np.random.default_rng(seed)
    page = int(rng.choice([1, 2, 4, 16]))
    limits = Limits(
        int(rng.integers(500, 1400)) // page,
        page,
        chunked_prefill_size=[None, 64, 128, 8192][rng.integers(4)],
        max_prefill_tokens=int(rng.choice([100, 16384])),
        mixed_chunk=bool(rng.integers(2)),
        conservativeness=float(rng.choice([0.02, 0.1, rng.uniform(0.02, 1.5)])),
        ignore_eos=bool(rng.random() < 0.2),
        max_num_seqs=int(rng.choice([6, 12, 64])),
        batch_time=crowded.CONTEXT_BOUND,
    )
    trace_block = int(rng.choice([4, 8, 16]))
    requests, tokens = crowded.sessions(trace_block, seed)
    for request in requests:
        request.arrival += float(rng.random()) * 1e-3  # no ties
    case = make_case(requests, tokens, trace_block, [limits] * int(rng.integers(1, 3)))
    judged, outcome, told, shown = run_both(case, weighted({"waiting_requests": 8, "hit_tokens": -1}))
    check_equal(judged, outcome, relative=1e-9)
    no_times = {"now": 0, "published_at": 0, "step_ends_at": 0}  # they differ in the last bits
    assert [(r, view | no_times) for r, view in shown] == [(r, view | no_times) for r, view in told]


def test_where_sglang_would_stop_the_run_is_refused():
    """Five decodes and one token of F's prompt a batch: they need 6 pages each time, and F is never weighed
    again once its prompt has begun."""
    requests = [Request(1, 40, session=r) for r in range(5)] + [Request(30, 1, arrival=0.5, session=5)]
    limits = Limits(120, chunked_prefill_size=6, mixed_chunk=True, conservativeness=0.01)
    case = make_case(requests, [], None, [limits])
    with pytest.raises(RuntimeError, match="out of KV in the middle of a batch"):
        run_both(case, weighted({}))
    with pytest.raises(AgentctlError, match="no KV in the middle of a batch"):
        simulate(case.workload, case.cluster, policy_of(weighted({})))
