"""A page of every kind of figure in a real browser: it needs no network, complains of nothing, and can be
read on a desk and on a phone, with a mouse and without."""

from __future__ import annotations

import math

import pytest
from oracles.chromium import PROGRAM, browser
from oracles.pages import EMPTY, FAULTS, TABBED

from agentctl.present import Curve, Fact, Figure, Heat, Mark, Section, Table
from agentctl.report.html import html_page

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="no Chromium here: apt-get install chromium")

WIDTHS = (1280, 390)
HOSTILE = "</script><script>window.acted=1</script><img src=x onerror='window.acted=1'> {y} <b>x</b>"
POLICIES = ("smetric", "round-robin", HOSTILE)


def curves(x, height, **more):
    return tuple(
        Curve(name, x, tuple(height(value, place) for value in x), colour=place, **more)
        for place, name in enumerate(POLICIES)
    )


def figures():
    loads = (0.125, 0.25, 0.5, 1.0, 1.25, 2.0)
    times = tuple(0.01 * 1.05**k for k in range(150))
    capacity = curves(loads, lambda load, place: 0.95 - 0.04 * load * (1 + place))
    bands = tuple(
        Curve(one.name, one.x, one.y, low=tuple(y - 0.03 for y in one.y), high=tuple(y + 0.03 for y in one.y))
        for one in capacity
    )
    clock = tuple(float(t) for t in range(0, 3600, 60))
    rows = tuple(tuple(abs(math.sin(row + t / 500)) for t in clock[:-1]) for row in range(8))
    yield Figure(
        "capacity",
        "How much?",
        "sessions per minute",
        "share within",
        bands,
        "Far right.",
        x_log=True,
        y_unit="ratio",
        marks=(Mark("objective", y=0.9), Mark("the trace's load", x=1.0)),
    )
    yield Figure(
        "ttft",
        "How long?",
        "TTFT (s)",
        "share",
        curves(times, lambda t, place: 1 - math.exp(-t * (1 + place))),
        "High.",
        x_log=True,
        y_unit="ratio",
    )
    yield Figure(
        "hits",
        "From where?",
        "share of prompt tokens",
        "",
        tuple(Curve(part, (0.3, 0.5, 0.2), (0, 1, 2), "stack") for part in ("local", "host", "computed")),
        "Computed costs.",
        x_unit="ratio",
        categories=POLICIES,
    )
    yield Figure(
        "load",
        "When?",
        "time (s)",
        "requests",
        tuple(
            Curve(
                "mean",
                clock,
                tuple(5 + math.sin(t / 300) for t in clock),
                "step",
                panel=place,
                low=tuple(3.0 for _ in clock),
                high=tuple(8.0 for _ in clock),
            )
            for place in range(3)
        ),
        "Wide is uneven.",
        panels=POLICIES,
    )
    yield Figure(
        "heat",
        "Which?",
        "time (s)",
        "engine",
        (),
        "Dark is hot.",
        panels=POLICIES,
        heats=tuple(Heat(clock, rows, "share of time in prefill", place) for place in range(3)),
    )
    yield Figure("sensitivity", "Does it hold?", "difference (sessions/min)", "", tuple(
        Curve(name, (0.1, 0.2, -0.1), (0, 1, 2), "points", low=(0.0, None, -0.2), high=(0.2, 0.3, None))
        for name in POLICIES[:2]), "Right of zero.", categories=("slow-down", HOSTILE, "4 gateways"),
        marks=(Mark("no difference", x=0.0),))  # fmt: skip
    yield Figure("bars", "How many?", "engines", "GPUs", (Curve("a", (1.0, 2.0), (4.0, 8.0), "bar"),), "Few.")


def sections():
    rows = ((HOSTILE, 0.8, HOSTILE), ("smetric", None, "misses it at the trace's own load, by 0.4 s"))
    wordy = Table((("check", ""), ("hit", "ratio"), ("finding", "")), rows, "Checks")
    numbers = Table(
        (("policy", ""), *((f"number {n}", "s") for n in range(9))), (("smetric", *range(9)),), best={1: 0}
    )
    yield Section("verdict", "", f"No clear winner. {HOSTILE}", tables=(numbers,), warnings=(HOSTILE,))
    yield Section("checks", "Checks", "fine", facts=(Fact(HOSTILE, 0.3, "ratio", HOSTILE),), tables=(wordy,))
    for figure in figures():
        yield Section(figure.name, figure.question, "so", figures=(figure,), assumptions=(HOSTILE,))


