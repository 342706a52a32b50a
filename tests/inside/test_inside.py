"""What a report shows of the inside of a run: by hand on five requests, and by laws that tie it together."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from agentctl.files import canonical_json
from agentctl.inside import Look, document, sections
from agentctl.inside.engines import load_figure, on_engines
from agentctl.inside.hits import hits_figure
from agentctl.inside.hot import hot_figure
from agentctl.inside.latency import ttft_figure
from agentctl.inside.look import SOURCES, sources
from agentctl.metrics import Run

NAN = np.nan
SPOTS = {
    "window_s": 10.0,
    "start_s": 0.0,
    "prefill_s": [[5.0, 1.0], [2.5, 0.0]],
    "mean_of": "all engines",
    "hot": [
        {"engine": 1, "from_s": 0.0, "to_s": 10.0, "busy_ratio": 0.5, "times_mean": 1.33},
    ],
}
REGRET = {
    "requests": 2,
    "ttft_regret_s": {"mean": 0.5, "p95": 1.0},
    "better_by": [{"than_s": 0.0, "share": 0.5}, {"than_s": 0.1, "share": 0.5}],
}


@pytest.fixture
def run():
    """Engine 0 holds a request from 0 to 4 s, engine 1 from 5 to 7, 10 to 14, 15 to 20 s; one is rejected."""
    return Run(
        n_engines=2,
        n_sessions=2,
        done=np.array([True, True, True, True, False]),
        session=np.array([0, 1, 0, 1, 0], dtype=np.int32),
        engine=np.array([0, 1, 1, 1, -1]),
        arrival_s=np.array([0.0, 5.0, 10.0, 15.0, 20.0]),
        first_token_s=np.array([2.0, 6.0, 10.0, 16.0, NAN]),
        finish_s=np.array([4.0, 7.0, 14.0, 20.0, NAN]),
        prompt_tokens=np.array([100, 50, 200, 50, 500]),
        output_tokens=np.array([3, 1, 2, 4, 7]),
        cached_tokens=np.array([0, 0, 160, 40, 0]),
        computed_prefill_tokens=np.array([100, 50, 40, 10, 0]),
        scheduled_s=np.array([1.0, 5.0, 10.5, 15.0, NAN]),
        itl_max_s=np.array([1.5, NAN, 1.0, 1.0, NAN]),
        preemptions=np.array([0, 0, 1, 0, 0]),
        session_tokens=np.array([0, 0, 180, 40, 96]),
        copies=1.25,
    )


def looks(*runs):
    return [Look(f"p{n}", run, run, sources(run), SPOTS, REGRET, n, n == 0) for n, run in enumerate(runs)]


def test_prompt_tokens_come_from_a_cache_or_are_computed_again_or_new(run):
    """Of 400 tokens 200 were cached; the third request lacks 20 that its session had."""
    assert sources(run) == {"local": 0.5, "host": None, "cluster": None, "again": 0.05, "new": 0.45}


@given(st.data())
def test_sources_add_up_to_all_tokens(data):
    n = data.draw(st.integers(1, 8))
    counts = arrays.arrays(np.int64, n, elements=st.integers(0, 99))
    prompt, cached, session = (data.draw(counts) for _ in range(3))
    prompt = prompt + 1
    blank = np.zeros(n)
    run = Run(
        1, 1, np.ones(n, bool), np.zeros(n, np.int32), np.zeros(n, np.int64), blank, blank, blank, prompt,
        prompt, np.minimum(cached, prompt), prompt, blank, blank, prompt,
        session_tokens=np.minimum(session, prompt),
    )  # fmt: skip
    found = [share for share in sources(run).values() if share is not None]
    assert sum(found) == pytest.approx(1.0)
    assert min(found) > -1e-12


def test_without_a_finished_request_nothing_is_known(run):
    nothing = run._replace(done=np.zeros(5, dtype=bool))
    assert set(sources(nothing).values()) == {None}
    told = sections(looks(nothing), "the trace's load")
    assert [part.sentence for part in told[:3]] == ["No request was served."] * 3


def test_a_window_holds_the_mean_of_its_requests(run):
    """100 windows of 0.2 s: the first lie within the first request, 4 to 5 s within none."""
    edges, load = on_engines(run)
    assert (edges[0], edges[-1]) == (0.0, 20.0)
    np.testing.assert_allclose(load[:20], [[1.0, 0.0]] * 20)
    np.testing.assert_array_equal(load[20:25], 0.0)
    np.testing.assert_allclose(load[25:35], [[0.0, 1.0]] * 10)


def test_requests_in_windows_add_up_to_the_time_that_requests_took(run):
    """Little's law."""
    edges, load = on_engines(run)
    spent = [(run.finish_s - run.arrival_s)[run.engine == engine].sum() for engine in (0, 1)]
    np.testing.assert_allclose((load * np.diff(edges)[:, None]).sum(axis=0), spent)


def test_the_band_of_the_load_holds_its_line_and_relabelled_engines_change_nothing(run):
    (curve,) = load_figure(looks(run)).curves
    assert all(low <= mean <= high for low, mean, high in zip(curve.low, curve.y, curve.high, strict=True))
    swapped = run._replace(engine=np.where(run.done, 1 - run.engine, -1))
    assert load_figure(looks(swapped)) == load_figure(looks(run))


def test_a_request_without_wait_is_drawn_on_the_log_axis(run):
    (curve,) = ttft_figure(looks(run)).curves
    assert curve.x == (1.0, 1.0, 1.0, 2.0)  # 0 s stands at the least time there is
    assert curve.y == (0.25, 0.5, 0.75, 1.0)


def test_bars_of_a_source_that_nobody_has_are_left_out(run):
    figure = hits_figure(looks(run, run))
    assert [curve.name for curve in figure.curves] == [SOURCES[key] for key in ("local", "again", "new")]
    assert figure.categories == ("p0", "p1")


def test_a_map_of_prefill_shows_shares_of_a_window(run):
    figure = hot_figure(looks(run))
    assert figure.heats[0].x == (0.0, 10.0, 20.0)
    assert figure.heats[0].z == ((0.5, 0.1), (0.25, 0.0))


def test_several_runs_are_told_apart_in_every_figure(run):
    told = sections(looks(run, run), "the trace's load")
    assert [part.name for part in told] == ["latency", "hits", "engines", "hot-spots", "regret"]
    for part in told:
        for table in part.tables:
            assert [row[0] for row in table.rows] == ["p0", "p1"]
        for figure in part.figures:
            names = {*figure.panels, *figure.categories, *(curve.name for curve in figure.curves)}
            assert {"p0", "p1"} <= names


def test_the_document_of_a_run_has_its_numbers_and_no_curves(run):
    told = json.loads(canonical_json(document(looks(run)[0])))
    assert told["ttft_s"]["p50"] == 1.0
    assert set(told) == {"ttft_s", "tpot_s", "e2e_s", "prompt_tokens_from", "regret", "hot_spots"}


def test_what_tiers_gave_is_no_longer_the_engines_own(run):
    """Of 400 tokens 200 were found: 40 in host memory, 60 in the cluster's store, 100 on the engine."""
    tiered = run._replace(host_tokens=np.array([0, 0, 40, 0, 0]), global_tokens=np.array([0, 0, 20, 40, 0]))
    found = sources(tiered)
    assert (found["local"], found["host"], found["cluster"]) == pytest.approx((0.25, 0.1, 0.15))
    figure = hits_figure(looks(tiered))
    assert [curve.name for curve in figure.curves] == list(SOURCES.values())
