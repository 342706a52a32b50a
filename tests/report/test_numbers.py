"""Units are converted in the renderer, and nothing unknown becomes a number."""

import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from agentctl.report.numbers import exact, fact_text, heading, style_of

FINITE = st.floats(min_value=-1e12, max_value=1e12)


@pytest.mark.parametrize(
    ("value", "unit", "label", "text"),
    [
        (0.814, "ratio", "hit", "81.4 %"),
        (1.99, "s", "ttft p95", "1,990 ms"),
        (0.0312, "s", "tpot p95", "31.2 ms"),
        (90.0, "s", "gap", "90.0 s"),
        (5400.0, "s", "span", "90.0 min"),
        (86400.0, "s", "span", "24.0 h"),
        (12345.0, "tokens_per_s", "throughput", "12.3k tok/s"),
        (1234, "tokens", "prompt", "1,234 tokens"),
        (12_345_678, "tokens", "prompt", "12.3M tokens"),
        (155, "count", "requests", "155"),
        (41.23, "per_min", "peak", "41.2 /min"),
        (True, "", "holds", "yes"),
        ("auto", "", "method", "auto"),
    ],
)
def test_people_read_these_units(value, unit, label, text):
    assert fact_text(value, unit, label) == text


@pytest.mark.parametrize("value", [None, math.nan, math.inf])
def test_unknown_is_a_dash_to_people_and_empty_to_machines(value):
    assert fact_text(value, "s", "ttft") == "–"
    assert exact(value) == ""


@given(FINITE)
def test_a_machine_gets_every_digit(value):
    assert float(exact(value)) == value


def test_durations_from_seconds_to_hours_carry_a_unit_each():
    style = style_of([1.0, 480.0, 900.0, 14400.0, None], "s", "idle timeout")
    cells = [style.write(value) for value in (1.0, 480.0, 900.0, 14400.0, None)]
    assert (style.unit, cells) == ("", ["1 s", "480 s", "15 min", "4 h", "–"])


def test_latencies_stay_in_milliseconds_however_wide_they_spread():
    style = style_of([0.002, 30.0], "s", "ttft")
    assert (style.unit, style.write(30.0), style.write(0.002)) == ("ms", "30,000", "2")


def test_a_unit_of_two_words_stands_in_brackets():
    assert heading("prompt", style_of([25_400_000], "tokens").unit) == "prompt (M tokens)"
    assert heading("ttft p95", "ms") == "ttft p95 ms"


@given(st.lists(FINITE, min_size=1, max_size=6), st.sampled_from(["s", "ratio", "tokens", "per_min"]))
def test_a_column_has_one_style_and_keeps_its_largest_number(values, unit):
    """To three digits; shares to a tenth of a percent."""
    style = style_of(values, unit)
    largest = max(values, key=abs)
    assume(style.factor is not None)
    written = float(style.write(largest).replace(",", ""))
    assert written == pytest.approx(largest * style.factor, rel=6e-3, abs=0.051 if unit == "ratio" else 6e-3)
