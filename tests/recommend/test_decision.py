"""Decisions on peaks that are given, and a whole study on candidates whose capacity is known."""

import dataclasses

import numpy as np
import pytest

from agentctl.cluster import cluster_of
from agentctl.engines.forked import Forked
from agentctl.metrics import Draws, Run
from agentctl.policies.base import load_policy
from agentctl.profile import load_profile
from agentctl.recommend.decision import decide
from agentctl.recommend.objectives import objectives_in
from agentctl.recommend.scenario import Scenario
from agentctl.recommend.search import Candidate, Found, Ladder, Measured, measured
from agentctl.recommend.statistics import Peak
from agentctl.recommend.study import STAGES, Plan, Work, affordable, study
from agentctl.slo import parse_slos

PROFILE = load_profile("h100-qwen3-8b")
LADDER = Ladder(-9, 6)
HOLDS = Measured(**{**dict.fromkeys(Measured._fields), "score": 0.1, "requests": 10, "rejected": 0})
FAILS = HOLDS._replace(score=-0.1)


def candidate(name, engines=4, price=None, settings=()):
    policy, _, _ = name.partition(":slack")
    cluster = cluster_of(PROFILE, engines)
    pool = dataclasses.replace(cluster.pools[0], price_per_hour=price)
    return Candidate(name, load_policy(policy), dataclasses.replace(cluster, pools=(pool,)), settings)


def found(name, peak, replicates, engines=4, side="", at_trace=HOLDS):
    peaks = [Peak(load, side) for load in replicates]
    return Found(candidate(name, engines), {0: at_trace}, Peak(peak, side), peaks)


NOISE = np.exp(np.random.default_rng(3).normal(0, 0.1, size=12))  # common to all candidates of a replicate
JITTER = np.exp(np.random.default_rng(4).normal(0, 0.01, size=(3, 12)))


def three(first, second, third):
    """smetric, lmetric and round-robin with these peaks."""
    return [
        found(name, peak, peak * NOISE * jitter)
        for name, peak, jitter in zip(
            ("smetric", "lmetric", "round-robin"), (first, second, third), JITTER, strict=True
        )
    ]


def verdicts(decision):
    return {row.candidate.name: row.verdict for row in decision.rows}


def test_a_gap_beyond_the_paired_noise_is_better_and_clear():
    decision = decide(three(2.0, 1.5, 1.5), "round-robin")
    assert verdicts(decision) == {
        "smetric": "BETTER",
        "lmetric": "NOT DISTINGUISHABLE",
        "round-robin": "NOT EVALUATED",  # the reference itself
    }
    assert decision.clear
    assert decision.chosen.candidate.name == "smetric"
    row = decision.rows[0]
    assert row.difference.value == pytest.approx(0.5, rel=0.1)
    assert 0 < row.difference.low < 0.5 < row.difference.high
    assert row.peak.low < 2.0 < row.peak.high
    assert row.difference.high - row.difference.low < 0.5 * (row.peak.high - row.peak.low)  # pairing pays


def test_a_worse_candidate_is_told():
    assert verdicts(decide(three(1.0, 1.5, 1.5), "round-robin"))["smetric"] == "WORSE"


def test_among_ties_the_one_with_the_fewest_signals_wins_not_the_point_estimate():
    decision = decide(three(1.01, 1.0, 0.999), "round-robin")
    assert not decision.clear
    assert len(decision.tied) == 3
    assert decision.chosen.candidate.name == "round-robin"


def test_among_ties_a_sure_gain_goes_before_fewer_signals():
    swinging = 1.0 + 0.6 * np.sin(np.arange(12))  # round-robin's peak in the resamples
    founds = [
        found("smetric", 1.4, 1.4 * NOISE),
        found("round-robin", 1.2, swinging),
        found("least-loaded", 1.0, 1.0 * NOISE),
    ]
    decision = decide(founds, "least-loaded")
    assert {row.candidate.name for row in decision.tied} == {"smetric", "round-robin"}
    assert verdicts(decision)["round-robin"] == "NOT DISTINGUISHABLE"
    assert decision.chosen.candidate.name == "smetric"


