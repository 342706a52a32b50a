"""How the lines of a figure look, in the plot and in its legend: colour is never the only difference."""

from __future__ import annotations

from typing import NamedTuple

from agentctl.present import Curve

COLOURS = ("#0b63c4", "#d1570b", "#12805c", "#9a3fb5", "#a67a00", "#c2325a", "#4c5b6b", "#0891a5")
DASHES = ("solid", "dash", "dot", "dashdot")
SVG_DASHES = {"solid": "", "dash": "6 4", "dot": "1.5 3", "dashdot": "6 3 1.5 3"}
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "triangle-down", "star")
STRONG, NORMAL = 3.0, 1.75  # px
MARKED = 12  # a line of at most so many points shows them


class Stroke(NamedTuple):
    colour: str
    dash: str
    symbol: str
    width: float


def stroke(curve: Curve, position: int) -> Stroke:
    """A line that shows its points differs in their shape, others in their dashes."""
    place = position if curve.colour is None else curve.colour
    shows_points = curve.shape == "points" or (curve.shape == "line" and len(curve.x) <= MARKED)
    return Stroke(
        COLOURS[place % len(COLOURS)],
        "solid" if shows_points else DASHES[place % len(DASHES)],
        SYMBOLS[place % len(SYMBOLS)],
        STRONG if curve.is_strong else NORMAL,
    )


def faint(colour: str, strength: float) -> str:
    """Of a band: what lies under it stays readable."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return f"rgba({red},{green},{blue},{strength})"


def swatch(curve: Curve, position: int) -> str:
    """A line's sample for the legend, as inline SVG."""
    look = stroke(curve, position)
    if curve.shape in ("bar", "stack"):
        body = f'<rect x="6" y="1" width="12" height="10" rx="2" fill="{look.colour}"/>'
    else:
        dashes = f' stroke-dasharray="{SVG_DASHES[look.dash]}"' if look.dash != "solid" else ""
        line = f'<path d="M1 6H23" stroke="{look.colour}" stroke-width="{look.width}"{dashes}/>'
        point = _point(look) if curve.shape == "points" or len(curve.x) <= MARKED else ""
        body = ("" if curve.shape == "points" else line) + point
    return f'<svg width="24" height="12" viewBox="0 0 24 12" aria-hidden="true">{body}</svg>'


POINTS = {
    "circle": "M12 2a4 4 0 1 0 .01 0z",
    "square": "M8.5 2.5h7v7h-7z",
    "diamond": "M12 1l5 5-5 5-5-5z",
    "triangle-up": "M12 1.5l4.8 8.5H7.2z",
    "triangle-down": "M12 10.5L7.2 2h9.6z",
    "x": "M8 3.5L9.5 2 12 4.5 14.5 2 16 3.5 13.5 6 16 8.5 14.5 10 12 7.5 9.5 10 8 8.5 10.5 6z",
    "cross": "M10.8 1.5h2.4v3.3h3.3v2.4h-3.3v3.3h-2.4V7.2H7.5V4.8h3.3z",
    "star": "M12 .5l1.6 3.7 4 .3-3 2.7.9 3.9L12 9l-3.5 2.1.9-3.9-3-2.7 4-.3z",
}


def _point(look: Stroke) -> str:
    return f'<path d="{POINTS[look.symbol]}" fill="{look.colour}"/>'
