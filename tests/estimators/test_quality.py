"""Predicted scores: a planted truth is found, noise is not taken for one, and no session predicts itself."""

from __future__ import annotations

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from agentctl.errors import InputError
from agentctl.estimators.held_out import clustered_error, folds_of, held_out
from agentctl.estimators.quality import Pairs, calibration_error, quality_of, reliability

FOLDS = 4
UNKNOWN = np.full((3, 2), np.nan)
BASE = np.array([[0.3, 0.6], [0.5, 0.8], [0.7, 0.75]])  # [task, model]


def world(effect: float, seed: int = 0, n: int = 900) -> tuple[Pairs, np.ndarray, np.ndarray]:
    """(pairs, labels 0 or 1, their true probability): one feature moves model 0, nothing moves model 1."""
    rng = np.random.default_rng(seed)
    request = np.repeat(np.arange(n), 2)
    model = np.tile([0, 1], n)
    task, x = rng.integers(0, 3, n)[request], rng.normal(size=n)[request]
    truth = BASE[task, model] + effect * np.tanh(1.5 * x) * (model == 0)
    pairs = Pairs(rng.integers(0, n // 5, n)[request], task, model, x[:, None])
    return pairs, (rng.random(2 * n) < truth).astype(float), truth


def learned(pairs: Pairs, score: np.ndarray, given: np.ndarray = UNKNOWN):
    fold = folds_of(pairs.session, np.isfinite(score), FOLDS, seed=0)
    return quality_of(pairs, score, given, fold, FOLDS)


@pytest.fixture(scope="module")
def planted():
    pairs, score, truth = world(effect=0.25, n=1500)
    return pairs, score, truth, learned(pairs, score)


def off(predicted: np.ndarray, truth: np.ndarray) -> float:
    return float(np.sqrt(np.mean((predicted - truth) ** 2)))


def test_a_planted_truth_is_recovered_where_there_is_one(planted):
    pairs, _, truth, found = planted
    moved = pairs.model == 0
    assert off(found.accuracy[moved], truth[moved]) < 0.5 * off(found.baseline[moved], truth[moved])
    assert off(found.accuracy[~moved], truth[~moved]) < 0.05
    assert found.weight[0] > 0.6 and found.weight[1] < 0.3


def test_predictions_are_calibrated_shares(planted):
    pairs, score, _truth, found = planted
    assert ((found.accuracy >= 0) & (found.accuracy <= 1)).all()
    assert (found.ground == 2).all()
    bins = reliability(found.accuracy, score, pairs.session)
    assert sum(one.n for one in bins) == score.size
    assert sum(abs(one.scored - one.predicted) < 3 * one.error for one in bins) == len(bins)
    assert calibration_error(bins) < 0.04


def test_the_error_tells_how_far_the_mean_truth_of_alike_pairs_is_off(planted):
    _pairs, _, truth, found = planted
    misses = []
    for size in np.unique(found.error):
        alike = found.error == size
        misses.append(abs((found.accuracy - truth)[alike].mean()) / size)
    assert max(misses) < 3 and np.mean(misses) < 1


@pytest.mark.parametrize("seed", [1, 2])
def test_noise_gives_the_means_of_tasks_and_nothing_that_claims_to_be_better(seed):
    pairs, score, truth = world(effect=0.0, seed=seed)
    found = learned(pairs, score)
    assert off(found.accuracy, found.baseline) < 0.012
    assert off(found.accuracy, truth) < 1.1 * off(found.baseline, truth) < 0.04
    better = (score - found.baseline) ** 2 - (score - found.accuracy) ** 2
    assert better.mean() <= 2 * clustered_error(better, pairs.session)


def test_no_session_is_both_learned_from_and_predicted():
    rng = np.random.default_rng(0)
    session, known = rng.integers(0, 40, 300), rng.random(300) < 0.7
    fold = folds_of(session, known, FOLDS, seed=3)
    assert all(np.unique(fold[session == s]).size == 1 for s in np.unique(session))
    assert np.ptp(np.bincount(fold[known], minlength=FOLDS)) <= np.bincount(session).max()
    seen = []

    def fit(rows):
        assert known[rows].all()

        def predict(others):
            assert not set(session[rows]) & set(session[others])
            seen.append((set(fold[rows]), set(fold[others])))
            return np.full((others.size, 1), float(len(set(fold[rows]))))

        return predict

    found = held_out(fit, fold, known, FOLDS)
    assert (found.outer == FOLDS - 1).all()  # learned from all folds but its own
    for f in range(FOLDS):  # what corrects fold f: of other folds, without their own and f
        others = known & (fold != f)
        assert (found.inner[f, others] == FOLDS - 2).all() and np.isnan(found.inner[f, ~others]).all()
    assert len(seen) == FOLDS + FOLDS * (FOLDS - 1)


def test_labels_of_a_session_do_not_touch_its_own_predictions(planted):
    pairs, score, _, found = planted
    own = pairs.session == pairs.session[0]
    again = learned(pairs, np.where(own, 1 - score, score))
    assert (again.accuracy[own] == found.accuracy[own]).all()
    assert (again.accuracy[~own] != found.accuracy[~own]).any()


def test_predictions_are_the_same_to_the_bit_on_any_number_of_threads(planted):
    pairs, score, _, found = planted
    with threadpool_limits(limits=2):
        again = learned(pairs, score)
    assert again.accuracy.tobytes() == found.accuracy.tobytes()


def test_means_of_tasks_alone_are_taken_as_they_are_and_unknown_stays_unknown():
    pairs = Pairs(np.arange(4), np.array([0, 1, -1, 1]), np.array([0, 0, 0, 1]), np.zeros((4, 1)))
    given = np.array([[0.4, np.nan], [0.0, np.nan]])
    found = quality_of(pairs, np.full(4, np.nan), given, np.zeros(4, int), FOLDS)
    assert found.accuracy[:2].tolist() == [0.4, 0.0] and np.isnan(found.accuracy[2:]).all()
    assert found.ground.tolist() == [1, 1, 0, 0] and np.isnan(found.error).all()


def test_a_task_labelled_in_one_session_only_has_no_label_of_others_to_go_by():
    pairs, score, _ = world(effect=0.0, n=150)
    rare = pairs.session == pairs.session[0]
    pairs = pairs._replace(task=np.where(rare, 2, pairs.task % 2))
    alone = learned(pairs, score)
    assert np.isnan(alone.accuracy[rare]).all() and np.isfinite(alone.accuracy[~rare]).all()
    with_means = learned(pairs, score, np.array([[np.nan] * 2, [np.nan] * 2, [0.1, 0.9]]))
    assert (with_means.accuracy[rare] == np.array([0.1, 0.9])[pairs.model[rare]]).all()
    assert (with_means.ground[rare] == 1).all() and np.isnan(with_means.error[rare]).all()
    assert (with_means.accuracy[~rare] == alone.accuracy[~rare]).all()


def test_pairs_without_a_label_are_predicted_like_their_task(planted):
    pairs, score, truth, _ = planted
    hidden = np.random.default_rng(1).random(score.size) < 0.4
    found = learned(pairs, np.where(hidden, np.nan, score))
    assert (found.ground[hidden] == 2).all()
    assert off(found.accuracy[hidden], truth[hidden]) < off(found.baseline[hidden], truth[hidden])


@pytest.mark.parametrize("folds", [2, 5])
def test_too_few_sessions_to_leave_some_out_are_refused(folds):
    with pytest.raises(InputError) as told:
        folds_of(np.array([0, 0, 1, 2, 3]), np.array([True] * 5), folds, seed=0)
    assert "left out" in told.value.fact or "leave out" in told.value.fact


def test_an_error_of_clusters_is_the_plain_one_where_each_stands_alone():
    values = np.random.default_rng(0).normal(size=50)
    plain = values.std(ddof=1) / np.sqrt(50)
    assert clustered_error(values, np.arange(50)) == pytest.approx(plain)
    assert clustered_error(np.repeat(values, 4), np.repeat(np.arange(50), 4)) == pytest.approx(plain)
    assert np.isnan(clustered_error(values, np.zeros(50)))


def test_reliability_by_hand():
    predicted, score = np.repeat([0.2, 0.8], 40), np.tile([0.0, 0.0, 0.0, 1.0], 20)
    low, high = reliability(predicted, score, np.arange(80))
    assert (low.n, low.predicted, low.scored) == (40, pytest.approx(0.2), 0.25)
    assert calibration_error([low, high]) == pytest.approx((0.05 + 0.55) / 2)
