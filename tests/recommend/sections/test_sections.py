"""Figures of a decision that is given: who is drawn, how, and what the numbers beside it are."""

from __future__ import annotations

import dataclasses

import pytest

from agentctl.cluster import cluster_of
from agentctl.policies.base import load_policy
from agentctl.profile import load_profile
from agentctl.recommend.bands import Band
from agentctl.recommend.decision import decide
from agentctl.recommend.describe import MOST_ROWS, Told, sections
from agentctl.recommend.objectives import objectives_in
from agentctl.recommend.pairs import Range
from agentctl.recommend.search import Candidate, Found, Ladder, Measured
from agentctl.recommend.sections.capacity import capacity
from agentctl.recommend.sections.names import MOST_LINES, Names, shown
from agentctl.recommend.sections.pareto import OTHERS, pareto
from agentctl.recommend.sections.varied import varied
from agentctl.recommend.sensitivity import Case, Family, Scenario, Sensitivity
from agentctl.recommend.statistics import Peak

PROFILE = load_profile("h100-qwen3-8b")
LADDER = Ladder(-9, 6)
AT = Measured(**{**dict.fromkeys(Measured._fields), "score": 0.1, "requests": 10, "rejected": 0})
SLOS = ("ttft < 2s @ 90%",)


def found(name, peak, engines=4, attained=0.9, settings=()):
    """Peaks of four replicates around `peak`; 90 % attained at the trace's load, 50 % at twice of it."""
    policy = load_policy(name)
    candidate = Candidate(name, policy, cluster_of(PROFILE, engines), settings)
    at = {0: AT._replace(attained=attained), 3: AT._replace(attained=0.5, score=-0.1)}
    replicates = [Peak(peak * factor) for factor in (0.99, 1.0, 1.0, 1.01)]
    return Found(candidate, at, Peak(peak), replicates, [at] * 4)


def decided(*all_found, objectives="peak-load"):
    return decide(all_found, "round-robin", objectives_in(objectives), ladder=LADDER)


@pytest.fixture
def decision():
    return decided(found("round-robin", 1.0), found("smetric", 2.0), found("lmetric", 1.5))


def told(decision, bands=(), wanted=None, rate=60.0):
    return capacity(decision, bands, LADDER, rate, SLOS, wanted)


def test_the_recommended_one_is_drawn_first_and_strongest(decision):
    (figure,) = told(decision).figures
    assert [curve.name for curve in figure.curves] == ["smetric", "round-robin", "lmetric"]
    assert [curve.is_strong for curve in figure.curves] == [True, False, False]
    assert figure.curves[0].x == (60.0, 120.0)  # 1 and 2 times 60 sessions a minute
    assert figure.curves[0].y == (0.9, 0.5)


def test_a_band_takes_the_place_of_the_single_run(decision):
    best = decision.chosen.candidate
    band = Band(best, {0: Range(0.8, 0.7, 0.9), 3: Range(0.4, 0.2, 0.6)})
    section = told(decision, [band])
    curve = section.figures[0].curves[0]
    assert (curve.y, curve.low, curve.high) == ((0.8, 0.4), (0.7, 0.2), (0.9, 0.6))
    assert not section.figures[0].curves[1].low
    assert section.tables[0].rows == (("smetric", "70 – 90", "20 – 60"),)


def test_the_share_that_is_asked_for_is_marked_only_where_there_is_one(decision):
    assert [mark.name for mark in told(decision).figures[0].marks] == ["the trace's load"]
    assert told(decision, wanted=0.9).figures[0].marks[1].y == 0.9


def test_without_a_rate_loads_are_multiples_of_the_traces(decision):
    (figure,) = told(decision, rate=None).figures
    assert figure.curves[0].x == (1.0, 2.0)
    assert figure.x_label == "multiple of the trace's load"


def test_of_many_candidates_the_best_are_drawn_and_the_others_counted():
    many = [found("smetric", 1 + n / 10, settings=(("max_num_seqs", n),)) for n in range(12)]
    decision = decided(found("round-robin", 0.5), *many)
    (figure,) = told(decision).figures
    assert len(figure.curves) == MOST_LINES
    assert figure.curves[0].name == "smetric, max_num_seqs 11"
    assert "round-robin" in [curve.name for curve in figure.curves]  # today's is always there
    assert "5 more candidates are not drawn" in figure.conclusion
    assert {curve.colour for curve in figure.curves} == set(range(MOST_LINES))


def test_a_candidate_looks_the_same_wherever_it_is_drawn(decision):
    names = Names(decision)
    (figure,) = told(decision).figures
    assert [curve.colour for curve in figure.curves] == [
        names.colour(row.candidate) for row in shown(decision)
    ]


def test_the_size_is_said_where_there_are_several():
    decision = decided(*(found("smetric", n / 4, engines=n) for n in (4, 8)), found("round-robin", 0.5))
    assert Names(decision).name(decision.rows[1].candidate) == "smetric on 8 engines"


