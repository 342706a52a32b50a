"""Numbers inside the sentences of a section; values beside a unit are left to the renderer."""

from __future__ import annotations


def percent(share: float) -> str:
    """Only nothing is 0.0 % and only all is 100.0 %."""
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return "over 99.9 %" if 0.9995 <= share < 1 else f"{100 * share:.1f} %"


def number(value: float) -> str:
    """Three digits, or all that stand before the point: 1.23, 12,345."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:,.0f}"


def seconds(value: float) -> str:
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if value >= 2 * size:
            return f"{value / size:.3g} {name}"
    return f"{value:.3g} s" if value >= 1 or value == 0 else f"{value * 1e3:.3g} ms"


def count(n: int, noun: str, plural: str | None = None) -> str:
    """'1 session', '1,234 sessions'."""
    return f"{n:,} {noun}" if n == 1 else f"{n:,} {plural or noun + 's'}"
