"""Block ids: exact over the whole range of 64 bits, hexadecimal, or refused; never repaired."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.ingest.ids import parse_ids

TOP = 2**64 - 1


def chains(*texts: str) -> tuple[list[list[int]], list[bool], list[bool]]:
    """(chains, unknown, bad)"""
    ids, bad = parse_ids([text.encode() for text in texts])
    return [
        ids.values[a:b].tolist() for a, b in zip(ids.starts, ids.starts[1:], strict=False)
    ], ids.unknown.tolist(), bad.tolist()  # fmt: skip


def test_ids_are_exact_up_to_the_top_of_64_bits():
    values = [0, 1, 2**31, 2**32 - 1, 2**53 + 1, 2**63 - 1, 2**63, 10**19, 10**19 - 1, TOP - 1, TOP]
    assert chains(json.dumps(values)) == ([values], [False], [False])


@pytest.mark.parametrize(
    "text",
    [
        "[18446744073709551616]", "[99999999999999999999]", "[100000000000000000000]",
        "[36893488147419103232]", "[-1]", "[1.0]", "[1e3]", "[null]", "[[1]]", '[1, "a"]', '["a", 1]',
        '["xyz"]', '[""]', "[true]",
        '{"a": 1}', '"text"', "17", "true", "[{}]",
    ],
)  # fmt: skip
def test_one_wrong_id_makes_its_record_bad_and_no_other(text):
    assert chains("[1, 2]", text, "[3]") == ([[1, 2], [], [3]], [False] * 3, [False, True, False])


def test_an_empty_list_is_a_chain_and_null_is_none():
    assert chains("[]", "null", "[ ]") == ([[], [], []], [False, True, False], [False] * 3)


def test_hexadecimal_ids_are_the_numbers_they_write():
    found, _, bad = chains('["ff", "0xFF", "0000000000000001", "FFFFFFFFFFFFFFFF"]', "[255]")
    assert found == [[255, 255, 1, TOP], [255]]
    assert bad == [False, False]


def test_longer_hexadecimal_ids_are_folded_alike_in_any_case():
    digest = "a" * 63 + "b"
    found, _, bad = chains(f'["{digest}", "{digest.upper()}", "{digest[:-1]}c"]')
    assert bad == [False]
    assert found[0][0] == found[0][1] != found[0][2]


def test_white_space_means_nothing():
    assert chains("[ 1 ,\t2\r\n, 3 ]")[0] == [[1, 2, 3]]


numbers = (
    st.integers(0, TOP) | st.integers(0, 9) | st.integers(2**63 - 2, 2**64 + 2) | st.integers(-2, 10**21)
)
anything = st.recursive(
    st.none()
    | st.booleans()
    | numbers
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=6,
)
lists = (
    st.lists(numbers, max_size=6) | st.lists(st.integers(0, TOP).map("{:x}".format), max_size=4) | anything
)


def plain(value) -> list[int] | None:
    """The rule in plain words; None: bad."""
    if value is None:
        return []
    if not isinstance(value, list):
        return None
    if all(isinstance(item, int) and not isinstance(item, bool) and 0 <= item <= TOP for item in value):
        return value
    try:
        is_hex = all(isinstance(item, str) and item.isascii() and item.isalnum() for item in value)
        return [int(item, 16) for item in value] if is_hex else None
    except ValueError:
        return None


@given(st.lists(lists, min_size=1, max_size=5), st.sampled_from([None, 1]))
def test_parsing_text_equals_parsing_values(values, indent):
    texts = [msgspec.Raw(json.dumps(value, indent=indent).encode()) for value in values]
    ids, bad = parse_ids(texts)
    for row, value in enumerate(values):
        expected = plain(value)
        assert bad[row] == (expected is None)
        assert ids.unknown[row] == (value is None)
        assert ids.values[ids.starts[row] : ids.starts[row + 1]].tolist() == (expected or [])


def test_taking_rows_keeps_their_chains():
    ids, _ = parse_ids([b"[1, 2]", b"[]", b"null", b"[3]"])
    kept = ids.take(np.array([True, False, True, True]))
    assert kept.starts.tolist() == [0, 2, 2, 3]
    assert kept.values.tolist() == [1, 2, 3]
    assert kept.unknown.tolist() == [False, True, False]