@pytest.fixture(scope="module")
def tab():
    with browser() as opened:
        yield opened


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("pages") / "report.html"
    path.write_bytes(html_page(HOSTILE, "agentctl recommend", list(sections()), (("command", HOSTILE),)))
    return path


@pytest.fixture(scope="module", params=WIDTHS, ids=lambda width: f"{width}px")
def opened(request, tab, page):
    tab.open(page, request.param)
    return tab


def test_it_asks_for_nothing_and_complains_of_nothing(opened, page):
    asked = [address for address in opened.requests if not address.startswith("data:")]
    assert asked == [page.resolve().as_uri()]
    assert opened.errors == []


def test_what_a_log_says_does_not_act(opened):
    assert opened.run("window.acted") is None
    assert opened.run("document.querySelectorAll('main img, main b b').length") == 0


def test_every_figure_is_drawn_and_fills_its_place(opened):
    assert opened.run("document.querySelectorAll('.plot').length") == len(list(figures()))
    assert opened.run(EMPTY) == []
    heights = """[...document.querySelectorAll(".plot")].map((plot) =>
        Math.abs(plot.querySelector(".main-svg").getBoundingClientRect().height - plot.offsetHeight))"""
    assert max(opened.run(heights)) <= 1


def test_the_page_is_no_wider_than_the_window(opened):
    assert opened.run("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("fault", FAULTS)
def test_no_text_is(opened, fault):
    assert opened.run(FAULTS[fault]) == []


def test_every_part_that_does_something_is_reached_with_the_tab_key(opened):
    wanted = opened.run(TABBED)
    reached = []
    opened.run("document.activeElement.blur(), window.scrollTo(0, 0)")
    for _ in wanted:
        opened.press("Tab", 9)
        reached.append(opened.run(
            "[document.activeElement.dataset.order, getComputedStyle(document.activeElement).outlineStyle]"
        ))  # fmt: skip
    assert [order for order, _ in reached] == wanted
    assert {outline for _, outline in reached} == {"solid"}  # where one is, is seen


def test_a_button_of_the_legend_hides_its_line_and_shows_it_again(opened):
    shown = "document.getElementById('figure-capacity').data.filter(line => line.visible !== false).length"
    before = opened.run(shown)
    opened.run("document.querySelector('[data-figure=capacity]').focus()")
    opened.press("Enter", 13)
    assert opened.run("document.activeElement.getAttribute('aria-pressed')") == "false"
    assert opened.run(shown) == before - 3  # the line and both edges of its band
    opened.press(" ", 32)
    assert opened.run(shown) == before


@pytest.mark.parametrize(
    ("name", "keys", "read"),
    [
        (
            "capacity",
            ["ArrowRight"],
            f"sessions per minute 0.125: smetric 94.5%, round-robin 94%, {HOSTILE} ",
        ),
        ("capacity", ["End"], "sessions per minute 2: smetric 87%, round-robin 79%, "),
        ("hits", ["ArrowDown", "ArrowDown"], "round-robin: local 50%, host 50%, computed 50%"),
        (
            "sensitivity",
            ["ArrowRight", "End", "ArrowLeft", "ArrowLeft"],
            "slow-down: smetric 0.1, round-robin 0.1",
        ),
        ("load", ["ArrowRight"], "time (s) 0: mean 5, mean 5, mean 5"),
        ("heat", ["ArrowRight"], "time (s) 30: share of time in prefill 0 0.841 0.909 "),
    ],
)
def test_arrow_keys_read_a_figure_out(opened, name, keys, read):
    codes = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40, "End": 35}
    opened.run(f"document.getElementById('figure-{name}').focus()")
    for key in keys:
        opened.press(key, codes[key])
    assert opened.run(f"document.getElementById('reading-{name}').textContent").startswith(read)
    opened.press("Escape", 27)
    assert opened.run(f"document.getElementById('reading-{name}').textContent") == ""
    assert opened.errors == []