def test_who_misses_the_objectives_on_the_trace_itself_is_not_recommended_while_another_holds_them():
    founds = three(1.01, 1.0, 0.999)
    founds[2].at[0] = FAILS  # round-robin, the cheapest
    decision = decide(founds, "round-robin")
    assert decision.chosen.candidate.name == "lmetric"
    assert {row.candidate.name for row in decision.tied} == {"smetric", "lmetric"}


def test_equal_signals_are_decided_by_name():
    decision = decide(three(1.01, 1.0, 0.5), "round-robin")
    assert decision.chosen.candidate.name == "lmetric"


def test_a_reference_that_is_only_a_reference_is_never_recommended():
    decision = decide(three(1.0, 1.0, 1.0), "round-robin", reference_only=True)
    assert decision.chosen.candidate.name == "lmetric"


def test_without_replicates_nothing_is_claimed():
    founds = [found("smetric", 3.0, []), found("round-robin", 1.0, [])]
    decision = decide(founds, "round-robin")
    assert verdicts(decision)["smetric"] == "NOT EVALUATED"
    assert not decision.clear


def test_two_candidates_above_the_ladder_cannot_be_told_apart():
    founds = [found(name, 4.0, [4.0] * 5, side="above") for name in ("smetric", "round-robin")]
    decision = decide(founds, "round-robin")
    row = decision.rows[0]
    assert row.verdict == "NOT DISTINGUISHABLE"
    assert (row.side, row.peak.value, row.peak.high) == ("above", 4.0, None)
    assert row.difference is None  # 0 would be a number that nobody found


def test_above_the_ladder_a_gain_has_no_upper_end():
    founds = [
        found("smetric", 4.0, [4.0] * 5, side="above"),
        found("round-robin", 2.0, [2.0, 2.1, 1.9, 2.0, 2.0]),
    ]
    row = decide(founds, "round-robin").rows[0]
    assert row.verdict == "BETTER"
    assert row.difference.low is not None
    assert row.difference.high is None


def test_a_candidate_is_compared_with_the_current_policy_on_as_many_engines():
    founds = [
        found(name, peak * engines, peak * engines * NOISE, engines=engines)
        for engines in (2, 4)
        for name, peak in (("smetric", 0.6), ("round-robin", 0.3))
    ]
    decision = decide(founds, "round-robin")
    gains = [row.difference.value for row in decision.rows if not row.is_current]
    assert gains == pytest.approx([0.3 * 2, 0.3 * 4], rel=0.1)
    assert decision.chosen.candidate.engines == 4


def test_the_fewest_gpus_that_hold_the_slo_at_the_trace_load_are_chosen():
    founds = [
        found(
            "smetric",
            0.6 * engines,
            0.6 * engines * NOISE,
            engines=engines,
            at_trace=HOLDS if engines > 1 else FAILS,
        )
        for engines in (1, 2, 4, 8)
    ]
    decision = decide(founds, "smetric", objectives=objectives_in("gpus"))
    # 2 engines carry 1.2 times the load, but the interval reaches below 1
    assert [row.holds for row in decision.rows] == [False, False, True, True]
    assert decision.chosen.candidate.engines == 4


def test_when_nothing_holds_the_best_is_still_named_and_marked():
    founds = [
        found("smetric", 0.5, 0.5 * NOISE, at_trace=FAILS),
        found("round-robin", 0.2, 0.2 * NOISE, at_trace=FAILS),
    ]
    decision = decide(founds, "round-robin", objectives=objectives_in("gpus"))
    assert decision.chosen.candidate.name == "smetric"
    assert not decision.chosen.holds


def test_an_objective_that_counts_nothing_decides_nothing():
    nothing = Found(candidate("smetric"), {0: HOLDS._replace(score=None)}, None)
    decision = decide([nothing], "round-robin")
    assert decision.chosen is None
    assert decision.rows[0].peak is None


