"""Lines to rows: one bad line costs itself, wherever it stands and whatever is wrong with it."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from agentctl.ingest.lines import LineDecoder
from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Chunk


class Row(msgspec.Struct):
    n: int
    text: str | None = None


GOOD = b'{"n": 1}'


def decode(data: bytes, first_line: int = 1) -> tuple[list, list[int], int, list[tuple[int, str]]]:
    """(rows, their lines, blank lines, faults)"""
    quarantine = Quarantine("log")
    n_lines = len(data.removesuffix(b"\n").split(b"\n"))
    lines = LineDecoder(Row, quarantine).decode(Chunk(data, first_line, n_lines, 0))
    return lines.rows, lines.lines.tolist(), lines.n_blank, [(p.line, p.reason) for p in quarantine.places]


FAULTS = [
    (b'{"n": 1', "not_json"),
    (b'{"n": 1,}', "not_json"),
    (b'{"n": "1", "text": "a', "not_json"),  # only the lax rule reads as far as the cut
    (b'{"n": NaN}', "not_json"),
    (b'{"n": Infinity}', "not_json"),
    (b'{"n": 01}', "not_json"),
    (b"plain words", "not_json"),
    (b'{"n": 1} {"n": 2}', "not_json"),
    (b'{"n": 1}{"n": 2}', "not_json"),
    (b'{"n": 1, "text": "a\0b"}', "not_json"),
    (b"null", "wrong_type"),
    (b"[1, 2]", "wrong_type"),
    (b'"text"', "wrong_type"),
    (b"17", "wrong_type"),
    (b'{"n": 1.5}', "wrong_type"),
    (b'{"n": "1.5"}', "wrong_type"),
    (b'{"n": true}', "wrong_type"),
    (b'{"n": null}', "wrong_type"),
    (b'{"n": [1]}', "wrong_type"),
    (b"{}", "missing_field"),
    (b'{"m": 1}', "missing_field"),
    (b'{"n": 1, "text": "\xff"}', "invalid_utf8"),
    (b'{"n": 1, "other": "\xed\xa0\x80"}', "invalid_utf8"),
    (b'{"n": 1, "text": "\\ud800"}', "lone_surrogate"),
    (b'{"n": 1, "other": "\\udc00 x"}', "lone_surrogate"),
    (b'{"n": 1, "other": ' + b"[" * 5000 + b"]" * 5000 + b"}", "nested_too_deep"),
    (b'{"n": 1, "other": ' + b'{"a":' * 5000 + b"1" + b"}" * 5000 + b"}", "nested_too_deep"),
]


@pytest.mark.parametrize(("bad", "reason"), FAULTS)
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_bad_line_is_set_aside_and_all_others_are_kept(bad, reason, position):
    lines = [GOOD, GOOD]
    lines.insert(position, bad)
    rows, numbers, n_blank, faults = decode(b"\n".join(lines) + b"\n", first_line=11)
    assert faults == [(11 + position, reason)]
    assert numbers == [n for n in (11, 12, 13) if n != 11 + position]
    assert (len(rows), n_blank) == (2, 0)


@pytest.mark.parametrize(("bad", "reason"), FAULTS)
def test_a_blank_line_does_not_hide_a_bad_one(bad, reason):
    rows, numbers, n_blank, faults = decode(b"\n".join([bad, b"", GOOD]))
    assert (numbers, n_blank, faults) == ([3], 1, [(1, reason)])
    assert rows == [Row(1)]


def test_an_object_over_two_lines_and_two_on_one_do_not_make_up_for_each_other():
    rows, numbers, _, faults = decode(b'{"n":\n1}\n{"n": 2} {"n": 3}\n{"n": 4}\n')
    assert (rows, numbers) == ([Row(4)], [4])
    assert [line for line, _ in faults] == [1, 2, 3]


@pytest.mark.parametrize("text", [b'{"n": "12"}', b'{"n": 12.0}', b'{"n": 1.2e1}', b'{"n": 12}'])
def test_the_lax_rule_takes_whole_numbers_only(text):
    assert decode(text)[0] == [Row(12)]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("has_last", [True, False])
def test_line_ends_and_blank_lines_change_no_row(end, has_last):
    data = end.join([b"", GOOD, b"  ", b' {"n": 2} ', b"", b'{"n": 3}']) + (end if has_last else b"")
    rows, numbers, n_blank, faults = decode(data)
    assert (rows, numbers, n_blank, faults) == ([Row(1), Row(2), Row(3)], [2, 4, 6], 3, [])


def test_the_last_of_two_equal_keys_counts():
    assert decode(b'{"n": 1, "n": 2}')[0] == [Row(2)]


def test_escaped_nul_and_surrogate_pairs_are_text():
    rows, _, _, faults = decode(b'{"n": 1, "text": "a\\u0000b \\ud83d\\ude00"}')
    assert (rows, faults) == ([Row(1, "a\0b \U0001f600")], [])


def test_a_skipped_line_is_set_aside_with_its_length():
    quarantine = Quarantine("log")
    lines = LineDecoder(Row, quarantine).decode(Chunk(b"", 7, 1, 100, skipped_bytes=5000))
    (place,) = quarantine.places
    assert (place.line, place.byte_offset, place.length, place.reason) == (7, 100, 5000, "line_too_long")
    assert lines.rows == []


pieces = st.sampled_from(
    ["\\ud83d", "\\ude00", "\\\\", "\\n", "u", "d", "83d", "ud800", "\\uDBFF", "\\uDC01", "x"]
)


@given(st.lists(pieces, max_size=8).map("".join))
@example("\\\\ud800")
@example("\\\\\\ud800")
@example("\\ud83d\\ude00\\ude00")
def test_a_surrogate_without_its_other_half_is_found_wherever_it_hides(text):
    line = f'{{"n": 1, "other": "{text}"}}'
    value = json.loads(line)["other"]
    has_lone = any(0xD800 <= ord(c) <= 0xDFFF for c in value)
    rows, _, _, faults = decode(line.encode())
    assert bool(faults) == has_lone
    assert len(rows) == (not has_lone)


@given(
    st.lists(
        st.sampled_from([GOOD, b"", b"nope", b'{"n": 2.5}', b'{"n":\n3}', b'{"n": 4} {"n": 5}']), max_size=9
    )
)
def test_every_line_is_counted_exactly_once(lines):
    data = b"\n".join(lines)
    rows, numbers, n_blank, faults = decode(data)
    found = sorted([*numbers, *(line for line, _ in faults)])
    assert len(found) + n_blank == len(data.removesuffix(b"\n").split(b"\n")) if data else True
    assert found == sorted(set(found))
    assert len(rows) == sum(line == GOOD for line in lines)
