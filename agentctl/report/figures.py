"""A Figure as a plotly.js specification: plain data, no plotly import, the same bytes for the same curves."""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from agentctl.present import Curve, Figure, Heat, Mark
from agentctl.report.escape import printable
from agentctl.report.strokes import MARKED, faint, stroke

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
INK, QUIET, GRID, LINE = "#29323d", "#5c6875", "#e8ecf1", "#aab4c0"
HEIGHT_PX = 340
PANEL_PX, CATEGORY_PX, MARGIN_PX, COLOUR_BAR_PX = 132, 38, 70, 46
GAP = 0.26  # of a panel's height, above it: its name stands there
NAME_WIDTH, TITLE_WIDTH, PANEL_WIDTH = 18, 34, 38  # characters of a line, so that a phone can show it
SPREAD = 0.6  # of a category, which the points at it take
# What stands between powers of ten on an axis whose ends have this ratio at most.
DIGITS: tuple[tuple[float, tuple[float, ...]], ...] = (
    (10, (1, 1.5, 2, 3, 4, 5, 7)),
    (50, (1, 2, 5)),
    (1000, (1, 3)),
    (math.inf, (1,)),
)
MOST_DECADES = 7
MOST_ROW_NAMES, MOST_COUNTS = 8, 8
HEAT = [[0.0, "#f3f6fa"], [0.15, "#cfe0f3"], [0.4, "#7db0e2"], [0.7, "#1f6fc4"], [1.0, "#0a2f5f"]]


def plotly_spec(figure: Figure) -> dict[str, Any]:
    """`data` and `layout` for Plotly.newPlot; what else there is to a figure stays in the page.

    `meta` of a trace is its entry in the legend, `said` what things are called when the figure is read out.
    """
    heats = {heat.label for heat in figure.heats}
    said = {"x": figure.x_label, "entries": [*entries_of(figure), *heats], "categories": figure.categories}
    return {
        "name": figure.name,
        "data": list(_traces(figure)),
        "layout": _layout(figure),
        "said": {what: _printable(words) for what, words in said.items()},
    }


def entries_of(figure: Figure) -> list[str]:
    """What the legend lists: each name once."""
    return list(dict.fromkeys(curve.name for curve in figure.curves))


def height_px(figure: Figure) -> int:
    bar = COLOUR_BAR_PX if figure.heats else 0
    if figure.panels:
        return PANEL_PX * len(figure.panels) + MARGIN_PX + bar
    return bar + (CATEGORY_PX * len(figure.categories) + MARGIN_PX if figure.categories else HEIGHT_PX)


def _traces(figure: Figure) -> Iterator[dict[str, Any]]:
    entries = entries_of(figure)
    placed = [(curve, entries.index(curve.name)) for curve in figure.curves]
    for curve, entry in placed:
        if curve.low and curve.shape in ("line", "step"):
            yield from _band(curve, entry, alone=bool(figure.panels))
    for curve, entry in placed:
        yield _categorical(curve, entry, len(entries)) if figure.categories else _trace(curve, entry)
    yield from (_heat(heat, len(entries)) for heat in figure.heats)


def _trace(curve: Curve, entry: int) -> dict[str, Any]:
    look = stroke(curve, entry)
    trace: dict[str, Any] = {**_head(curve, entry), "x": _numbers(curve.x), "y": _numbers(curve.y)}
    if curve.shape == "bar":
        return {**trace, "type": "bar", "marker": {"color": look.colour}}
    marker = {"color": look.colour, "symbol": look.symbol, "size": 9 if curve.is_strong else 7}
    if curve.shape == "points" or len(curve.x) == 1:
        errors = {"error_y": _errors(curve, curve.y, look.colour)} if curve.low else {}
        return {**trace, "type": "scatter", "mode": "markers", "marker": marker, **errors}
    line = {"color": look.colour, "width": look.width, "dash": look.dash, "shape": _steps(curve)}
    mode = "lines+markers" if curve.shape == "line" and len(curve.x) <= MARKED else "lines"
    return {**trace, "type": "scatter", "mode": mode, "line": line, "marker": marker}


def _categorical(curve: Curve, entry: int, entries: int) -> dict[str, Any]:
    """Points with their intervals, or bars that add up, beside the names of the y axis."""
    look = stroke(curve, entry)
    trace = {**_head(curve, entry), "x": _numbers(curve.x), "y": _numbers(curve.y)}
    if curve.shape in ("bar", "stack"):
        return {**trace, "type": "bar", "orientation": "h", "marker": {"color": look.colour}}
    beside = SPREAD * ((entry + 0.5) / entries - 0.5)  # several curves at a name do not hide each other
    trace["y"] = [place + beside for place in curve.y]
    marker = {"color": look.colour, "symbol": look.symbol, "size": 10 if curve.is_strong else 8}
    errors = {"error_x": _errors(curve, curve.x, look.colour)} if curve.low else {}
    return {**trace, "type": "scatter", "mode": "markers", "marker": marker, **errors}


