"""Times without zone or year: the zone given, New Year, and hours that the clocks repeat or leave out."""

from datetime import UTC, datetime

import pytest

from agentctl.errors import UsageError
from agentctl.formats._local import LocalTime
from agentctl.formats.base import Reading, ReadOptions
from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Source


@pytest.fixture
def reading(tmp_path):
    (tmp_path / "log").write_text("x\n")
    return lambda **options: Reading(Source(str(tmp_path / "log")), Quarantine("log"), ReadOptions(**options))


def local_ns(text: str) -> int:
    """What a clock showed, as if it showed UTC."""
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 10**9


def shown(ns: int) -> str:
    return datetime.fromtimestamp(ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M:%S")


def test_without_a_word_from_the_user_times_are_utc_and_the_reading_says_so(reading):
    log = reading()
    assert shown(LocalTime(log).epoch_ns(local_ns("2026-11-12T09:00:12"))) == "2026-11-12 09:00:12"
    assert (log.tz_assumed, log.year_assumed, log.warnings) == ("UTC", None, [])


@pytest.mark.parametrize(
    ("zone", "local", "utc"),
    [
        ("Europe/Berlin", "2026-11-12T09:00:12", "2026-11-12 08:00:12"),
        ("Europe/Berlin", "2026-07-01T00:30:00", "2026-06-30 22:30:00"),
        ("-03:30", "2026-12-31T23:00:00", "2027-01-01 02:30:00"),
    ],
)
def test_a_zone_is_applied_as_of_that_day(reading, zone, local, utc):
    log = reading(timezone=zone)
    assert shown(LocalTime(log).epoch_ns(local_ns(local))) == utc
    assert log.tz_assumed == zone


def test_the_hour_that_happens_twice_is_read_as_the_first_and_a_warning_says_so(reading):
    log = reading(timezone="Europe/Berlin")  # clocks went back at 03:00 on 2026-10-25
    time = LocalTime(log)
    hours = ("01:59:00", "02:00:00", "02:20:00", "02:59:59", "03:00:00")
    assert [shown(time.epoch_ns(local_ns(f"2026-10-25T{hour}")))[11:] for hour in hours] == [
        "23:59:00", "00:00:00", "00:20:00", "00:59:59", "02:00:00",
    ]  # fmt: skip
    assert log.warnings == [
        "log: 2026-10-25 02 o'clock happened twice when the clocks went back; "
        "times in it are read as the first"
    ]


def test_an_hour_that_never_was_casts_doubt_on_the_zone(reading):
    log = reading(timezone="Europe/Berlin")
    LocalTime(log).epoch_ns(local_ns("2026-03-29T02:30:00"))
    assert len(log.warnings) == 1 and "is --timezone right?" in log.warnings[0]


def yearless(time: LocalTime, *days: tuple[int, int]) -> list[str]:
    return [shown(time.yearless_ns(month, day, 3600 * 10**9)) for month, day in days]


def test_new_year_is_crossed_forward_and_back(reading):
    log = reading(year=2026)
    days = yearless(
        LocalTime(log), (12, 30), (12, 31), (1, 1), (12, 31), (1, 1), (2, 29 - 1), (12, 1), (11, 1), (1, 2)
    )
    assert [day[:10] for day in days] == [
        "2026-12-30", "2026-12-31", "2027-01-01", "2026-12-31", "2027-01-01", "2027-02-28",
        "2026-12-01", "2026-11-01", "2027-01-02",
    ]  # fmt: skip
    assert log.year_assumed == 2026


def test_a_log_of_a_whole_year_and_more_is_followed(reading):
    time = LocalTime(reading(year=2023))
    months = [(month, 15) for month in range(1, 13)] * 3
    assert [day[:7] for day in yearless(time, *months)] == [
        f"{year}-{month:02}" for year in (2023, 2024, 2025) for month in range(1, 13)
    ]


def test_a_leap_day_needs_its_year(reading):
    assert yearless(LocalTime(reading(year=2024)), (2, 29)) == ["2024-02-29 01:00:00"]
    with pytest.raises(ValueError):
        yearless(LocalTime(reading(year=2026)), (2, 29))
    assert yearless(LocalTime(reading(year=2027)), (12, 31), (2, 29))[1] == "2028-02-29 01:00:00"


def test_without_a_year_the_error_names_the_flag(reading):
    with pytest.raises(UsageError, match="no year") as error:
        yearless(LocalTime(reading()), (11, 12))
    assert error.value.hint is not None and "--year" in error.value.hint


@pytest.mark.parametrize(
    ("log", "options"),
    [
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n{},5,1\n", {}),
        ("at,n\n{},5\n", {"format": "generic", "column_map": {"arrival": "at", "prompt_tokens": "n"}}),
        ('{{"start_time": "{}", "response_code": 200, "method": "POST", "response_flags": "-"}}\n',
         {"format": "envoy"}),
    ],
)  # fmt: skip
@pytest.mark.parametrize(("zone", "hour"), [(None, 12), ("Europe/Berlin", 11), ("-05:30", 17.5)])
def test_readers_put_dates_without_a_zone_into_the_one_of_the_user(read, log, options, zone, hour):
    midnight = 1_700_092_800  # 2023-11-16
    found = read(log.format("2023-11-16 12:00:00.1234567"), timezone=zone, **options)
    assert found.column("arrival_ns") == [int((midnight + hour * 3600) * 10**9) + 123_456_700]
    assert found.report.tz_assumed == (zone or "UTC")
    found = read(log.format("2023-11-16 12:00:00.1234567Z"), timezone=zone, **options)
    assert found.column("arrival_ns") == [int((midnight + 12 * 3600) * 10**9) + 123_456_700]
    assert found.report.tz_assumed is None