def sensitivity(decision, cases):
    rows = [decision.chosen, *(row for row in decision.rows if row is not decision.chosen)]
    candidates = tuple(row.candidate for row in rows)
    families = (
        Family("ties", "would it if chances fell otherwise", (("seed + 1", Scenario(ties=1)),)),
        Family("speed", "would it if batches took longer", (("batches +10%", Scenario(slow=1.1)),)),
        Family("calibration", "would other coefficients change it", (), "no covariance is known"),
    )
    found = tuple(Case(*case, tuple(candidates[n] for n in behind)) for *case, behind in cases)
    return Sensitivity(candidates, (2.0, 1.0, 1.5), families, found)


def test_sensitivity_draws_every_change_and_says_who_gets_ahead(decision):
    cases = [
        ("ties", "seed + 1", (2.0, 1.0, 1.4), ()),
        ("ties", "seed + 2", (1.8, 1.1, None), ()),
        ("speed", "batches +10%", (1.0, 0.8, 1.25), (2,)),
    ]
    section = varied(sensitivity(decision, cases), "peak-load", Names(decision), 60.0)
    assert (
        section.sentence == "The ranking holds in 66.7 % of 3 changed assumptions: it is FRAGILE (below 95%)."
    )
    (figure,) = section.figures
    assert figure.categories == ("nothing changed", "ties, 2 draws", "batches +10%")
    best = figure.curves[0]
    assert (best.name, best.is_strong) == ("smetric", True)
    assert best.x == (120.0, 120.0, 60.0)
    assert (best.low[1], best.high[1]) == (108.0, 120.0)  # of the two draws
    (table,) = section.tables
    assert [row[0] for row in table.rows] == ["ties", "speed", "calibration"]
    assert [row[3] for row in table.rows] == [1.0, 0.0, None]
    assert [row[4] for row in table.rows] == ["nobody", "lmetric", "not varied: no covariance is known"]


def test_a_finalist_alone_has_nobody_to_fall_behind(decision):
    alone = sensitivity(decision, [("speed", "batches +10%", (1.0, 0.8, 1.25), ())])
    one = dataclasses.replace(alone, finalists=alone.finalists[:1], base=(2.0,), cases=())
    assert varied(one, "peak-load", Names(decision), None).sentence == "No assumption could be varied."


def test_one_size_and_one_objective_have_nothing_to_trade(decision):
    assert pareto(decision, Names(decision), 60.0) == ()


def test_the_edge_of_the_sizes_leaves_out_a_size_that_brings_nothing():
    sizes = [found("smetric", peak, engines=n) for n, peak in ((4, 1.0), (8, 0.9), (16, 2.0))]
    decision = decided(*sizes, found("round-robin", 0.5))
    (section,) = pareto(decision, Names(decision), 60.0)
    edge = section.figures[0].curves[-1]
    assert (edge.x, edge.y) == ((4.0, 16.0), (60.0, 120.0))
    points = section.figures[0].curves[0]
    assert [round(x) for x in points.x] == [4, 8, 16]
    others = section.figures[0].curves[1]
    assert others.name == "round-robin"
    assert others.x[0] != points.x[0]  # at the same size, beside each other
    assert all(low < y < high for low, y, high in zip(points.low, points.y, points.high, strict=True))


def test_two_objectives_are_an_axis_each():
    all_found = (found("smetric", 2.0), found("round-robin", 1.0))
    decision = decided(*all_found, objectives="peak-load,gpus")
    (section,) = pareto(decision, Names(decision), 60.0)
    (figure,) = section.figures
    assert (figure.x_label, figure.y_label) == ("peak-load (session starts per minute)", "gpus (GPUs)")
    assert {curve.name: curve.x for curve in figure.curves}["smetric"] == pytest.approx((120.0,))
    assert [row[1] for row in section.tables[0].rows] == pytest.approx([120.0, 60.0])
    assert figure.conclusion.startswith("Better is to the right and down.")


def test_many_points_share_an_entry_of_the_legend():
    many = [found("smetric", 1 + n / 10, settings=(("max_num_seqs", n),)) for n in range(12)]
    decision = decided(found("round-robin", 0.5), *many, objectives="peak-load,gpus")
    (section,) = pareto(decision, Names(decision), 60.0)
    names = [curve.name for curve in section.figures[0].curves]
    assert len(names) <= MOST_LINES + 1 and OTHERS in names
    assert sum(len(curve.x) for curve in section.figures[0].curves) == 13


def test_a_table_of_very_many_candidates_lists_the_best_and_counts_the_others():
    many = [found("smetric", 1 + n / 10, settings=(("max_num_seqs", n),)) for n in range(40)]
    decision = decided(found("round-robin", 0.5), *many)
    told = Told(decision, (), LADDER, SLOS, "round-robin", 60.0, "clear", "So.", ())
    table = sections(told)[0].tables[0]
    assert len(table.rows) == MOST_ROWS
    assert table.title.endswith("21 more in result.json")
    assert table.rows[0][0] == "round-robin"  # in the order in which they were asked for
    assert table.rows[table.best[0]][0] == "smetric, max_num_seqs 39"
