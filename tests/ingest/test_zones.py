"""Zones as users name them."""

from datetime import UTC, datetime, timedelta

import pytest

from agentctl.errors import UsageError
from agentctl.ingest.options import IngestOptions
from agentctl.ingest.zones import parse_zone


@pytest.mark.parametrize(
    ("name", "hours"),
    [("UTC", 0), ("z", 0), ("+02:00", 2), ("-0330", -3.5), ("+05:45", 5.75), ("Europe/Berlin", 1),
     ("Asia/Kolkata", 5.5)],
)  # fmt: skip
def test_a_zone_is_a_name_or_an_offset(name, hours):
    winter = datetime(2026, 12, 1, tzinfo=UTC)
    assert winter.astimezone(parse_zone(name)).utcoffset() == timedelta(hours=hours)


@pytest.mark.parametrize("name", ["", "Mars", "+2", "+25:00", "+02:60", "../../etc/passwd", "Europe", "a\0b"])
def test_another_name_is_an_error_that_shows_how_to_write_one(name):
    with pytest.raises(UsageError, match="no time zone") as error:
        IngestOptions(timezone=name)
    assert error.value.place == "--timezone" and "Europe/Berlin" in str(error.value.expected)


@pytest.mark.parametrize("year", [0, 26, 1969, 2116])
def test_a_year_is_one_that_a_log_can_have(year):
    with pytest.raises(UsageError, match=str(year)):
        IngestOptions(year=year)
