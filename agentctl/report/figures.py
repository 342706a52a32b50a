"""A Figure as a plotly.js specification: plain data, no plotly import, the same bytes for the same curves."""

from __future__ import annotations

import html
import math
from typing import Any

from agentctl.present import Curve, Figure
from agentctl.report.escape import printable

COLOURS = ("#0b63c4", "#d1570b", "#12805c", "#9a3fb5", "#b8860b", "#c2325a", "#4c5b6b", "#0891a5")
DASHES = ("solid", "dash", "dot", "dashdot")  # a second way to tell lines apart: colour is never the only one
FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
HEIGHT_PX = 340
FEW_DECADES = 3


def plotly_spec(figure: Figure) -> dict[str, Any]:
    """`{"name", "data", "layout"}` for Plotly.newPlot; the question and the conclusion stay in the page."""
    return {
        "name": figure.name,
        "data": [_trace(curve, position) for position, curve in enumerate(figure.curves)],
        "layout": _layout(figure),
    }


def _trace(curve: Curve, position: int) -> dict[str, Any]:
    colour = COLOURS[position % len(COLOURS)]
    trace: dict[str, Any] = {"name": _label(curve.name), "x": _numbers(curve.x), "y": _numbers(curve.y)}
    if curve.shape == "bar":
        return {**trace, "type": "bar", "marker": {"color": colour}}
    if curve.shape == "points" or len(curve.x) == 1:
        return {**trace, "type": "scatter", "mode": "markers", "marker": {"color": colour, "size": 7}}
    line = {"color": colour, "width": 2, "dash": DASHES[position // len(COLOURS) % len(DASHES)]}
    if curve.shape == "step":
        line["shape"] = "hv"
    mode = "lines+markers" if 2 < len(curve.x) <= 12 and curve.shape == "line" else "lines"
    return {**trace, "type": "scatter", "mode": mode, "line": line, "marker": {"size": 6}}


def _layout(figure: Figure) -> dict[str, Any]:
    axis = {
        "gridcolor": "#e8ecf1",
        "linecolor": "#aab4c0",
        "showline": True,
        "zeroline": False,
        "ticks": "outside",
        "tickcolor": "#aab4c0",
        "automargin": True,
    }
    x_axis = {**axis, "title": _title(figure.x_label)}
    y_axis = {**axis, "title": _title(figure.y_label), "rangemode": "tozero"}
    if figure.x_log:
        x_axis |= {"type": "log", "exponentformat": "SI", **_log_ticks(figure)}
    if figure.y_unit == "ratio":
        y_axis |= {"tickformat": ".0%"}
    return {
        "height": HEIGHT_PX,
        "margin": {"l": 56, "r": 16, "t": 12, "b": 48},
        "font": {"family": FONT, "size": 13, "color": "#29323d"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "x unified" if len(figure.curves) > 1 else "closest",
        "showlegend": len(figure.curves) > 1,
        "legend": {"orientation": "h", "yanchor": "bottom", "y": 1.02, "x": 0},
        "barmode": "group",
        "xaxis": x_axis,
        "yaxis": y_axis,
    }


def _title(label: str) -> dict[str, Any]:
    return {"text": _label(label), "standoff": 10, "font": {"size": 13}}


def _log_ticks(figure: Figure) -> dict[str, Any]:
    """Powers of ten; 1, 2, 5 between them where the axis spans only a few (plotly.js writes bare digits)."""
    found = [value for curve in figure.curves for value in curve.x if value > 0]
    if not found or math.log10(max(found) / min(found)) >= FEW_DECADES:
        return {"dtick": 1}
    first, last = math.floor(math.log10(min(found))), math.ceil(math.log10(max(found)))
    ticks = [digit * 10.0**power for power in range(first, last + 1) for digit in (1, 2, 5)]
    return {"tickvals": [tick for tick in ticks if min(found) / 2 <= tick <= 2 * max(found)]}


def _numbers(values: tuple[float, ...]) -> list[float | None]:
    """JSON has no NaN: a gap in the line instead."""
    return [value if math.isfinite(value) else None for value in values]


def _label(text: str) -> str:
    """plotly.js reads tags in its labels; a log's strings must stay text."""
    return html.escape(printable(text), quote=False)
