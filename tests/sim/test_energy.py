"""Energy of the simulator against its judge, and what must hold of any run."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import reference_sglang
from oracles.comparison import QUIET, WEIGHTS, check_equal, policy_of, run_both, weighted
from oracles.pooling import NETWORKS, ROLES, Dice, answering, with_roles
from oracles.power import lookup, smooth
from oracles.random_clusters import cases, make_case
from oracles.reference_energy import energy
from oracles.reference_simulator import BatchCoefficients, Limits, Request
from oracles.tiering import UNEVEN, scattered, tiers, with_tiers
from oracles.unequal import (
    MeteredCluster,
    MeteredPoolCluster,
    MeteredSglangCluster,
    MeteredTieredCluster,
    MeteredTieredPoolCluster,
    powers,
    unequal_cases,
    with_powers,
)

from agentctl.estimators.power_model import Phases, PowerModel
from agentctl.sim.driver import simulate

PHASES = ("prefill", "decode", "mixed")


def run_metered(case, choose, drawn):
    """(the judge's cluster, its results, the simulator's outcome)."""
    sglang = isinstance(case.limits[0], reference_sglang.Limits)
    judge = (MeteredSglangCluster if sglang else MeteredCluster)(
        case.requests, case.limits, choose, case.trace_block, case.seed, case.concurrency, case.settings
    )
    for engine, pair in zip(judge.engines, drawn, strict=True):
        engine.power = pair[0] if pair else None
    results = judge.run()
    with with_powers(case.cluster, [pair[1] if pair else None for pair in drawn]):
        outcome = simulate(case.workload, case.cluster, policy_of(choose), case.seed, case.concurrency)
    return judge, results, outcome


def check_energy(judge, results, outcome):
    found = energy(judge, results)
    assert outcome.energy_j.tolist() == pytest.approx(found.by_request, rel=1e-9, abs=1e-12, nan_ok=True)
    for engine, of in zip(judge.engines, outcome.energy, strict=True):
        if engine.power is None:
            assert all(math.isnan(value) for value in of)
            continue
        assert of.idle_w == engine.power.idle
        for phase in PHASES:
            joules, seconds = getattr(of, f"{phase}_j"), getattr(of, f"{phase}_s")
            assert joules == pytest.approx(engine.meter.joules[phase], rel=1e-9, abs=1e-12)
            assert seconds == pytest.approx(engine.meter.seconds[phase], rel=1e-9, abs=1e-12)


@settings(QUIET, max_examples=150)
@given(unequal_cases(), WEIGHTS)
def test_engines_that_differ_equal_the_judge_to_the_bit_where_arithmetic_is_exact(case, weights):
    judged, outcome, told, shown = run_both(case, weighted(weights))
    assert shown == told
    check_equal(judged, outcome, relative=0.0)


@settings(QUIET, max_examples=60)
@given(unequal_cases(sglang=True), WEIGHTS)
def test_sglang_engines_that_differ_equal_the_judge(case, weights):
    judged, outcome, told, shown = run_both(case, weighted(weights))
    assert shown == told
    check_equal(judged, outcome, relative=0.0)


@settings(QUIET, max_examples=150)
@given(unequal_cases(exact_times=False), WEIGHTS, st.data())
def test_energy_and_times_under_caps_and_locks_equal_the_judge(case, weights, data):
    drawn = [data.draw(powers(limits.batch_time.b0)) for limits in case.limits]
    judge, results, outcome = run_metered(case, weighted(weights), drawn)
    check_equal(results, outcome, relative=1e-9)
    if any(drawn):
        check_energy(judge, results, outcome)
    else:
        assert outcome.energy_j is None


@settings(QUIET, max_examples=60)
@given(unequal_cases(exact_times=False, sglang=True), WEIGHTS, st.data())
def test_energy_of_sglang_engines_equals_the_judge(case, weights, data):
    drawn = [data.draw(powers(limits.batch_time.b0)) for limits in case.limits]
    judge, results, outcome = run_metered(case, weighted(weights), drawn)
    check_equal(results, outcome, relative=1e-9)
    if any(drawn):
        check_energy(judge, results, outcome)


@settings(QUIET, max_examples=80)
@given(cases(exact_times=False), WEIGHTS, st.data())
def test_energy_with_kv_tiers_equals_the_judge(case, weights, data):
    some = data.draw(st.lists(tiers(case.limits[0].block_tokens, UNEVEN), min_size=1, max_size=2))
    pair = data.draw(powers(case.limits[0].batch_time.b0).filter(bool))
    judge = MeteredTieredCluster(
        case.requests, case.limits, weighted(weights), some, trace_block=case.trace_block, seed=case.seed,
        concurrency=case.concurrency, settings=case.settings,
    )  # fmt: skip
    for engine in judge.engines:
        engine.power = pair[0]
    results, mine = judge.run(), with_tiers(case, some)
    with with_powers(mine.cluster, [pair[1]]):
        chosen = policy_of(weighted(weights))
        outcome = simulate(mine.workload, mine.cluster, chosen, mine.seed, mine.concurrency)
    check_equal(results, outcome, relative=1e-9)
    check_energy(judge, results, outcome)


@settings(QUIET, max_examples=80)
@given(cases(exact_times=False), ROLES, NETWORKS, st.integers(0, 2**32), st.data())
def test_energy_of_hand_overs_equals_the_judge(case, roles, network, seed, data):
    """Both halves of a request draw, each where it is."""
    drawn = [data.draw(powers(case.limits[0].batch_time.b0)) for _ in roles]
    judge = MeteredPoolCluster(
        case.requests, [case.limits[0]] * len(roles), list(roles), Dice(roles, seed), network,
        trace_block=case.trace_block, seed=case.seed, concurrency=case.concurrency, settings=case.settings,
    )  # fmt: skip
    for engine, pair in zip(judge.engines, drawn, strict=True):
        engine.power = pair[0] if pair else None
    results, cluster = judge.run(), with_roles(case, roles, network)
    with with_powers(cluster, [pair[1] if pair else None for pair in drawn]):
        policy = policy_of(answering(Dice(roles, seed)), places=True)
        outcome = simulate(case.workload, cluster, policy, case.seed, case.concurrency)
    check_equal(results, outcome, relative=1e-9)
    if any(drawn):
        check_energy(judge, results, outcome)


@settings(QUIET, max_examples=80)
@given(scattered(UNEVEN), ROLES, NETWORKS, st.integers(0, 2**32), st.data())
def test_energy_of_hand_overs_with_kv_tiers_equals_the_judge(drawn_case, roles, network, seed, data):
    case, some, layers = drawn_case
    drawn = [data.draw(powers(case.limits[0].batch_time.b0).filter(bool)) for _ in roles]
    judge = MeteredTieredPoolCluster(
        case.requests, [case.limits[0]] * len(roles), list(roles), Dice(roles, seed), network,
        trace_block=case.trace_block, seed=case.seed, settings=case.settings, tiers=some, layers=layers,
    )  # fmt: skip
    for engine, pair in zip(judge.engines, drawn, strict=True):
        engine.power = pair[0]
    results, cluster = judge.run(), with_roles(with_tiers(case, some, layers), roles, network)
    with with_powers(cluster, [pair[1] for pair in drawn]):
        policy = policy_of(answering(Dice(roles, seed)), places=True)
        outcome = simulate(case.workload, cluster, policy, case.seed)
    check_equal(results, outcome, relative=1e-9)
    check_energy(judge, results, outcome)


SMOOTH = smooth(76, 224, 220, weights_s=5e-3)
MODEL = PowerModel("fitted", "", 76, 5e-3, ((math.inf, 220, 224),), ((math.inf, 220),), 224)
LONG = [Request(100, 2000, session=0), Request(37, 1500, session=1, arrival=0.1), Request(900, 3, session=2)]


@pytest.mark.parametrize(
    "c",
    [
        BatchCoefficients(5e-3, 4e-5, 5e-5, 2e-7, 2e-7),
        BatchCoefficients(5e-3, 4e-5, 5e-5, 2e-7, 2e-7, h0=5.3e-3),  # the host decides the first steps
        BatchCoefficients(5e-3, 4e-5, 0.0, 2e-5, 2e-5),
        BatchCoefficients(5e-3, 4e-5, 5e-2, 1e-12, 1e-12),  # contexts count for nothing
        BatchCoefficients(5e-3, 4e-5, 5e-5, 0.0, 0.0),
        BatchCoefficients(5e-3),
    ],
)
def test_long_runs_of_decodes_are_accounted_for_at_once_like_step_by_step(c):
    limits = [Limits(kv_blocks=1000, batch_time=c)]
    case = make_case(LONG, [], None, limits)
    check_energy(*run_metered(case, weighted({}), [(SMOOTH, MODEL)]))


HINGE = BatchCoefficients(
    5e-3, 4e-5, 5e-5, 2e-6, 2e-6, h0=7.3e-3
)  # in mid-run memory takes over from the host
LAUNCHES = BatchCoefficients(
    5e-3, 1e-3, 1e-3, 2e-9, 2e-9
)  # most of b0: a batch of few decodes never feels a lock
CLOCKS = {"clock_source": "fitted", "clock_exponent": 2.0, "memory_clock_share": 0.5, "least_ratio": 0.1}
JUDGED = {"a": 2.0, "s": 0.5, "f_min": 0.1}
GEMM, READ = [(2, 300.0), (math.inf, 350.0)], [(0.71, 320.0), (0.83, 420.0), (math.inf, 460.0)]


@pytest.mark.parametrize("limit", [{}, {"lock": 0.6}, {"cap": 240.0}, {"cap": 150.0, "lock": 0.9}])
@pytest.mark.parametrize("kind", ["smooth", "table", "phases"])
@pytest.mark.parametrize("c", [HINGE, LAUNCHES])
def test_runs_whose_draw_bends_are_accounted_for_like_step_by_step(c, kind, limit):
    """At the host's end, where the class of the table changes, where a cap begins to bind."""
    judged = {**JUDGED, **limit, "weights_s": 2e-3}
    limits = {"cap_w": limit.get("cap", math.inf), "lock": limit.get("lock", 1.0)}
    if kind == "table":
        power = lookup(76, GEMM, READ, 400.0, **judged)
        sizes = tuple((most, watts - 76, watts - 76) for most, watts in GEMM)
        uses = tuple((most, watts - 76) for most, watts in READ)
        model = PowerModel("fitted", "", 76, 2e-3, sizes, uses, 324.0, **CLOCKS, **limits)
    elif kind == "phases":
        watts = {"prefill": 300.0, "decode": 250.0, "mixed": 280.0}
        power = smooth(76, 0, 0, phases=watts, **judged)
        nothing = ((math.inf, 0.0, 0.0),), ((math.inf, 0.0),), 0.0
        model = PowerModel("measured", "", 76, 2e-3, *nothing, Phases(224, 174, 204), **CLOCKS, **limits)
    else:
        power = smooth(76, 224, 220, **judged)
        model = PowerModel("fitted", "", 76, 2e-3, ((math.inf, 220, 224),), ((math.inf, 220),), 224, None,
                           **CLOCKS, **limits)  # fmt: skip
    requests = [Request(100, 400, session=0), Request(37, 300, session=1), Request(90, 3, session=2)]
    case = make_case(requests, [], None, [Limits(kv_blocks=1000, batch_time=c)])
    judge, results, outcome = run_metered(case, weighted({}), [(power, model)])
    check_equal(results, outcome, relative=1e-9)
    check_energy(judge, results, outcome)


