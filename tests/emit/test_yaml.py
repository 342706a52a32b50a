"""What is written as YAML is read back unchanged, whatever the text is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from oracles.yaml_reader import read_yaml

from agentctl.emit._yaml import yaml_text

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=12) | st.sampled_from(
    [
        "yes",
        "No",
        "null",
        "~",
        "1e5",
        "0x1f",
        "1_0",
        "12:30",
        "- a",
        "a: b",
        "a\n",
        "\n",
        "{a",
        "&a",
        "#",
        "|",
        "",
    ]
)
NUMBERS = st.integers(-(10**12), 10**12) | st.floats(allow_nan=False, allow_infinity=False)
VALUES = st.recursive(
    TEXT | NUMBERS | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXT, VALUES, min_size=1, max_size=3))
def test_a_document_is_read_back_unchanged(document):
    assert read_yaml(yaml_text(document)) == document


def test_the_text_is_plain_and_nested_lists_are_indented():
    document = {"plugins": [{"type": "a", "parameters": {"x": 0.8, "on": True}}, {"type": "b"}], "n": 1}
    assert yaml_text(document) == (
        'plugins:\n  - type: a\n    parameters:\n      x: 0.8\n      "on": true\n  - type: b\n"n": 1\n'
    )


def test_lines_stand_as_they_are():
    assert yaml_text({"file": "a: 1\n\n  b\n"}) == "file: |\n  a: 1\n\n    b\n"


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_no_setting_is_infinite(value):
    with pytest.raises(AssertionError):
        yaml_text({"x": value})
