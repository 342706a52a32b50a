"""The estimators on a noisy engine whose coefficients are hidden, and the averages by hand."""

from dataclasses import replace

import numpy as np
import pytest
from oracles.estimating import by_load, calibrate, estimates, judged
from oracles.random_clusters import cluster_of
from oracles.reference_simulator import Limits
from oracles.served import chats, serve, sessions
from oracles.stepping import HIDDEN

from agentctl.errors import InputError, UsageError
from agentctl.estimators.batch_terms import HINGE, values_of
from agentctl.estimators.lps import Lps
from agentctl.estimators.sfs import Probe
from agentctl.estimators.sfs_snapshot import SeenRequest, Snapshot
from agentctl.estimators.steps import steps_of
from agentctl.estimators.ttft import ESTIMATORS, LONGEST_S, Averages, EventRate, measure_averages

LIMITS = Limits(20_000, 16, 2048, 256, prefix_caching=False)
OTHERS = sorted(set(ESTIMATORS) - {"sfs"})


@pytest.fixture(scope="module")
def calibrated():
    return calibrate(serve(chats(400, (2, 5, 8), seed=1), LIMITS, HIDDEN, seed=2))


@pytest.fixture(scope="module")
def day():
    """Two to five requests per second: the 8B engine is a fifth to a half busy."""
    return serve(chats(400, (2, 5), seed=11), LIMITS, HIDDEN, seed=12)


def test_the_calibration_run_gives_the_hidden_coefficients_within_five_percent(calibrated):
    found, truth = values_of(calibrated[0], HINGE), values_of(HIDDEN, HINGE)
    assert all(found[name] == pytest.approx(truth[name], rel=0.05) for name in HINGE)


def test_sfs_errs_by_five_percent_at_most_and_every_other_estimator_by_four_times_that(calibrated, day):
    found = judged(day, estimates(day, *calibrated))
    assert found["sfs"].mape <= 0.05 and found["sfs"].median_ape <= 0.03
    for name in OTHERS:
        assert found[name].mape >= 4 * found["sfs"].mape, name


def test_sfs_is_never_far_off_in_any_quarter_of_the_load_and_too_low_since_it_foresees_nobody(
    calibrated, day
):
    bins = by_load(day, estimates(day, *calibrated)["sfs"])
    assert all(one.mape <= 0.06 for one in bins)
    assert all(-0.06 <= one.bias <= 0.0 for one in bins)


@pytest.mark.parametrize("factor", [0.5, 1.5])
def test_outputs_that_are_half_or_half_as_long_again_matter_little_while_nobody_queues(
    calibrated, day, factor
):
    found = judged(day, estimates(day, *calibrated, output_factor=factor))
    assert found["sfs"].mape <= 0.05
    for name in OTHERS:
        assert found[name].mape >= 4 * found["sfs"].mape, name


def test_outputs_matter_where_requests_queue_for_the_places_of_others(calibrated):
    """16 places: who waits, waits for others to end. Known outputs are as good as ever."""
    run = serve(chats(300, (2, 8), seed=11), replace(LIMITS, max_num_seqs=16), HIDDEN, seed=12)
    c, averages = calibrated
    waits = np.array([len(snapshot.running) == 16 for snapshot, _ in run.seen])
    assert waits.sum() >= 30
    wrong = {}
    for factor in (0.5, 1.0, 1.5):
        sfs = estimates(run, c, averages, factor)["sfs"]
        wrong[factor] = (sfs / run.ttft - 1)[waits]
    assert abs(wrong[1.0]).mean() <= 0.05
    assert wrong[0.5].mean() <= -0.2 and wrong[1.5].mean() >= 0.3


def test_with_a_prefix_cache_sfs_errs_by_five_percent_at_most(calibrated):
    requests, block = sessions(40, turns=4, rate=1.2, seed=11)
    run = serve(requests, replace(LIMITS, prefix_caching=True, kv_blocks=8000), HIDDEN, 12, trace_block=block)
    assert np.mean([probe.hit_tokens > 0 for _, probe in run.seen]) > 0.5
    for factor in (0.5, 1.0, 1.5):
        found = judged(run, estimates(run, *calibrated, output_factor=factor))
        assert found["sfs"].mape <= 0.05
        for name in OTHERS:
            assert found[name].mape >= 4 * found["sfs"].mape, name