def _band(curve: Curve, entry: int, alone: bool) -> Iterator[dict[str, Any]]:
    """The lower edge, and the upper one filled down to it. alone: no other band lies over it."""
    known = [place for place, ends in enumerate(zip(curve.low, curve.high, strict=True)) if None not in ends]
    for edge, fill in ((curve.low, "none"), (curve.high, "tonexty")):
        yield {
            **_head(curve, entry), "type": "scatter", "mode": "lines", "hoverinfo": "skip", "fill": fill,
            "x": [curve.x[place] for place in known], "y": [edge[place] for place in known],
            "fillcolor": faint(stroke(curve, entry).colour, 0.22 if alone else 0.1),
            "line": {"width": 0, "shape": _steps(curve)},
        }  # fmt: skip


def _heat(heat: Heat, entry: int) -> dict[str, Any]:
    rows = [_numbers(row) for row in heat.z]
    centres = [(left + right) / 2 for left, right in zip(heat.x, heat.x[1:], strict=False)]
    return {
        "type": "heatmap", "z": rows, "x": centres, "y": list(range(len(rows))), "coloraxis": "coloraxis",
        "ygap": 1, "xgap": 0, "name": _label(heat.label), "meta": entry, **_axes_of(heat.panel),
    }  # fmt: skip


def _head(curve: Curve, entry: int) -> dict[str, Any]:
    return {"name": _label(curve.name), "meta": entry, **_axes_of(curve.panel)}


def _axes_of(panel: int) -> dict[str, str]:
    return {"yaxis": f"y{panel + 1}"} if panel else {}


def _steps(curve: Curve) -> str:
    return "hv" if curve.shape == "step" else "linear"


def _errors(curve: Curve, at: Sequence[float], colour: str) -> dict[str, Any]:
    """An open end is not drawn."""
    ends = list(zip(at, curve.low, curve.high, strict=True))
    return {
        "type": "data", "symmetric": False, "color": colour, "thickness": 1.5, "width": 4,
        "array": [0.0 if high is None else high - value for value, _, high in ends],
        "arrayminus": [0.0 if low is None else value - low for value, low, _ in ends],
    }  # fmt: skip


def _layout(figure: Figure) -> dict[str, Any]:
    n = max(1, len(figure.panels))
    several = len(figure.curves) > 1 and not figure.categories and n == 1
    layout: dict[str, Any] = {
        "height": height_px(figure),
        "margin": {"l": 44, "r": 14, "t": 24 if figure.marks else 12, "b": 46},
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hovermode": "x unified" if several or n > 1 else "closest",
        "hoverlabel": {"bgcolor": "#ffffff", "bordercolor": LINE, "font": {"color": INK, "size": 13}},
        "showlegend": False,
        "barmode": "stack" if any(curve.shape == "stack" for curve in figure.curves) else "group",
        "bargap": 0.35,
        "xaxis": _x_axis(figure, f"y{n}" if n > 1 else "y"),
        "annotations": [_panel_name(name, place, n) for place, name in enumerate(figure.panels)],
        "shapes": [],
    }
    for place in range(n):
        layout[f"yaxis{place + 1}" if place else "yaxis"] = _y_axis(figure, place, n)
    for mark in figure.marks:
        layout["shapes"].append(_mark_line(mark))
        layout["annotations"].append(_mark_name(mark, figure.x_log))
    if figure.heats:
        layout |= {"hovermode": "closest", "coloraxis": _colour_axis()}
        layout["margin"]["b"] += COLOUR_BAR_PX
    return layout


def _colour_axis() -> dict[str, Any]:
    """One for all panels; its bar lies under the x axis."""
    place = {"x": 0, "xanchor": "left", "xpad": 0, "y": 0, "yref": "container", "yanchor": "bottom"}
    bar = {"orientation": "h", "thickness": 9, "len": 0.5, "outlinewidth": 0, "nticks": 4, "ypad": 4}
    return {"colorscale": HEAT, "cmin": 0, "colorbar": {**bar, **place, "tickfont": {"size": 12}}}


def _axis() -> dict[str, Any]:
    return {
        "gridcolor": GRID, "linecolor": LINE, "showline": True, "zeroline": False, "ticks": "outside",
        "tickcolor": LINE, "automargin": True,
    }  # fmt: skip


def _x_axis(figure: Figure, anchor: str) -> dict[str, Any]:
    title = {"text": _lines(figure.x_label, TITLE_WIDTH), "standoff": 8, "font": {"size": 13}}
    axis = {**_axis(), "title": title, "anchor": anchor, "hoverformat": ",.3~r"}
    if figure.x_log:
        axis |= {"type": "log", "exponentformat": "SI", **_log_ticks(figure)}
    if figure.x_unit == "count":
        whole = sorted({round(x) for curve in figure.curves for x in curve.x})
        axis |= {"tickformat": "d", "hoverformat": "d"}
        axis |= {"tickvals": whole} if len(whole) <= MOST_COUNTS else {}
    if figure.x_unit == "ratio":
        axis |= {"tickformat": ".0%", "hoverformat": ".1%"}
        if any(curve.shape == "stack" for curve in figure.curves):
            axis["range"] = [0, 1]
        elif figure.categories:
            axis["rangemode"] = "tozero"
    if figure.categories and not figure.x_log:
        axis |= {"nticks": 5, "tickangle": 0, "zeroline": True, "zerolinecolor": LINE}
    return axis


