"""TOML as agentctl writes it: read back, it is what was written."""

import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.profile_file import toml_text

PLAIN = st.one_of(
    st.booleans(), st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)  # fmt: skip
KEYS = st.text(st.characters(exclude_categories=["Cs"]))
VALUES = st.recursive(
    PLAIN | st.lists(PLAIN, max_size=3), lambda inner: st.dictionaries(KEYS, inner, max_size=4)
)


@given(st.dictionaries(KEYS, VALUES, max_size=5))
def test_what_is_written_is_read_back(tables):
    assert tomllib.loads(toml_text(tables, "a comment\nof two lines")) == tables


def test_what_is_unknown_is_left_out():
    assert tomllib.loads(toml_text({"known": 1.5, "unknown": None})) == {"known": 1.5}


def test_a_number_that_is_none_is_never_written():
    with pytest.raises(ValueError, match="nan in a profile"):
        toml_text({"b0": float("nan")})
