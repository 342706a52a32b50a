"""Values of untyped cells: exact, never rounded, and the fast way equals the plain one."""

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.formats._cells import (
    Instant,
    convert_all,
    decimal,
    instant,
    json_list,
    nanoseconds,
    number,
    text,
    truth,
    whole,
)


@pytest.mark.parametrize(
    ("cell", "value"),
    [("12", 12), (" 12 ", 12), ("12.0", 12), ("12.", 12), ("-3", -3), ("+3", 3), ("007", 7), (12, 12),
     (12.0, 12),
     (float("nan"), None), ("", None), (None, None), ("18446744073709551616", 2**64), (Decimal("5"), 5)],
)  # fmt: skip
def test_whole_numbers_by_the_lax_rule(cell, value):
    assert whole(cell) == value


@pytest.mark.parametrize(
    "cell", ["1.5", "1e3", "1_000", "x", "0x10", "١٢", "NaN", "--1", "1 2", 1.5, True, [1], b"1", "9" * 50]
)
def test_what_is_no_whole_number_is_refused(cell):
    with pytest.raises(ValueError):
        whole(cell)


@pytest.mark.parametrize("cell", ["nan", "inf", "Infinity", "1,5", "1e", "", "0x1"])
def test_what_is_no_number_is_refused_or_unknown(cell):
    if cell == "":
        assert number(cell) is None
    else:
        with pytest.raises(ValueError):
            number(cell)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=0, max_value=1e12))
def test_a_float_is_the_decimal_that_it_is_written_as(value):
    assert decimal(value) == decimal(repr(value)) == Decimal(repr(value))


def test_seconds_of_a_float_become_the_nanoseconds_that_are_written():
    assert nanoseconds(decimal(1794474012.043457), "s") == 1_794_474_012_043_457_000
    assert nanoseconds(decimal("1794474012.043457123"), "s") == 1_794_474_012_043_457_123


@pytest.mark.parametrize("value", [Decimal("Infinity"), Decimal("1e40")])
def test_times_beyond_every_clock_are_refused(value):
    with pytest.raises(ValueError):
        nanoseconds(value, "s")


@given(
    st.datetimes(min_value=datetime(1900, 1, 1), max_value=datetime(2200, 1, 1)),
    st.integers(0, 999),
    st.none() | st.integers(-23 * 60, 23 * 60),
    st.sampled_from("T "),
)
def test_dates_are_exact_to_the_nanosecond_in_any_zone(date, extra_ns, offset_minutes, blank):
    zone = timezone(timedelta(minutes=offset_minutes or 0))
    written = date.isoformat(blank, "microseconds") + f"{extra_ns:03d}"
    if offset_minutes is not None:
        hours, minutes = divmod(abs(offset_minutes), 60)
        written += f"{'-' if offset_minutes < 0 else '+'}{hours:02d}:{minutes:02d}"
    since = date.replace(tzinfo=zone) - datetime(1970, 1, 1, tzinfo=UTC)
    ns = (since // timedelta(microseconds=1)) * 1000 + extra_ns
    assert instant(written) == Instant(ns, offset_minutes is not None)


@pytest.mark.parametrize(
    "cell", ["2023-11-16", "2023-13-01 00:00:00", "2023-02-30 00:00:00", "2023-11-16 25:00:00", "now",
             "16/11/2023", "2023-11-16 00:00", "2023-11-16 00:00:00 CET", "2023-11-16 00:00:00."]
)  # fmt: skip
def test_what_is_no_full_date_is_refused(cell):
    with pytest.raises(ValueError):
        instant(cell)


cell_texts = st.one_of(
    st.integers(-(10**20), 10**20).map(str),
    st.integers(0, 10**4).map(str),
    st.sampled_from(["", " 1", "0x10", "1_0", "+1", "1.0", "1.5", "١", "00"]),
    st.datetimes(min_value=datetime(1960, 1, 1), max_value=datetime(2200, 1, 1)).map(str),
    st.sampled_from(
        ["2023-11-16", "2023-11-16 18:17:03.9799600", "2023-11-16 18:17:03Z", "2023-11-16T18:17:03"]
    ),
)


@given(st.lists(cell_texts, max_size=4), st.sampled_from([whole, instant]))
def test_converting_at_once_equals_converting_one_by_one(cells, convert):
    at_once = convert_all(convert, cells)
    if at_once is not None:
        assert at_once == [convert(cell) for cell in cells]


def test_converting_at_once_is_used_where_it_can_be():
    assert convert_all(whole, ("1", "22")) == [1, 22]
    assert convert_all(instant, ("1970-01-01 00:00:01.0000001",)) == [Instant(1_000_000_100, False)]


def test_names_truths_and_lists():
    assert (text(5), text("a"), text(""), text(None)) == ("5", "a", None, None)
    assert (truth("True"), truth(0), truth(False), truth("")) == (True, False, False, None)
    assert (json_list("[1, 2]"), json_list([2**64 - 1]), json_list("")) == (
        b"[1, 2]",
        b"[18446744073709551615]",
        None,
    )
    for convert, bad in (
        (text, {"a": 1}),
        (text, True),
        (truth, "maybe"),
        (json_list, "[1,"),
        (json_list, "1 2"),
    ):
        with pytest.raises(ValueError):
            convert(bad)


@pytest.mark.parametrize("zone", ["", "Z", "+00:00", "+00", "+01:00"])
@pytest.mark.parametrize(
    "other", ["2026-11-12 09:00:12", "2026-11-12T09:00:12.043Z", "2026-11-12 09:00:12.5+02"]
)
def test_dates_of_one_zone_are_read_at_once_and_those_of_several_one_by_one(zone, other):
    cells = [f"2026-11-12 09:00:12.043{zone}", f"2024-02-29T23:59:59.999999{zone}"]
    for texts in (cells, [*cells, other]):
        at_once = convert_all(instant, texts)
        assert at_once is None or at_once == [instant(text) for text in texts]
    assert (convert_all(instant, cells) is None) == (zone == "+01:00")
