"""What the paper reports of its 256 conversations, in paper mode; where we find something else, it says so.

The fast run is the judge's to the bit (test_run.py), so that all of this is the judge's, too. Draw 0 is the
authors' own: their arrivals, their order and their wrong turns.
"""

from __future__ import annotations

import gzip
import random
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from oracles.conserve_paper import Recorded
from oracles.reference_conserve import Conversation
from oracles.reference_conserve import Run as Judged

from agentctl.conserve.conversations import draw, published
from agentctl.conserve.costs import A40
from agentctl.conserve.measure import isolated_sessions
from agentctl.conserve.run import CONSERVE, PER_TURN, Rules, run
from agentctl.conserve.study import gain, study

TRACE = Path(__file__).parents[1] / "data/conserve/trace_profile_summary.csv.gz"
DRAWS = 6
SATURATED = 2.0


@pytest.fixture(scope="module")
def found():
    return study(
        published(), rates=(0.5, 0.75, 1.0, SATURATED), errors=(0.0, 0.05, 0.1, 0.2, 0.5), seeds=DRAWS
    )


def p95(found, name):
    return found.row(name, SATURATED).by_seed("ttfet_x_p95")


def test_the_conversations_are_the_first_256_of_the_published_trace():
    table = pl.read_csv(gzip.decompress(TRACE.read_bytes())).filter(
        (pl.col("conv_id") < 256) & (pl.col("iter_id") < 5)
    )
    tokens = published()
    assert tokens.fresh.ravel().tolist() == table["appended_input"].to_list()
    assert tokens.output.ravel().tolist() == table["out_token_size"].to_list()
    assert tokens.fresh[:, 0].mean() == pytest.approx(15_290, abs=1)
    assert (tokens.fresh + tokens.output).sum(axis=1).mean() == pytest.approx(16_431, abs=1)


def test_the_first_draw_is_the_authors(found):
    """Their code seeds one generator for gaps and another one for wrong turns with 42; 255 start."""
    gaps, wrongs = random.Random(42), random.Random(42)
    at = [0.0]
    for _ in range(255):
        at.append(at[-1] + gaps.expovariate(2.0))
    wrong = {(conv, k) for conv in range(255) for k in range(1, 5) if wrongs.random() < 0.1}
    sessions = draw(published(), 2.0, 0, 0.1)
    assert sessions.at == pytest.approx(at)
    assert {(int(s), int(k)) for s, k in np.argwhere(sessions.wrong[:255])} == wrong


def test_more_errors_include_fewer_and_meet_the_same_arrivals():
    few, many = (draw(published(), 2.0, 3, errors) for errors in (0.1, 0.2))
    assert (many.wrong >= few.wrong).all() and many.wrong.sum() > few.wrong.sum()
    assert not many.wrong[:, 0].any()
    assert (few.at == many.at).all() and (few.fresh == many.fresh).all()


def test_ttfet_is_ordered_as_published_in_every_draw(found):
    ordered = [p95(found, name) for name in ("conserve", "collocated", "errors-0.1", "disaggregated")]
    for better, worse in pairwise(ordered):
        assert (better < worse).all()
    assert (ordered[3] > 5 * ordered[2][0]).all()  # far above


def test_ttfet_is_near_the_published_figures_in_the_authors_draw(found):
    # Published (read off the figure): 4.07, 5.6, 8.3, 105. Ours are lower: 3.74, 4.75, 7.67, 86.
    published_p95 = {"conserve": 4.07, "collocated": 5.6, "errors-0.1": 8.3, "disaggregated": 105.0}
    for name, value in published_p95.items():
        assert p95(found, name)[0] == pytest.approx(value, rel=0.2), name


def test_the_gain_over_one_error_in_ten_is_51_percent_within_15_points(found):
    by_draw = gain(found, SATURATED, "errors-0.1")
    assert by_draw[0] == pytest.approx(0.51, abs=0.01)  # the authors' draw
    assert by_draw.mean() == pytest.approx(0.51, abs=0.15)
    assert by_draw.min() > 0.45  # other draws gain more, up to 73 %


