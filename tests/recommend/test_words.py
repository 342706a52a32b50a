"""The words of a verdict on decisions that are given."""

import dataclasses

import numpy as np

from agentctl.cluster import cluster_of
from agentctl.policies.base import load_policy
from agentctl.profile import load_profile
from agentctl.recommend import words
from agentctl.recommend.decision import decide
from agentctl.recommend.objectives import objectives_in
from agentctl.recommend.scenario import Scenario
from agentctl.recommend.search import Candidate, Found, Measured
from agentctl.recommend.sensitivity import Case, Family, Sensitivity
from agentctl.recommend.statistics import Peak

CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 4)
NOISE = np.random.default_rng(1).normal(0, 0.05, size=12)
AT = Measured(
    **{**dict.fromkeys(Measured._fields), "score": 0.1, "attained": 0.98, "requests": 9, "rejected": 0}
)


def found(name, load, n=12, side="", at=AT):
    candidate = Candidate(name, load_policy(name), CLUSTER)
    peaks = [Peak(load + (0 if side else noise), side) for noise in NOISE[:n]]
    return Found(candidate, {0: at}, Peak(load, side), peaks)


def statement(*founds, current="round-robin", rate=60.0):
    return words.statement(decide(founds, current), current, rate)


def test_a_clear_winner_comes_first_with_its_interval_and_its_gain():
    text = statement(found("smetric", 2.0), found("round-robin", 1.0))
    assert text.startswith("smetric on 4 engines carries 12")
    assert "sessions/min (95 % interval" in text
    assert "60 sessions/min more than round-robin (difference 60 to 60)" in text


def test_no_clear_winner_is_said_in_those_words_with_the_reason_for_the_choice():
    text = statement(found("smetric", 1.0), found("lmetric", 1.0), found("round-robin", 1.0))
    assert text.startswith("There is no clear winner: round-robin cannot be told from smetric and lmetric")
    assert "cheapest" in text


def test_the_same_policy_on_more_engines_is_told_apart():
    more = found("smetric", 1.0)
    bigger = dataclasses.replace(more.candidate, cluster=CLUSTER.with_engines(5))
    text = statement(found("smetric", 1.0), dataclasses.replace(more, candidate=bigger))
    assert text.startswith("There is no clear winner: smetric cannot be told from smetric on 5 engines,")


def test_a_load_without_a_rate_is_a_multiple_of_the_trace():
    assert "carries 2 times the trace's load" in statement(found("smetric", 2.0), rate=None)


def test_beyond_the_ladder_no_number_is_claimed():
    up = statement(found("smetric", 4.0, side="above"), found("round-robin", 1.0))
    assert "holds the objectives at every load that was tried, up to 240 sessions/min" in up
    down = statement(found("round-robin", 0.125, side="below"))
    assert "at no load that was tried, down to 7.5 sessions/min" in down


def test_who_misses_at_the_load_of_the_trace_is_named():
    misses = found("round-robin", 0.8, at=AT._replace(score=-0.1))
    assert statement(found("smetric", 2.0), misses).endswith(
        "At the trace's own load round-robin misses the objectives."
    )


def test_one_run_is_not_an_evaluation():
    assert statement(found("smetric", 2.0, n=0), found("round-robin", 1.0, n=0)).startswith("Not evaluated")


def test_objectives_out_of_reach_are_told_from_policies_that_fail():
    both = [found(name, 0.125, side="below") for name in ("smetric", "round-robin")]
    assert words.out_of_reach(decide(both, "round-robin")).startswith("in 12 of 12 resampled workloads")
    one = [found("smetric", 1.0), found("round-robin", 0.125, side="below")]
    assert words.out_of_reach(decide(one, "round-robin")) is None


def test_reasons_say_only_what_differs():
    better = found("smetric", 2.0, at=AT._replace(hit_ratio=0.9, imbalance_prefill=1.2))
    worse = found("round-robin", 1.0, at=AT._replace(hit_ratio=0.5, imbalance_prefill=1.2))
    rows = decide([better, worse], "round-robin").rows
    said = words.reasons(rows[0], rows[1], 0, "60 sessions/min")
    assert said[1:] == ("smetric finds 90.0 % of the prompt tokens in cache, round-robin 50.0 %",)
    same = decide([better, found("lmetric", 1.0, at=better.at[0])], "lmetric").rows
    assert words.reasons(same[0], same[1], 0, "60 sessions/min") == (
        "at 60 sessions/min smetric and lmetric do the same",
    )


def test_few_replicates_are_called_rough():
    assert "rough" in words.replicates(6)
    assert "rough" not in words.replicates(20)


def test_a_ranking_that_does_not_hold_is_called_fragile_with_what_breaks_it():
    one, other = (found(name, 1.0).candidate for name in ("smetric", "lmetric"))
    families = (
        Family("ties", "?", tuple((f"seed + {n}", Scenario(ties=n)) for n in (1, 2, 3))),
        Family("engine lost", "?", (("one engine lost", Scenario(lost=1)),)),
    )
    cases = [Case("ties", f"seed + {n}", (1.0, 2.0), (other,)) for n in (1, 2, 3)]
    lost = Case("engine lost", "one engine lost", (1.0, 1.1), (other,))
    varied = Sensitivity((one, other), (1.0, 1.0), families, (*cases, lost))
    assert words.fragility(varied) == (
        " FRAGILE: the ranking holds in 0.0 % of 4 cases of changed assumptions, and not with 3 of 3 ties "
        "and one engine lost."
    )
    assert words.fragility(Sensitivity((one,), (1.0,), families, (lost,))) == ""


def test_the_value_of_another_objective_and_the_pareto_set_are_told():
    at = {0: AT._replace(requests_per_s=2.0)}
    founds = []
    for name, rate in (("smetric", 2.0), ("round-robin", 1.0)):
        one = found(name, 2.0)
        at = {0: AT._replace(requests_per_s=rate)}
        one.at, one.at_replicates = at, [at] * 12
        founds.append(one)
    decision = decide(founds, "round-robin", objectives_in("goodput,peak-load"))
    text = words.statement(decision, "round-robin", 60.0)
    assert "2 requests a second within the objectives" in text
    assert "1 more than round-robin" in text
    assert "Pareto set of goodput and peak-load: smetric on 4 engines." in text


def test_an_objective_without_data_is_not_evaluated_in_the_first_words():
    decision = decide([found("smetric", 2.0)], "smetric", objectives_in("tokens-per-joule"))
    text = words.statement(decision, "smetric", 60.0)
    assert text.startswith(
        "Not evaluated: tokens-per-joule has no value here: the profile has no power table"
    )


def test_settings_of_one_policy_are_told_apart():
    one, other = found("smetric", 2.0), found("smetric", 1.0, at=AT._replace(score=-0.1, attained=0.5))
    other.candidate = dataclasses.replace(other.candidate, settings=(("max_num_seqs", 8),))
    decision = decide([one, other], "round-robin")
    said = words.reasons(decision.rows[0], decision.rows[1], 0, "60 sessions/min")
    assert (
        said[1] == "smetric misses the objectives in 2.0 % of the requests, smetric, max_num_seqs 8 in 50.0 %"
    )
    assert words.statement(decision, "round-robin", 60.0).endswith(
        "At the trace's own load smetric, max_num_seqs 8 misses the objectives."
    )