def _y_axis(figure: Figure, place: int, n: int) -> dict[str, Any]:
    """Of one panel; the first is the topmost."""
    axis = {**_axis(), "hoverformat": ",.4~r"}
    if n > 1:
        axis |= {"domain": [1 - (place + 1) / n, 1 - (place + GAP) / n], "nticks": 4}
        axis |= {"matches": "y"} if place else {}  # panels are compared
    if figure.categories:
        names = [_lines(name, NAME_WIDTH) for name in figure.categories]
        return axis | {
            "tickvals": list(range(len(names))), "ticktext": names,
            "range": [len(names) - 0.5, -0.5], "showline": False, "showgrid": False,
            "ticklen": 6, "tickcolor": "rgba(0,0,0,0)",
        }  # fmt: skip
    if figure.heats:
        whole = {"dtick": 1} if _rows(figure) <= MOST_ROW_NAMES else {"nticks": 5}
        return axis | whole | {"showgrid": False, "tickformat": "d", "tickfont": {"size": 11}}
    axis["rangemode"] = "tozero"
    if figure.y_unit == "ratio":
        axis |= {"tickformat": ".0%", "hoverformat": ".1%"}
    return axis


def _rows(figure: Figure) -> int:
    return max(len(heat.z) for heat in figure.heats)


def _panel_name(name: str, place: int, n: int) -> dict[str, Any]:
    where = {"x": 0, "xref": "paper", "xanchor": "left", "yref": "paper", "yanchor": "bottom"}
    text = {"text": f"<b>{_lines(name, PANEL_WIDTH, most=1)}</b>", "showarrow": False, "font": {"size": 13}}
    return {**where, **text, "y": 1 - (place + GAP) / n, "yshift": 3}


def _mark_line(mark: Mark) -> dict[str, Any]:
    line = {"type": "line", "layer": "below", "line": {"color": QUIET, "width": 1, "dash": "dot"}}
    if mark.x is not None:
        return {**line, "x0": mark.x, "x1": mark.x, "y0": 0, "y1": 1, "yref": "paper"}
    return {**line, "y0": mark.y, "y1": mark.y, "x0": 0, "x1": 1, "xref": "paper"}


def _mark_name(mark: Mark, x_log: bool) -> dict[str, Any]:
    """Above the figure, or over the right end of the line; a log axis wants the power of ten."""
    text = {"text": _label(mark.name), "showarrow": False, "font": {"size": 12, "color": QUIET}}
    if mark.x is not None:
        x = math.log10(mark.x) if x_log else mark.x
        return {**text, "x": x, "y": 1, "yref": "paper", "xanchor": "center", "yanchor": "bottom"}
    return {**text, "x": 1, "xref": "paper", "y": mark.y, "xanchor": "right", "yanchor": "bottom"}


def _log_ticks(figure: Figure) -> dict[str, Any]:
    """Powers of ten, and numbers between them where the axis spans only a few: at most eight or so."""
    found = [value for curve in figure.curves for value in curve.x if value > 0]
    if not found:
        return {"dtick": 1}
    least, most = min(found), max(found)
    first, last = math.floor(math.log10(least)), math.ceil(math.log10(most))
    digits, step = DIGITS[-1][1], 1 + (last - first) // MOST_DECADES
    for span, some in DIGITS:
        if most <= span * least:
            digits = some
            break
    ticks = [digit * 10.0**power for power in range(first, last + 1, step) for digit in digits]
    shown = [tick for tick in ticks if least / 2 <= tick <= 2 * most]
    return {"tickvals": shown, "ticktext": [*map(_short, shown)]}


def _short(value: float) -> str:
    """1,000 and 100k: what several of stand beside each other on a phone."""
    for least, unit, letter in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if value >= least:
            return f"{value / unit:g}{letter}"
    return f"{value:,g}" if value >= 1 else f"{value:.10f}".rstrip("0")


def _numbers(values: Sequence[float]) -> list[float | None]:
    """JSON has no NaN: a gap in the line instead."""
    return [value if math.isfinite(value) else None for value in values]


def _lines(text: str, width: int, most: int = 2) -> str:
    """A label as lines, `most` of them; what does not fit ends in dots."""
    lines = textwrap.wrap(printable(text), width, max_lines=most, placeholder=" …", break_on_hyphens=False)
    return "<br>".join(map(_label, lines))


def _printable(words: str | Sequence[str]) -> str | list[str]:
    return printable(words) if isinstance(words, str) else [printable(word) for word in words]


def _label(text: str) -> str:
    """plotly.js reads tags in its labels; a log's strings must stay text."""
    return html.escape(printable(text), quote=False)
