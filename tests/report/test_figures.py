"""What plotly.js is told to draw: bands, intervals, panels, heat and marks."""

import pytest

from agentctl.present import Curve, Figure, Heat, Mark
from agentctl.report.figures import plotly_spec
from agentctl.report.strokes import stroke, swatch


def figure(*curves, **more):
    return Figure("f", "Which?", "load", "share", curves, "That one.", **more)


def test_a_band_lies_under_its_line_and_leaves_out_open_ends():
    line = Curve("a", (1.0, 2.0, 3.0), (0.9, 0.8, 0.7), low=(0.8, None, 0.6), high=(1.0, 0.9, 0.8))
    low, high, drawn = plotly_spec(figure(line))["data"]
    assert (low["x"], low["y"], high["y"]) == ([1.0, 3.0], [0.8, 0.6], [1.0, 0.8])
    assert (low["fill"], high["fill"], "fill" in drawn) == ("none", "tonexty", False)
    assert low["hoverinfo"] == high["hoverinfo"] == "skip"
    assert low["meta"] == high["meta"] == drawn["meta"]  # hidden together


def test_points_have_bars_as_long_as_their_intervals():
    points = Curve("a", (1.0, 2.0), (0.5, 0.5), "points", low=(0.25, None), high=(1.0, 0.75))
    (trace,) = plotly_spec(figure(points))["data"]
    assert trace["error_y"]["array"] == [0.5, 0.25]
    assert trace["error_y"]["arrayminus"] == [0.25, 0.0]


def test_points_at_names_have_their_bars_along_x_and_do_not_hide_each_other():
    curves = [Curve(name, (0.1, 0.2), (0, 1), "points", low=(0.0, 0.1), high=(0.2, 0.3)) for name in "ab"]
    a, b = plotly_spec(figure(*curves, categories=("one", "two")))["data"]
    assert "error_x" in a and "error_y" not in a
    assert all(one < other for one, other in zip(a["y"], b["y"], strict=True))
    assert [round(y) for y in a["y"]] == [round(y) for y in b["y"]] == [0, 1]


def test_panels_share_x_and_the_scale_of_y_and_the_first_is_on_top():
    curves = [Curve("mean", (0.0, 1.0), (1.0, 2.0), panel=place) for place in range(3)]
    spec = plotly_spec(figure(*curves, panels=("a", "b", "c")))
    assert [trace.get("yaxis", "y") for trace in spec["data"]] == ["y", "y2", "y3"]
    axes = [spec["layout"][name] for name in ("yaxis", "yaxis2", "yaxis3")]
    assert axes[0]["domain"][0] > axes[1]["domain"][1] > axes[2]["domain"][1]
    assert axes[1]["matches"] == axes[2]["matches"] == "y"
    assert [note["text"] for note in spec["layout"]["annotations"]] == ["<b>a</b>", "<b>b</b>", "<b>c</b>"]


def test_a_cell_of_a_heat_map_stands_between_its_edges():
    heat = Heat((0.0, 10.0, 20.0), ((1.0, float("nan")), (3.0, 4.0)), "busy")
    (trace,) = plotly_spec(figure(heats=(heat,)))["data"]
    assert trace["x"] == [5.0, 15.0]
    assert trace["z"] == [[1.0, None], [3.0, 4.0]]


@pytest.mark.parametrize(("x_log", "x"), [(True, 2.0), (False, 100.0)])
def test_a_mark_is_named_where_its_line_is(x_log, x):
    spec = plotly_spec(
        figure(Curve("a", (1.0, 9.0), (0.0, 1.0)), x_log=x_log, marks=(Mark("limit", x=100.0),))
    )
    assert spec["layout"]["shapes"][0]["x0"] == 100.0  # shapes take values, notes powers of ten
    assert spec["layout"]["annotations"][0]["x"] == x


def test_two_lines_differ_in_more_than_colour():
    many, few = (1.0,) * 50, (1.0,) * 5
    for x in (many, few):
        looks = [stroke(Curve(str(n), x, x), n)._replace(colour="") for n in range(4)]
        assert len(set(looks)) == 4


def test_the_same_thing_looks_the_same_in_every_figure():
    one = Curve("smetric", (1.0,) * 20, (1.0,) * 20, colour=3)
    assert stroke(one, 0) == stroke(one, 5)
    assert stroke(one, 0).colour in swatch(one, 7)


def test_an_axis_of_counts_has_whole_numbers_where_there_are_points():
    points = Curve("a", (3.9, 5.1, 8.0), (1.0, 2.0, 3.0), "points")
    axis = plotly_spec(figure(points, x_unit="count"))["layout"]["xaxis"]
    assert axis["tickvals"] == [4, 5, 8]