# --- a study: candidates carry known loads, replicates have a common factor


CAPACITY = {"smetric": 1.8, "lmetric": 1.79, "round-robin": 1.2, "least-loaded": 1.2}


def run_of(candidate, load, factor):
    """100 requests, of which as many are slow as the load exceeds the capacity."""
    slow = int(np.clip(50 * load / (CAPACITY[candidate.policy.name] * factor), 0, 100))
    n = 100
    first = np.where(np.arange(n) < slow, 3.0, 0.5)
    zeros = np.zeros(n, dtype=np.int64)
    ones = np.ones(n, dtype=np.int64)
    times = (zeros * 1.0, first, first)
    return Run(1, 1, ones > 0, zeros, zeros, *times, ones, ones, zeros, ones, first, first, zeros)


def study_of(
    names, replicates=4, noise=0.1, objective="peak-load", reference="", chosen=lambda found: None, **kwargs
):
    slos = parse_slos(["ttft < 1s @ 50%"])

    def measure(candidate, scenario, rung):
        factor = 1 + noise * scenario.replicate
        return measured(run_of(candidate, LADDER.load(rung), factor), slos)

    plan = Plan(replicates, objectives_in(objective), reference, chosen=chosen)
    return study([candidate(name) for name in names], Work(measure, LADDER, **kwargs), plan)


def test_a_study_finds_the_known_capacities_on_trace_and_replicates():
    founds = study_of(["smetric", "round-robin"])
    for f in founds:
        capacity = CAPACITY[f.candidate.name]
        assert f.peak.load == pytest.approx(capacity, rel=0.03)
        expected = [capacity * (1 + 0.1 * replicate) for replicate in (1, 2, 3, 4)]
        assert [peak.load for peak in f.replicates] == pytest.approx(expected, rel=0.03)


def test_workers_change_no_result():
    alone = study_of(["smetric", "round-robin"])
    together = study_of(["smetric", "round-robin"], engine=Forked(2))
    assert alone == together


def test_who_is_surely_worse_drops_out_after_the_first_stage_and_the_current_policy_never_does():
    names = ["smetric", "lmetric", "round-robin", "least-loaded"]
    founds = {f.candidate.name: f for f in study_of(names, 20, noise=0.01, reference="least-loaded")}
    assert {name: len(f.replicates) for name, f in founds.items()} == {
        "smetric": 20, "lmetric": 20, "round-robin": 8, "least-loaded": 20,
    }  # fmt: skip
    assert founds["round-robin"].dropped_after == 8
    assert founds["smetric"].dropped_after is founds["lmetric"].dropped_after is None
    decision = decide(list(founds.values()), "least-loaded")
    assert {row.candidate.name for row in decision.tied} == {"smetric", "lmetric"}
    assert verdicts(decision)["round-robin"] == "NOT DISTINGUISHABLE"  # both are as bad, on 8 pairs


@pytest.mark.parametrize("cheapest", [0, 5])
def test_after_the_second_stage_the_best_four_and_the_one_to_be_recommended_go_on(cheapest):
    names = [f"smetric:slack={n}" for n in range(1, 7)]
    found = study_of(names, 20, noise=0.0, chosen=lambda found: found[cheapest])
    went = [f.dropped_after is None for f in found]
    assert went == [True] * 4 + [False, cheapest == 5]
    assert [len(f.replicates) for f in found] == [20 if on else 16 for on in went]


def test_inside_the_indifference_zone_nobody_drops_out():
    founds = study_of(["smetric", "lmetric"], 20, noise=0.0)
    assert [f.dropped_after for f in founds] == [None, None]


def test_an_objective_at_the_load_of_the_trace_is_measured_there_on_every_replicate():
    for f in study_of(["smetric"], objective="goodput"):
        assert all(0 in at for at in f.at_replicates)


def test_the_number_of_replicates_follows_from_the_size_of_the_trace_alone():
    big = Found(candidate("smetric"), {0: HOLDS._replace(requests=10**7)}, Peak(1.0))
    small = Found(candidate("smetric"), {0: HOLDS}, Peak(1.0))
    assert affordable([big], LADDER) == STAGES[0]
    assert affordable([small], LADDER) == STAGES[-1]


