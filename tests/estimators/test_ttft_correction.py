"""Corrections and bounds, on ratios that are known and on those of the noisy engine."""

import math

import numpy as np
import pytest
from oracles.estimating import calibrate, estimates
from oracles.reference_simulator import Limits
from oracles.served import chats, serve
from oracles.stepping import HIDDEN

from agentctl.errors import UsageError
from agentctl.estimators.ttft_correction import FEWEST, MOST, Correction


def taught(ratios):
    correction = Correction()
    for ratio in ratios:
        correction.observe(2.0, 2.0 * ratio)
    return correction


def test_without_an_observation_nothing_is_corrected_or_bound():
    assert Correction().corrected(3.0) == 3.0
    assert Correction().upper(3.0, 0.9) is None
    assert taught([1.0] * (FEWEST - 1)).upper(3.0, 0.9) is None


def test_an_engine_that_became_slower_is_followed():
    assert taught([1.2] * 200).corrected(1.0) == pytest.approx(1.2, rel=1e-4)
    assert taught([1.2] * 10).corrected(1.0) == pytest.approx(1.2 ** (1 - 0.95**10))


def test_one_stall_moves_the_correction_by_seven_percent_at_most():
    assert taught([1000.0]).corrected(1.0) == pytest.approx(4**0.05)


def test_the_bound_is_the_ratio_of_the_rank_that_conformal_prediction_asks_for():
    """Of 200 ratios 1, 2 ... 200 the rank for 90 % is ceil(201 * 0.9) = 181; for 99.9 % there are too few."""
    correction = taught(range(1, 201))
    assert correction.upper(1.0, 0.9) == 181.0
    assert correction.upper(1.0, 0.999) is None


def test_only_the_last_ratios_count():
    assert taught([9.0] * MOST + [1.0] * MOST).upper(1.0, 0.9) == 1.0


@pytest.mark.parametrize("share", [0.8, 0.9, 0.95])
def test_the_bound_holds_for_as_many_as_asked(share):
    ratios = np.exp(0.3 * np.random.default_rng(3).standard_normal(6000))
    correction, kept = taught(ratios[:1000]), []
    for ratio in ratios[1000:]:
        kept.append(ratio <= correction.upper(1.0, share))
        correction.observe(1.0, ratio)
    assert np.mean(kept) == pytest.approx(share, abs=0.015)


def test_nonsense_is_refused_and_the_infinite_teaches_nothing():
    correction = Correction()
    correction.observe(math.inf, 2.0)
    assert correction == Correction()
    for estimate, actual in ((0.0, 1.0), (1.0, 0.0), (1.0, math.nan), (math.nan, 1.0), (1.0, math.inf)):
        with pytest.raises(UsageError):
            correction.observe(estimate, actual)
    with pytest.raises(UsageError):
        correction.upper(1.0, 1.0)


def test_the_errors_of_an_engine_a_fifth_slower_than_calibrated_fall_to_a_third():
    """After thirty requests SFS errs by 7 % instead of 21 %; nine in ten stay below their bound."""
    limits = Limits(20_000, 16, 2048, 256, prefix_caching=False)
    c, averages = calibrate(serve(chats(400, (2, 5, 8), seed=1), limits, HIDDEN, seed=2))
    slower = HIDDEN._replace(**{n: 1.2 * getattr(HIDDEN, n) for n in HIDDEN._fields if n != "model"})
    run = serve(chats(600, (5,), seed=11), limits, slower, seed=12)
    sfs, correction, corrected, kept = estimates(run, c, averages)["sfs"], Correction(), [], []
    for estimate, actual in zip(sfs, run.ttft, strict=True):
        corrected.append(correction.corrected(estimate))
        if (bound := correction.upper(estimate, 0.9)) is not None:
            kept.append(actual <= bound)
        correction.observe(estimate, actual)
    wrong, right = (np.abs(made / run.ttft - 1)[30:].mean() for made in (sfs, np.array(corrected)))
    assert wrong >= 0.18 and right <= 0.07
    assert 0.86 <= np.mean(kept) <= 0.94
