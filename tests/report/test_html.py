"""The page works without a network, is the same for the same result, and lets no log string act."""

import json
import re
from html.parser import HTMLParser

import pytest

from agentctl.present import Curve, Fact, Figure, Section, Table
from agentctl.report.figures import plotly_spec
from agentctl.report.html import html_page

HOSTILE = "</script><script>alert(1)</script> <b>x</b> \x1b[31m"
FIGURE = Figure(
    name="lru",
    question="How much cache is enough?",
    x_label="cache (tokens)",
    y_label="prompt tokens found",
    curves=(
        Curve("LRU", (1.0, 2.0), (0.1, float("nan")), "step"),
        Curve(HOSTILE, (1.0,), (0.5,)),
    ),
    conclusion="It flattens at 4 M tokens.",
    x_log=True,
    y_unit="ratio",
)
SECTIONS = (
    Section(
        "verdict",
        "Verdict",
        "smetric carries 12 % more",
        facts=(Fact("ideal reuse", 0.8312, "ratio", "what an infinite cache finds"),),
        tables=(Table((("policy", ""), ("hit", "ratio")), ((HOSTILE, 0.8), ("b", None)), best={1: 0}),),
        assumptions=("fresh metrics",),
        warnings=("the trace is short",),
    ),
    Section("reuse", "Reuse", "most tokens repeat", figures=(FIGURE,), assumptions=("fresh metrics",)),
)
PROVENANCE = (("command", "agentctl recommend day.trace"), ("seed", "0"))


class Tags(HTMLParser):
    """Every opened tag with its attributes, and whether all tags are closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.opened: list[tuple[str, dict[str, str | None]]] = []
        self.open_now: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.opened.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "link", "img"):
            self.open_now.append(tag)

    def handle_endtag(self, tag):
        assert self.open_now.pop() == tag


@pytest.fixture(scope="module")
def page():
    return html_page("day", "agentctl recommend", SECTIONS, PROVENANCE).decode()


def without_scripts(page):
    return re.sub(r"<script.*?</script>", "", page, flags=re.DOTALL)


def test_every_tag_is_closed(page):
    assert Tags(page).open_now == []


def test_nothing_is_loaded_from_anywhere(page):
    tags = Tags(page)
    assert not [tag for tag, attributes in tags.opened if tag in ("link", "img", "iframe")]
    assert not [attributes for _, attributes in tags.opened if "src" in attributes]
    policy = next(a["content"] for t, a in tags.opened if t == "meta" and "http-equiv" in a)
    assert "default-src 'none'" in policy


def test_plotly_is_embedded_once(page):
    assert page.count("* plotly.js v") == 1
    assert len([tag for tag, _ in Tags(page).opened if tag == "script"]) == 3


def test_a_page_without_figures_needs_no_script():
    assert "<script" not in html_page("day", "agentctl analyze", SECTIONS[:1], ()).decode()


def test_every_line_of_a_figure_has_a_button_in_its_legend(page):
    buttons = [attributes for tag, attributes in Tags(page).opened if tag == "button"]
    assert [(button["data-figure"], button["data-entry"]) for button in buttons] == [
        ("lru", "0"),
        ("lru", "1"),
    ]


def test_the_first_sentence_of_the_verdict_is_its_answer():
    verdict = Section("verdict", "", "a carries 1.65 /min more. It is cheap. Is it?")
    assert (
        "<strong>a carries 1.65 /min more.</strong> <span>It is" in html_page("", "", (verdict,), ()).decode()
    )


def test_a_list_of_sections_leads_a_long_report():
    long = [SECTIONS[0], *(Section(f"s{n}", f"Part {n}", "so") for n in range(6))]
    assert '<a href="#s5">Part 5</a>' in html_page("", "", long, ()).decode()
    assert "<nav" not in html_page("", "", SECTIONS, ()).decode()


def test_the_same_result_gives_the_same_bytes(page):
    assert html_page("day", "agentctl recommend", SECTIONS, PROVENANCE).decode() == page


def test_the_order_is_verdict_table_figures_reading_assumptions_provenance(page):
    text = without_scripts(page)
    marks = ["12 % more", "<table>", 'class="plot"', "How to read this", "Assumptions", "Provenance"]
    places = [text.index(mark) for mark in marks]
    assert places == sorted(places)


def test_a_script_in_a_log_is_text(page):
    assert "alert(1)</script>" not in page
    assert "&lt;script&gt;alert(1)" in without_scripts(page)
    assert "\x1b" not in without_scripts(page)


def test_every_figure_has_question_units_and_conclusion(page):
    text = without_scripts(page)
    for part in (FIGURE.question, FIGURE.y_label, FIGURE.conclusion, 'id="figure-lru"'):
        assert part in text
    data = json.loads(re.search(r'id="figures">(.*?)</script>', page, re.DOTALL)[1])
    assert data[0]["layout"]["xaxis"]["title"]["text"] == FIGURE.x_label


def test_an_assumption_made_twice_is_said_once(page):
    assert page.count("fresh metrics") == 1


def test_without_a_verdict_the_sentences_lead():
    page = html_page("day", "agentctl analyze", SECTIONS[1:], ()).decode()
    assert page.index("most tokens repeat") < page.index("<h2>Reuse</h2>")


def test_a_gap_in_a_curve_stays_a_gap():
    assert plotly_spec(FIGURE)["data"][0]["y"] == [0.1, None]


@pytest.mark.parametrize(
    ("x", "ticks"),
    [
        ((0.3, 4.0), {"tickvals": [0.2, 0.5, 1.0, 2.0, 5.0]}),
        ((10.0, 1e6), {"ticktext": ["10", "100", "1,000", "10k", "100k", "1M"]}),
        ((1e-3, 2.0), {"ticktext": ["0.001", "0.01", "0.1", "1"]}),
        ((1.0, 1e12), {"ticktext": ["1", "100", "10k", "1M", "100M", "10G", "1000G"]}),
    ],
)
def test_a_log_axis_is_labelled_in_full_numbers(x, ticks):
    figure = Figure("load", "?", "load (per minute)", "share", (Curve("a", x, x),), "", x_log=True)
    axis = plotly_spec(figure)["layout"]["xaxis"]
    assert {key: axis[key] for key in ticks} == ticks


def test_tags_in_the_name_of_a_curve_are_text_to_plotly():
    assert "<" not in plotly_spec(FIGURE)["data"][1]["name"]


@pytest.mark.parametrize(("row", "shape"), [(("x" * 40, "b"), "scroll"), (("a", "x" * 40), "wordy")])
def test_long_words_are_stacked_on_a_phone_but_long_names_are_not(row, shape):
    table = Table((("policy", ""), ("finding", "")), (row,))
    page = html_page("day", "agentctl x", (Section("verdict", "", "so", tables=(table,)),), ()).decode()
    assert f'<div class="{shape}"' in page


def test_a_refusal_looks_like_one_and_so_does_a_check_that_fails():
    table = Table((("check", ""), ("status", "")), (("V1", "FAIL"), ("V2", "OK")))
    refused = Section("verdict", "", "Declined: V1.", tables=(table,), is_refusal=True)
    page = html_page("day", "agentctl x", (refused,), ()).decode()
    assert '<p class="verdict refusal">' in page
    assert '<span class="bad">FAIL</span>' in page and ">OK</td>" in page