def test_a_run_without_known_power_has_no_energy():
    case = make_case(LONG, [], None, [Limits(kv_blocks=1000)])
    outcome = simulate(case.workload, case.cluster, policy_of(weighted({})))
    assert outcome.energy_j is None and outcome.energy == ()
    assert outcome.table()["energy_j"].null_count == 3


def test_what_requests_and_idle_draw_is_what_the_cluster_draws():
    """By hand: one request alone, a prefill step of 5 ms + 100 x 40 us, then 9 decodes of 5 ms + 50 us."""
    c = BatchCoefficients(5e-3, 4e-5, 5e-5)
    case = make_case([Request(100, 10)], [], None, [Limits(kv_blocks=100, batch_time=c)])
    judge, results, outcome = run_metered(case, weighted({}), [(SMOOTH, MODEL)])
    prefill = 220 * 5e-3 + 224 * 4e-3
    decode = 9 * (220 * 5e-3 + 224 * 4e-5)  # a decode multiplies what a prefill token does: 40 of its 50 us
    assert outcome.energy_j.tolist() == pytest.approx([prefill + decode])
    span = 9e-3 + 9 * 5.05e-3
    assert energy(judge, results).total == pytest.approx(prefill + decode + 76 * span)
    assert np.isclose(outcome.finish_s[0], span)
