"""Strings from a log must not act on a terminal, a page or a spreadsheet."""

import csv
import io

from hypothesis import given
from hypothesis import strategies as st

from agentctl.report.escape import printable, table_cell

ANY_TEXT = st.text(st.characters(codec=None), max_size=40)  # surrogates and control characters included


@given(ANY_TEXT)
def test_nothing_invisible_is_left(text):
    assert printable(text).isprintable()


@given(ANY_TEXT)
def test_visible_text_stays_as_it_is(text):
    visible = "".join(char for char in text if char.isprintable())
    assert printable(visible) == visible


def test_an_ansi_escape_is_spelled_out():
    assert printable("a\x1b[31mred") == r"a\x1b[31mred"


def test_a_right_to_left_override_is_spelled_out():
    assert printable("abc\u202etxt.exe") == r"abc\u202etxt.exe"


def test_a_formula_is_text_to_a_spreadsheet():
    assert [table_cell(text) for text in ("=1+1", "+1", "-1", "@x", "fine")] == [
        "'=1+1",
        "'+1",
        "'-1",
        "'@x",
        "fine",
    ]


@given(st.lists(ANY_TEXT, min_size=2, max_size=4))
def test_cells_joined_by_tabs_split_into_the_same_cells(texts):
    cells = [table_cell(text) for text in texts]
    line = "\t".join(cells)
    assert next(csv.reader(io.StringIO(line), delimiter="\t", quoting=csv.QUOTE_NONE)) == cells