def test_progress_only_goes_forward():
    shares = []
    study_of(["smetric", "round-robin"], progress=lambda share, what: shares.append(share))
    assert shares == sorted(shares)
    assert 0 <= shares[0] <= shares[-1] <= 1


def test_every_run_is_kept_in_the_same_order_for_any_number_of_workers():
    def kept(workers):
        runs = []

        def keep(candidate, scenario, rung, m):
            runs.append((candidate.name, scenario, rung))

        study_of(["smetric", "round-robin"], engine=Forked(workers), keep=keep)
        return runs

    assert kept(1) == kept(2)
    assert kept(1)[0][1] == Scenario()


# --- several objectives


def at_load_of_trace(tokens, requests=1.0):
    return HOLDS._replace(tokens_per_s=tokens, requests_per_s=requests, ttfet_mean_s=1 / requests)


def with_values(name, peaks, tokens, engines=4, price=4.0, settings=()):
    at = [{0: at_load_of_trace(value)} for value in tokens]
    whole = {0: at_load_of_trace(float(np.mean(tokens)))}
    one = candidate(name, engines, price, settings)
    return Found(one, whole, Peak(float(np.mean(peaks))), [Peak(p) for p in peaks], at)


SPREAD = np.linspace(-0.1, 0.1, 12)


def test_who_nobody_beats_in_every_objective_is_in_the_pareto_set():
    founds = [
        with_values("smetric", 2.0 + SPREAD, 100 + SPREAD),  # carries the most
        with_values("lmetric", 1.5 + SPREAD, 120 + SPREAD),  # the cheapest per token
        with_values("round-robin", 1.4 + SPREAD, 90 + SPREAD),  # neither
    ]
    decision = decide(founds, "round-robin", objectives_in("peak-load,cost"), ladder=LADDER)
    assert [row.candidate.name for row in decision.pareto] == ["smetric", "lmetric"]
    assert decision.chosen.candidate.name == "smetric"
    other_way = decide(founds, "round-robin", objectives_in("cost,peak-load"), ladder=LADDER)
    assert other_way.chosen.candidate.name == "lmetric"


def test_the_cost_is_the_price_of_a_million_good_tokens():
    founds = [with_values("smetric", 2.0 + SPREAD, np.full(12, 1000.0), price=1.8)]
    scored = decide(founds, "smetric", objectives_in("cost"), ladder=LADDER).rows[0].scores["cost"]
    assert scored.value.value == pytest.approx(4 * 1.8 / 3600 / 1000 * 1e6)


def test_no_interval_of_an_objective_reaches_below_0():
    founds = [with_values("smetric", 2.0 + SPREAD, 100 + 900 * SPREAD)]
    scored = decide(founds, "smetric", objectives_in("peak-tps"), ladder=LADDER).rows[0].scores["peak-tps"]
    assert scored.value.low == 0.0 < scored.value.value < scored.value.high


def test_a_lower_cost_is_better_and_its_difference_is_negative():
    founds = [
        with_values("smetric", 2.0 + SPREAD, 120 + SPREAD),
        with_values("round-robin", 2.0 + SPREAD, 100 + SPREAD),
    ]
    row = decide(founds, "round-robin", objectives_in("cost"), ladder=LADDER).rows[0]
    assert row.verdict == row.scores["cost"].verdict == "BETTER"
    assert row.scores["cost"].difference.high < 0


@pytest.mark.parametrize(
    ("name", "reason"), [("cost", "price_per_hour"), ("tokens-per-joule", "power table")]
)
def test_an_objective_without_its_data_is_not_evaluated_and_says_why(name, reason):
    founds = [with_values("smetric", 2.0 + SPREAD, 100 + SPREAD, price=None)]
    decision = decide(founds, "smetric", objectives_in(name), ladder=LADDER)
    assert decision.chosen is None
    assert reason in decision.why_not
    assert decision.rows[0].scores[name].verdict == "NOT EVALUATED"
    assert reason in decision.rows[0].scores[name].why_not


