"""Numbers in sentences: rounding never turns some into none, or nearly all into all."""

import pytest

from agentctl.analyzers.words import number, percent


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0, "0.0 %"), (1e-9, "under 0.1 %"), (0.0005, "0.1 %"), (0.5, "50.0 %"), (0.9994, "99.9 %"),
        (0.9999, "over 99.9 %"), (1 - 1e-9, "over 99.9 %"), (1, "100.0 %"), (1.2, "120.0 %"),
    ],
)  # fmt: skip
def test_only_nothing_is_0_and_only_all_is_100_percent(share, text):
    assert percent(share) == text


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (0.1234, "0.123"), (204.09, "204"), (999.4, "999"), (12345.6, "12,346")]
)
def test_no_exponent_stands_in_a_sentence(value, text):
    assert number(value) == text
