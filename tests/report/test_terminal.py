"""Tables for people at a terminal, rows for pipes, both from the same sections."""

import pytest

from agentctl.present import Fact, Section, Table
from agentctl.report.terminal import render

HOSTILE = "<script>[red]x[/red]\x1b[31m=cmd()"
TABLE = Table(
    columns=(("policy", ""), ("peak", "per_min"), ("ttft p95", "s")),
    rows=(("smetric", 41.2, 1.87), ("round-robin", 22.5, 1.96), (HOSTILE, None, 0.5)),
    best={1: 0},
)
VERDICT = Section(
    "verdict",
    "Verdict",
    "smetric carries 12 % more",
    facts=(Fact("ideal reuse", 0.8312, "ratio", "what an infinite cache finds"),),
    tables=(TABLE,),
    assumptions=("block size 16 tokens", "fresh metrics"),
    warnings=("the trace is short",),
)
PHASES = Section("phases", "Two phases", "the structure holds")


@pytest.fixture(autouse=True)
def wide_and_plain(monkeypatch):
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")


def on_terminal(*sections, verbose=False):
    text = render(sections, terminal=True, verbose=verbose)
    for code in ("\x1b[1m", "\x1b[2m", "\x1b[0m"):  # bold and dim are no colours
        text = text.replace(code, "")
    return text


def test_the_answer_comes_first_and_without_a_heading():
    assert on_terminal(VERDICT).splitlines()[0] == "smetric carries 12 % more"


def test_other_sections_have_their_title():
    assert on_terminal(VERDICT, PHASES).splitlines()[-2:] == ["Two phases", "the structure holds"]


def test_numbers_stand_right_aligned_under_a_header_with_their_unit():
    lines = on_terminal(VERDICT).splitlines()
    header = next(line for line in lines if line.startswith("policy"))
    row = next(line for line in lines if line.startswith("round-robin"))
    assert header.endswith("ttft p95 ms") and row.endswith("1,960")
    assert len(header) == len(row)


def test_the_best_value_is_marked_without_colour():
    assert "41.2*" in on_terminal(VERDICT)


def test_what_is_not_the_answer_is_short_unless_asked_for():
    long = Section("load", "Load", "it is low", VERDICT.facts, (TABLE,), assumptions=("Poisson",))
    brief, whole = on_terminal(PHASES, long), on_terminal(PHASES, long, verbose=True)
    assert "round-robin" not in brief and "Poisson" not in brief
    assert brief.endswith("\n1 more table and all assumptions: -v\n")
    assert "round-robin" in whole and "Poisson" in whole
    assert "round-robin" in on_terminal(long)  # the only section is the answer


def test_a_section_of_assumptions_alone_is_one_line():
    assumed = Section(
        "assumed", "What was assumed", "It holds under these.", assumptions=("Poisson", "no tier")
    )
    assert on_terminal(PHASES, assumed).endswith("\n\nassumed: Poisson; no tier\n")


def test_assumptions_that_do_not_fit_are_counted():
    many = Section("verdict", "", "yes", assumptions=tuple(f"assumption {n} " + "x" * 60 for n in range(9)))
    assert "and 7 more (-v)" in on_terminal(many).replace("\n", " ")


def test_meanings_appear_when_asked_for():
    assert "infinite cache" not in on_terminal(VERDICT)
    assert "infinite cache" in on_terminal(VERDICT, verbose=True)


def test_markup_and_escapes_of_a_log_are_text_on_a_terminal():
    text = on_terminal(VERDICT)
    assert "\x1b" not in text
    assert r"<script>[red]x[/red]\x1b[31m=cmd()" in text


def test_a_pipe_gets_tab_separated_rows_in_full_precision():
    lines = render((VERDICT,), terminal=False).splitlines()
    assert "ideal reuse\t0.8312\tratio" in lines
    assert "policy\tpeak per_min\tttft p95 s" in lines
    assert "smetric\t41.2\t1.87" in lines
    assert not any("\x1b" in line for line in lines)


def test_a_pipe_gets_an_empty_cell_for_what_is_unknown():
    row = next(line for line in render((VERDICT,), terminal=False).splitlines() if "script" in line)
    assert row.split("\t")[1:] == ["", "0.5"]


def test_no_color_leaves_no_colour(monkeypatch):
    coloured = "\x1b[33m"
    assert coloured not in render((VERDICT,), terminal=True)
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert coloured in render((VERDICT,), terminal=True)


def test_a_terminal_too_narrow_for_the_numbers_stacks_a_row_instead_of_cutting_it(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    headers = ("policy", "peak sessions", "low", "high", "against current", "within objectives")
    rows = (("prefix-affine", 123456.78, 113456.78, 133456.78, 23456.78, 113456.78),)
    wide = Table(
        columns=tuple((header, "" if header == "policy" else "per_min") for header in headers), rows=rows
    )
    lines = on_terminal(Section("verdict", "", "It holds.", tables=(wide,))).splitlines()
    assert "prefix-affine" in [line.strip() for line in lines]
    assert [line.split()[-1] for line in lines[-5:]] == ["123,457", "113,457", "133,457", "23,457", "113,457"]
    assert not any("…" in line or len(line) > 40 for line in lines)