def test_settings_are_compared_with_the_current_policy_at_todays_settings():
    founds = [
        with_values("lmetric", 2.0 + SPREAD, 100 + SPREAD, settings=(("max_num_seqs", 64),)),
        with_values("lmetric", 1.0 + SPREAD, 100 + SPREAD),
    ]
    rows = decide(founds, "lmetric").rows
    assert [row.is_current for row in rows] == [False, True]
    assert rows[0].difference.value == pytest.approx(1.0)
    assert rows[0].candidate.title == "lmetric, max_num_seqs 64"


def test_peak_tokens_are_read_between_the_rungs_around_the_peak():
    at = {0: at_load_of_trace(100.0), 1: at_load_of_trace(130.0)}
    value = objectives_in("peak-tps")[0].value
    assert value(candidate("smetric"), Peak(LADDER.load(1) ** 0.5), at, LADDER) == pytest.approx(115.0)
    assert value(candidate("smetric"), Peak(LADDER.load(3), "above"), at, LADDER) == 130.0


def on_h200(name, watts, noise, **keys):
    cluster = cluster_of(load_profile("h200-qwen3-8b"), 4)
    pools = (dataclasses.replace(cluster.pools[0], **keys),)
    policy = Candidate(
        name, load_policy(name), dataclasses.replace(cluster, pools=pools), tuple(keys.items())
    )
    at = [{0: HOLDS._replace(tokens_per_s=2000.0, watts=watts * n, session_j=watts * n / 2)} for n in noise]
    return Found(policy, at[0], Peak(2.0, ""), [Peak(2.0, "") for _ in noise], at)


def test_energy_is_compared_where_the_power_is_known():
    """2,000 tokens/s at 1,000 W are 2 tokens/J; with locked clocks the same tokens take 800 W."""
    noise = [1.0 + 0.01 * n for n in range(12)]
    founds = [
        on_h200("round-robin", 1000.0, noise),
        on_h200("round-robin", 800.0, noise, sm_clock_mhz=1000.0),
    ]
    for name, value, sign in (("tokens-per-joule", 2.5, 1), ("session-energy", 400.0, -1)):
        rows = decide(founds, "round-robin", objectives_in(name), ladder=LADDER).rows
        locked = next(row for row in rows if row.candidate.settings)
        scored = locked.scores[name]
        assert scored.value.value == pytest.approx(value)
        assert (scored.verdict, scored.why_not) == ("BETTER", None)
        assert sign * scored.difference.value > 0


def test_what_a_session_draws_is_what_its_requests_drew_and_its_share_of_idle_power():
    """A session every 10 s for 1,000 s, the first 10 warm up; each draws 50 J above idle, engines 480 W."""
    n = 101
    start, none = np.linspace(0, 1000, n), np.zeros(n, dtype=np.int64)
    run = Run(
        n_engines=4, n_sessions=n, done=np.ones(n, dtype=bool), session=np.arange(n, dtype=np.int32),
        engine=none, arrival_s=start, first_token_s=start + 0.1, finish_s=start + 0.2,
        prompt_tokens=np.full(n, 100), output_tokens=np.full(n, 10), cached_tokens=none,
        computed_prefill_tokens=np.full(n, 100), scheduled_s=start, itl_max_s=np.full(n, 0.01),
        preemptions=none, energy_j=np.full(n, 50.0), draws=Draws(480.0, 50.0 * n),
    )  # fmt: skip
    one = measured(run, parse_slos(("ttft < 1s @ 95%",)))
    n_warm, window = 91, 900.0
    assert one.watts == pytest.approx(480 + 50 * n_warm / window)
    assert one.session_j == pytest.approx(one.watts * window / n_warm)
    unknown = measured(run._replace(energy_j=None, draws=None), parse_slos(("ttft < 1s @ 95%",)))
    assert unknown.watts is None and unknown.session_j is None
