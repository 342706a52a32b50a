"""Time zones as users name them: an IANA name, or an offset from UTC."""

from __future__ import annotations

import re
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from agentctl.errors import UsageError

_OFFSET = re.compile(r"([+-])([01][0-9]|2[0-3]):?([0-5][0-9])")


def parse_zone(name: str) -> tzinfo:
    """The zone `name`: Europe/Berlin, UTC, +02:00. Raises UsageError."""
    if name.upper() in ("UTC", "Z"):
        return UTC
    if match := _OFFSET.fullmatch(name):
        sign, hours, minutes = match.groups()
        offset = timedelta(hours=int(hours), minutes=int(minutes))
        return timezone(-offset if sign == "-" else offset)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: the name of a folder of zones
        raise UsageError(
            f"{name!r} is no time zone that this machine knows",
            place="--timezone",
            expected="a name such as Europe/Berlin, or an offset such as +02:00",
        ) from error
