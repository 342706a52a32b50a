"""State X of four engines, computed by hand from the formulas of the papers, and rules of every policy."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from oracles.state_x import PROMPT, STATE_X, A, B, D, view_of

from agentctl.errors import ConfigError
from agentctl.estimators.batch_time import BatchTime
from agentctl.policies.base import (
    TIES,
    comes_before,
    load_policy,
    pick_least,
    policy_names,
    tie_hash,
)


def requests_of(prompt=PROMPT, turn=1):
    return SimpleNamespace(prompt_tokens=np.array([prompt]), turn=np.array([turn]))


# 60 us per token and 1 ns per pair: costs A 0.158, B 2.066, C 1.343, D 1.400 s; the SLO is 2.25 s.
SMETRIC = {"c_linear": 60e-6, "c_attention": 1e-9}


def choose(name, view, requests=None, tie="policy", **params):
    policy = load_policy(name, params, tie=tie, batch_time=BatchTime(b_prefill=1e-5, b_attention=1e-9))
    return policy.choose.py_func(view, requests or requests_of(), 0, policy.my)


@pytest.mark.parametrize(
    ("name", "params", "engine"),
    [
        ("least-loaded", {}, D),
        ("prefix-affine", {}, B),
        ("lmetric", {}, A),
        ("smetric", SMETRIC, B),
        ("smetric", {**SMETRIC, "slack": 0.5}, A),
    ],
)
def test_state_x_is_decided_as_the_formulas_say(name, params, engine):
    assert choose(name, STATE_X, **params) == engine


def test_smetric_places_a_first_turn_by_cost():
    assert choose("smetric", STATE_X, requests_of(turn=0), **SMETRIC) == A


def test_smetric_moves_when_the_kv_is_gone():
    assert choose("smetric", STATE_X._replace(expected_hit=int(19_200 / 0.7)), **SMETRIC) == B
    assert choose("smetric", STATE_X._replace(expected_hit=int(19_200 / 0.7) + 2), **SMETRIC) == A


def test_smetric_sends_equal_hits_to_the_smaller_backlog():
    view = view_of(hit_tokens=[512, 512], pending_prefill_tokens=[100, 50], pending_prefill_pairs=[1.0, 1.0])
    assert choose("smetric", view, requests_of(prompt=1000)) == 1


def test_smetric_takes_its_coefficients_from_the_profile():
    policy = load_policy("smetric", batch_time=BatchTime(b_prefill=3e-5, b_attention=2e-9))
    assert (policy.params["c_linear"], policy.params["c_attention"]) == (3e-5, 2e-9)
    own = load_policy("smetric", {"c_linear": 1.0}, batch_time=BatchTime(b_prefill=3e-5))
    assert own.params["c_linear"] == 1.0


def test_lmetric_breaks_a_tie_at_zero_by_batch_size():
    view = view_of(hit_tokens=[1000, 1000, 0, 0], running_requests=[2, 1, 0, 0])
    assert choose("lmetric", view, requests_of(prompt=1000)) == 1


def test_round_robin_takes_every_engine_in_turn():
    chosen, last = [], -1
    for _ in range(6):
        last = choose("round-robin", view_of(last_chosen=last))
        chosen.append(last)
    assert chosen == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("name", policy_names())
def test_a_policy_tells_its_story(name):
    policy = load_policy(name)
    assert "Source" in policy.explanation
    assert "Sees" in policy.explanation
    assert policy.source
    for parameter in policy.params:
        assert parameter in policy.explanation


TIED = np.array([5, 1, 1, 7, 1])


def pick(tie, r=0, seed=0, last=-1, score=TIED):
    view = view_of(last_chosen=last, seed=seed)
    return pick_least(score, np.zeros_like(score), view.seed, view.last_chosen, r, TIES.index(tie))


def test_first_takes_the_lowest_engine():
    assert pick("first", last=1) == 1


def test_rotate_takes_the_first_tied_engine_after_the_last_chosen():
    assert [pick("rotate", last=last) for last in (-1, 0, 1, 2, 3, 4)] == [1, 1, 2, 4, 4, 1]


def test_random_is_fair_and_depends_on_seed_and_request_only():
    chosen = [pick("random", r=r) for r in range(3000)]
    assert chosen == [pick("random", r=r, last=2) for r in range(3000)]
    counts = [chosen.count(engine) for engine in (1, 2, 4)]
    assert sum(counts) == 3000
    assert all(abs(count - 1000) < 5 * np.sqrt(3000 * 2 / 9) for count in counts)
    assert chosen != [pick("random", r=r, seed=1) for r in range(3000)]


def test_lexicographic_sorts_numbers_as_text():
    numbers = list(range(130))
    for a, b in itertools.product(numbers, numbers):
        assert comes_before(a, b) == (str(a) < str(b))
    score = np.ones(12, dtype=np.int64)
    score[[0, 1]] = 2
    assert pick("lexicographic", score=score) == 10


def test_the_tie_hash_stays_below_32_bits():
    assert all(0 <= tie_hash(seed, r) < 2**32 for seed in (0, 1, 2**40) for r in (0, 1, 2**31 - 1))


def test_the_router_can_choose_the_tie_rule():
    empty = view_of(last_chosen=2)
    assert choose("least-loaded", empty) == 3
    assert choose("least-loaded", empty, tie="first") == 0
    assert choose("round-robin", empty, tie="first") == 3  # cannot tie


def test_the_five_first_policies_are_there():
    assert {"round-robin", "least-loaded", "prefix-affine", "lmetric", "smetric"} <= set(policy_names())


@pytest.mark.parametrize(
    ("name", "params", "words"),
    [
        ("smetrik", {}, "did you mean `smetric`?"),
        ("smetric", {"slak": 1}, "did you mean `slack`?"),
        ("smetric", {"slack": "much"}, "a finite number"),
        ("smetric", {"slack": float("nan")}, "a finite number"),
        ("smetric", {"slack": True}, "a finite number"),
        ("conserve-pd", {"quantile": 1.5}, "a number at most 1"),
        ("ampd", {"error_share": -0.1}, "a number at least 0"),
        ("smg:cache_aware", {"throughput": 0}, "a number above 0"),
        ("smetric", {"tie": 1}, "[router]"),
        ("round-robin", {"x": 1}, "no parameters"),
    ],
)
def test_a_mistake_in_name_or_parameter_is_an_error_with_a_way_out(name, params, words):
    with pytest.raises(ConfigError) as caught:
        load_policy(name, params)
    assert words in f"{caught.value.message} {caught.value.hint}"


def test_an_unknown_tie_rule_is_an_error():
    with pytest.raises(ConfigError, match="lexicographic"):
        load_policy("smetric", tie="coin")


@pytest.mark.parametrize("tie", TIES)
def test_scores_that_are_no_numbers_choose_no_engine(tie):
    score = np.full(3, np.nan)
    assert pick_least(score, np.zeros(3), 0, -1, 0, TIES.index(tie)) == -1
