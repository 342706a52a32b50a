"""Predicted lengths: quantiles that hold on sessions left out, by law and by count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom
from sklearn.metrics import mean_pinball_loss
from threadpoolctl import threadpool_limits

from agentctl.errors import InputError
from agentctl.estimators.held_out import clustered_error, folds_of, held_out
from agentctl.estimators.output_length import (
    FEWEST,
    OutputLength,
    conformal,
    earlier_answers,
    output_length_of,
    pinball,
)
from agentctl.estimators.quality import Pairs

FOLDS = 3
SPREAD = np.array([0.2, 0.5, 0.8])  # of log tokens, by task


def world(seed: int = 0, n: int = 1500, per_session: int = 1):
    """(pairs of one model, tokens, their true median): one feature, a task and their session matter."""
    rng = np.random.default_rng(seed)
    session = np.arange(n) // per_session
    task, x = rng.integers(0, 3, n), rng.normal(size=n)
    of_session = 0.0 if per_session == 1 else 0.3 * rng.normal(size=n)[session]
    centre = np.array([4.0, 5.0, 6.0])[task] + 0.5 * x
    tokens = np.ceil(np.exp(centre + of_session + SPREAD[task] * rng.normal(size=n)))
    return Pairs(session, task, np.zeros(n, int), x[:, None]), tokens, np.exp(centre)


def learned(pairs: Pairs, tokens: np.ndarray, level: float = 0.9) -> OutputLength:
    fold = folds_of(pairs.session, np.isfinite(tokens), FOLDS, seed=0)
    return output_length_of(pairs, tokens, fold, FOLDS, level=level)


@pytest.fixture(scope="module")
def alone():
    """Sessions of one request each: what is left out is independent of what was seen."""
    pairs, tokens, centre = world()
    return pairs, tokens, centre, learned(pairs, tokens)


def within_binomial(hits: int, n: int, q: float) -> bool:
    """Whether so many hits are within 99.9 % of what independent ones with probability q give."""
    low, high = binom.interval(0.999, n, q)
    return low <= hits <= high


def test_the_high_quantile_covers_its_share_of_answers_left_out(alone):
    pairs, tokens, _, found = alone
    for rows in (pairs.task >= 0, *(pairs.task == t for t in range(3))):
        assert within_binomial(int((tokens <= found.high)[rows].sum()), int(rows.sum()), 0.9)
        assert within_binomial(int((tokens <= found.median)[rows].sum()), int(rows.sum()), 0.5)


def test_another_quantile_covers_its_own_share():
    pairs, tokens, _ = world(seed=3, n=900)
    found = learned(pairs, tokens, level=0.7)
    assert found.level == 0.7
    assert within_binomial(int((tokens <= found.high).sum()), 900, 0.7)


def test_requests_of_one_session_are_alike_and_coverage_holds_within_their_error():
    pairs, tokens, _ = world(seed=1, n=1500, per_session=6)
    covered = (tokens <= learned(pairs, tokens).high).astype(float)
    assert abs(covered.mean() - 0.9) < 3 * clustered_error(covered, pairs.session)


def test_a_planted_length_is_recovered(alone):
    _pairs, tokens, centre, found = alone
    plain, told = (np.abs(np.log(m / centre)).mean() for m in (found.plain_median, found.median))
    assert told < 0.5 * plain
    for q, ours, theirs in ((0.5, found.median, found.plain_median), (0.9, found.high, found.plain_high)):
        assert pinball(tokens, ours, q) < 0.95 * pinball(tokens, theirs, q)


def test_mean_tokens_add_up_to_what_they_were(alone):
    pairs, tokens, _, found = alone
    missed = tokens - found.mean
    assert abs(missed.mean()) < 3 * clustered_error(missed, pairs.session)
    assert np.abs(missed).mean() < np.abs(tokens - found.plain_mean).mean()


def test_without_the_correction_a_quantile_fitted_to_few_answers_covers_less():
    pairs, tokens, _ = world(seed=5, n=240)
    noise = np.random.default_rng(0).normal(size=(240, 8))
    few = pairs._replace(features=np.column_stack((pairs.features, noise)))
    found = learned(few, tokens)
    assert found.correction[0] > 1
    bare = np.log1p(found.high) - np.log(found.correction[0])
    assert (np.log1p(tokens) <= bare).mean() < 0.9 <= (tokens <= found.high).mean() + 0.06


def test_lengths_of_a_session_do_not_touch_its_own_predictions(alone):
    pairs, tokens, _, found = alone
    own = pairs.session == 17
    again = learned(pairs, np.where(own, 50 * tokens, tokens))
    for name in ("mean", "median", "high", "plain_high"):
        before, after = getattr(found, name), getattr(again, name)
        assert (after[own] == before[own]).all() and (after[~own] != before[~own]).any()


def test_quantiles_are_in_order_and_at_least_one_token(alone):
    found = alone[-1]
    assert (found.median >= 1).all() and (found.high >= found.median).all() and (found.mean > 0).all()


def test_lengths_are_the_same_to_the_bit_on_any_number_of_threads():
    pairs, tokens, _ = world(n=200)
    with threadpool_limits(limits=1):
        one = learned(pairs, tokens)
    with threadpool_limits(limits=2):
        two = learned(pairs, tokens)
    for name in ("mean", "median", "high"):
        assert getattr(one, name).tobytes() == getattr(two, name).tobytes()


def test_a_model_without_any_answer_is_unknown_and_empty_answers_count_as_a_token():
    pairs, tokens, _ = world(n=240)
    pairs = pairs._replace(model=np.arange(240) % 2)
    tokens = np.where(pairs.model == 1, np.nan, np.where(np.arange(240) % 8 == 0, 0.0, tokens))
    found = learned(pairs, tokens)
    for name in ("mean", "median", "high"):
        values = getattr(found, name)
        assert np.isnan(values[pairs.model == 1]).all() and (values[pairs.model == 0] > 0).all()


def test_too_few_lengths_are_refused():
    pairs, tokens, _ = world(n=FEWEST - 1)
    with pytest.raises(InputError, match="49 answers is known; expected 50 at least"):
        learned(pairs, tokens)


@given(st.lists(st.integers(0, 20), min_size=2, max_size=60), st.sampled_from([0.5, 0.8, 0.9]))
def test_a_conformal_quantile_of_the_others_covers_each_of_them_often_enough(values, q):
    """Exchangeable values: of n + 1 at least (n + 1) q lie within the quantile of the other n, where n is
    enough for that."""
    pool = np.array(values, float)
    n = pool.size - 1
    covered = sum(pool[i] <= conformal(np.delete(pool, i), q) for i in range(pool.size))
    assert covered >= np.floor((n + 1) * q) if np.ceil((n + 1) * q) > n else covered >= (n + 1) * q - 1e-9


def test_pinball_loss_equals_an_independent_one():
    rng = np.random.default_rng(0)
    y, told = rng.exponential(100, 500), rng.exponential(100, 500)
    for q in (0.5, 0.9):
        assert pinball(y, told, q) == pytest.approx(mean_pinball_loss(y, told, alpha=q))


def test_earlier_answers_by_hand():
    line = np.array([0, 0, 0, 0, 1, 1])
    output = np.array([10.0, 20.0, np.nan, 5.0, 7.0, 8.0])
    arrival = np.array([0.0, 2.0, 4.0, 6.0, 0.0, 1.0])
    end = np.array([1.0, 3.0, np.nan, 7.0, 2.0, 3.0])  # of line 1 the second comes before the first's end
    told = earlier_answers(line, output, arrival, end)
    expected = [[np.nan] * 2, [10, 10], [20, 15], [np.nan, 15], [np.nan] * 2, [np.nan] * 2]
    np.testing.assert_array_equal(told, expected)


def test_corrections_come_from_folds_that_neither_model_nor_prediction_saw():
    """The nested predictions that residuals are taken of: by models of the two other folds only."""
    fold = np.repeat(np.arange(FOLDS), 5)

    def fit(rows):
        seen = sum(10 ** int(f) for f in set(fold[rows]))
        return lambda others: np.full((others.size, 1), float(seen))

    inner = held_out(fit, fold, np.ones(5 * FOLDS, bool), FOLDS).inner[:, :, 0]
    for f in range(FOLDS):
        for g in set(range(FOLDS)) - {f}:
            assert (inner[f, fold == g] == sum(10**k for k in range(FOLDS) if k not in (f, g))).all()