def test_without_noise_or_later_arrivals_sfs_is_exact():
    """Ten crowds on an otherwise empty engine; of each the last request is estimated."""
    requests = chats(60, (400,), seed=3)
    for number, request in enumerate(requests):
        request.arrival += 100.0 * (number // 6)
    run = serve(requests, LIMITS, HIDDEN, seed=0, noise=0.0, stalls=0.0)
    sfs = ESTIMATORS["sfs"]
    for number in range(5, 60, 6):
        snapshot, probe = run.seen[number]
        assert sfs(snapshot, probe, snapshot.taken_s, Averages(1, 1, 1)) == pytest.approx(
            run.ttft[number], rel=1e-9
        )


# --- by hand

POOL = cluster_of([Limits(1000)]).pools[0]
RUNNING = (
    SeenRequest(100, 50, emitted_tokens=10, computed_tokens=109),
    SeenRequest(300, 20, computed_tokens=100),
)
BUSY = Snapshot(POOL, 10.0, 900, RUNNING, (SeenRequest(400, 30, hit_tokens=160),))
PROBE = Probe(prompt_tokens=600, output_tokens=40, hit_tokens=96)
KNOWN = Averages(
    prefill_tokens_per_s=1000, decode_tokens_per_s=500, decode_step_s=0.01, arrivals_per_s=0.5,
    completions_per_s=1.0, queue=Lps(1.0),
)  # fmt: skip


def test_throughput_counts_the_prefill_that_is_left():
    left = 0 + 200 + 240 + 504
    assert ESTIMATORS["throughput"](BUSY, PROBE, 10.0, KNOWN) == pytest.approx(left / 1000 + 0.01)


def test_score_proxy_counts_all_tokens_to_come_too():
    left = (50 - 10) + (20 - 1) + (30 - 1)  # a first token comes with the prefill
    expected = ESTIMATORS["throughput"](BUSY, PROBE, 10.0, KNOWN) + left / 500
    assert ESTIMATORS["score-proxy"](BUSY, PROBE, 10.0, KNOWN) == pytest.approx(expected)


def test_lps_waits_as_its_queue_does_and_without_arrivals_not_at_all():
    one_place = replace(KNOWN, queue=Lps(1.0, limit=1))
    assert ESTIMATORS["lps"](BUSY, PROBE, 10.0, one_place) == pytest.approx(1.0 + 0.504)  # M/M/1, rho 0.5
    assert ESTIMATORS["lps"](BUSY, PROBE, 10.0, replace(one_place, arrivals_per_s=0.0)) == pytest.approx(
        0.504
    )
    overloaded = replace(one_place, arrivals_per_s=2.0)
    assert ESTIMATORS["lps"](BUSY, PROBE, 10.0, overloaded) == pytest.approx(LONGEST_S + 0.504)
    with pytest.raises(UsageError):
        ESTIMATORS["lps"](BUSY, PROBE, 10.0, replace(KNOWN, queue=None))


def test_lps_paper_takes_the_requests_that_run_now_and_gives_up_where_arrivals_lead():
    assert ESTIMATORS["lps-paper"](BUSY, PROBE, 10.0, KNOWN) == pytest.approx(0.5**2 / 0.5 + 0.504)
    ahead = replace(KNOWN, arrivals_per_s=1.0)
    assert ESTIMATORS["lps-paper"](BUSY, PROBE, 10.0, ahead) == pytest.approx(LONGEST_S + 0.504)


def test_rates_move_by_a_fifth_of_each_window():
    rate = EventRate(first=4.0)
    for at in (0.1, 0.2, 0.9):
        rate.add(at)
    assert rate.at(0.95) == 4.0  # the window has not ended
    assert rate.at(1.0) == pytest.approx(0.8 * 4.0 + 0.2 * 3.0)
    assert rate.at(3.5) == pytest.approx(3.8 * 0.8**2)  # two windows without any


def test_averages_come_from_prefill_and_from_batches_of_decodes_only():
    steps = steps_of(
        3, seconds=[0.1, 0.02, 0.04], time_s=[0, 1, 2], prefill_tokens=[500.0, 0, 0], n_prefill=[1.0, 0, 0],
        n_decode=[0.0, 4, 8],
    )  # fmt: skip
    found = measure_averages(np.array([500.0, 300.0]), np.array([0.1, 0.1]), steps)
    assert found.prefill_tokens_per_s == pytest.approx(4000)
    assert (found.decode_tokens_per_s, found.decode_step_s) == pytest.approx((200, 0.03))
    with pytest.raises(InputError):
        measure_averages(np.array([0.0]), np.array([0.1]), steps)