def test_no_session_of_conserve_is_above_five_times_and_one_in_ten_errors_are(found):
    # Published: 0 and ~13 %.
    assert found.row("conserve", SATURATED).mean("ttfet_above_5") == 0.0
    assert found.row("errors-0.1", SATURATED).by_seed("ttfet_above_5")[0] == pytest.approx(0.13, abs=0.03)


def test_at_most_51_to_56_sessions_are_in_flight(found):
    for name in ("conserve", "conserve-per-turn", "errors-0.1"):
        most = found.row(name, SATURATED).by_seed("in_flight_max")
        assert most[0] >= 51 and most.mean() >= 51 and most.max() <= 56, name  # 50 in one draw


def test_errors_hurt_more_the_more_there_are(found):
    names = ["errors-0", "errors-0.05", "errors-0.1", "errors-0.2", "errors-0.5"]
    for metric in ("ttfet_x_p95", "ttfet_x_gmean", "ttfet_above_5"):
        means = [found.row(name, SATURATED).mean(metric) for name in names]
        assert means == sorted(means), metric


def test_without_errors_it_is_conserve_with_kv_per_turn_to_the_bit(found):
    for rate in found.rates:
        a, b = found.row("errors-0", rate).values, found.row("conserve-per-turn", rate).values
        assert a.tobytes() == b.tobytes()
    sessions = draw(published(), SATURATED, 0, 0.0)
    a, b = (run(sessions, rules, 3).token_s for rules in (Rules(CONSERVE, PER_TURN), Rules(kv=PER_TURN)))
    assert a.tobytes() == b.tobytes()


def test_below_saturation_conserve_collocated_and_errors_are_within_ten_percent(found):
    for rate in (0.5, 0.75, 1.0):
        means = {
            name: found.row(name, rate).mean("ttfet_x_gmean")
            for name in ("conserve", "collocated", "errors-0.1")
        }
        assert max(means.values()) / min(means.values()) < 1.10, (rate, means)


def test_kv_moves_once_per_conversation_and_once_per_turn_fully_disaggregated(found):
    for row in found.rows:
        moves = {"collocated": 0, "disaggregated": 5}.get(row.system.name, 1)
        assert (row.by_seed("moves_per_session") == moves).all()


def test_full_disaggregation_gets_half_the_tokens_per_joule(found):
    # Published 61.9 and 30.3 (2.04 times); our watts are fitted to the first.
    ours = found.row("conserve", SATURATED).mean("tokens_per_j")
    assert ours / found.row("disaggregated", SATURATED).mean("tokens_per_j") == pytest.approx(2.04, abs=0.1)


def test_errors_cost_tokens_per_joule_when_there_are_many(found):
    per_j = {
        name: found.row(name, SATURATED).mean("tokens_per_j")
        for name in ("errors-0", "errors-0.2", "errors-0.5")
    }
    assert per_j["errors-0"] > per_j["errors-0.2"] > per_j["errors-0.5"]


def test_counted_from_the_start_conserve_is_not_ahead_of_collocated_engines(found):
    """Not in the paper: the waits that it leaves out turn the first pair around."""
    ours, theirs = (
        found.row(name, SATURATED).by_seed("counted_ttfet_x_p95") for name in ("conserve", "collocated")
    )
    assert (ours > theirs).all()


def test_wrong_turns_as_the_authors_recorded_them_give_the_same_picture():
    """Their wrong turns do not wait for each other and delay first turns on paper only: 7.67, too."""
    tokens, sessions = published(), draw(published(), SATURATED, 0, 0.1)
    talks = [
        Conversation(float(at), fresh.tolist(), output.tolist(), {int(k) for k in np.flatnonzero(wrong)})
        for at, fresh, output, wrong in zip(*sessions, strict=True)
    ]
    results = Judged(talks, "conserve", 3, "per_turn", prefiller=Recorded()).run()
    alone = isolated_sessions(tokens.fresh, tokens.output, A40).ttfet_s
    times = np.sort([result.ttfet / one for result, one in zip(results, alone, strict=True)])
    assert times[243] == pytest.approx(7.7, abs=0.1)  # the 244th of 256: p95
