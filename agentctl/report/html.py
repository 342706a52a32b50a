"""Sections as one HTML file: no network, the same bytes for the same result.

Order: verdict, tables and figures, how to read this, assumptions, provenance (style of all our reports).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from typing import Any

from agentctl.present import Curve, Fact, Figure, Section, Table
from agentctl.report.columns import NARROW
from agentctl.report.escape import printable
from agentctl.report.figures import entries_of, height_px, plotly_spec
from agentctl.report.numbers import fact_text, heading, style_of
from agentctl.report.strokes import swatch

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
LONG = 6  # sections, from which on a list of them leads
# Words of a table that are worth a second look, and how they stand out.
TONES: dict[object, str] = {"WARN": "warn", "FAIL": "bad", "WORSE": "bad", "BETTER": "good"}
END_OF_SENTENCE = re.compile(r"(?<=[.!?]) (?=[A-Za-z])")  # a policy's name is in small letters


def html_page(
    title: str, kicker: str, sections: Sequence[Section], provenance: Iterable[tuple[str, str]]
) -> bytes:
    """The report as UTF-8 bytes.

    title       what was looked at, such as the trace's name
    kicker      the command that made it, such as `agentctl analyze`
    sections    when the first is called `verdict` it leads; else the sections' sentences do, as a summary
    provenance  (what, value): command, versions, hashes, seed; nothing that changes between equal runs
    """
    has_verdict = bool(sections) and sections[0].name == "verdict"
    figures = [figure for section in sections for figure in section.figures]
    body = [
        f'<header><p class="kicker">{_text(kicker)}</p><h1>{_text(title)}</h1>',
        _verdict(sections[0]) if has_verdict else _summary(sections),
        "</header>",
        _contents(sections) if has_verdict else "",
        *(_section(section, is_verdict=has_verdict and not place) for place, section in enumerate(sections)),
        _how_to_read(sections),
        _assumptions(sections),
        _provenance(provenance),
    ]
    return _document(title, kicker, "\n".join(part for part in body if part), figures).encode()


def _document(title: str, kicker: str, body: str, figures: list[Figure]) -> str:
    scripts = _scripts(figures) if figures else ""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{POLICY}">
<title>{_text(title)} · {_text(kicker)}</title>
<style>
{_asset("report.css")}</style>
</head>
<body>
<main>
{body}
</main>
{scripts}</body>
</html>
"""


def _scripts(figures: list[Figure]) -> str:
    """plotly.js once, the figures as data, and the few lines that draw them."""
    from plotly.offline import get_plotlyjs

    specs = json.dumps([plotly_spec(figure) for figure in figures], sort_keys=True, allow_nan=False)
    data = specs.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
    return f"""<noscript><p>A script draws the figures; the tables hold their main numbers.</p></noscript>
<script>{get_plotlyjs()}</script>
<script type="application/json" id="figures">{data}</script>
<script>
{_asset("report.js")}</script>
"""


def _verdict(section: Section) -> str:
    """The first sentence is the answer."""
    answer, *rest = END_OF_SENTENCE.split(section.sentence, maxsplit=1)
    more = f"<span>{_text(rest[0])}</span>" if rest else ""
    shape = "verdict refusal" if section.is_refusal else "verdict"
    return f'<p class="{shape}"><strong>{_text(answer)}</strong> {more}</p>'


def _contents(sections: Sequence[Section]) -> str:
    shown = [section for section in sections[1:] if not section.is_assumptions]
    if len(shown) < LONG:
        return ""
    items = (f'<a href="#{_text(section.name)}">{_text(section.title)}</a>' for section in shown)
    return f'<nav aria-label="Sections">{" ".join(items)}</nav>'


def _summary(sections: Sequence[Section]) -> str:
    items = (
        f'<li><a href="#{_text(section.name)}">{_text(section.title)}</a> {_text(section.sentence)}</li>'
        for section in sections
        if section.sentence and not section.is_assumptions
    )
    return f'<ul class="summary">{"".join(items)}</ul>'


def _section(section: Section, is_verdict: bool) -> str:
    if section.is_assumptions:
        return ""  # they have a section of their own at the end
    heading = "" if is_verdict else f"<h2>{_text(section.title)}</h2>"
    sentence = "" if is_verdict or not section.sentence else f'<p class="lead">{_text(section.sentence)}</p>'
    parts = [
        heading,
        sentence,
        *(f'<p class="warning"><b>Warning:</b> {_text(warning)}</p>' for warning in section.warnings),
        _facts(section.facts),
        *(_table(table) for table in section.tables),
        *(_figure(figure) for figure in section.figures),
    ]
    content = "\n".join(part for part in parts if part)
    return f'<section id="{_text(section.name)}">\n{content}\n</section>' if content else ""


def _facts(facts: Sequence[Fact]) -> str:
    shown = [(fact.label, fact_text(fact.value, fact.unit, fact.label)) for fact in facts]
    items = (f"<div><dt>{_text(label)}</dt><dd>{_text(value)}</dd></div>" for label, value in shown)
    return f'<dl class="facts">{"".join(items)}</dl>' if facts else ""


def _table(table: Table) -> str:
    styles = [
        style_of([row[place] for row in table.rows], unit, label)
        for place, (label, unit) in enumerate(table.columns)
    ]
    is_text = [any(isinstance(row[place], str) for row in table.rows) for place in range(len(table.columns))]
    names = [heading(label, style.unit) for (label, _), style in zip(table.columns, styles, strict=True)]
    heads = (
        f'<th scope="col"{_side(text)}>{_text(name)}</th>' for name, text in zip(names, is_text, strict=True)
    )
    rows, is_wordy = [], False
    for number, row in enumerate(table.rows):
        cells = []
        for place, (value, style, text) in enumerate(zip(row, styles, is_text, strict=True)):
            written = _text(style.write(value))
            is_wordy |= text and place > 0 and len(written) > NARROW
            best = table.best.get(place) == number
            content = f"<b>{written}</b><i>{_text(table.best_is)}</i>" if best else written
            label = f' data-label="{_text(names[place])}"'
            if value in TONES:
                content = f'<span class="{TONES[value]}">{content}</span>'
            cells.append(f"<td{_side(text, written)}{label}>{content}</td>")
        rows.append(f"<tr>{''.join(cells)}</tr>")
    caption = f'<p class="caption">{_text(table.title)}</p>' if table.title else ""
    shape = "wordy" if is_wordy else "scroll"
    # What scrolls sideways is reached by the keyboard.
    reach = "" if is_wordy else f' tabindex="0" role="region" aria-label="{_text(table.title or "table")}"'
    return (
        f'{caption}<div class="{shape}"{reach}><table><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _side(is_text: bool, content: str = "") -> str:
    """The class of a cell: numbers to the right; short text stays on one line, as numbers do."""
    if not is_text:
        return ""
    return ' class="text"' if len(content) <= NARROW else ' class="text long"'


def _figure(figure: Figure) -> str:
    name = _text(figure.name)
    return (
        f"<figure><h3>{_text(figure.question)}</h3>"
        f"{_legend(figure)}"
        f'<p class="axis">{_text(_axis_text(figure))}</p>'
        f'<div class="plot" id="figure-{name}" style="height:{height_px(figure)}px" tabindex="0"'
        f' role="group" aria-label="{_text(figure.question)}" aria-describedby="caption-{name}"></div>'
        f'<output class="reading" id="reading-{name}" aria-live="polite"></output>'
        f'<figcaption id="caption-{name}">{_text(figure.conclusion)}</figcaption></figure>'
    )


def _axis_text(figure: Figure) -> str:
    """What the y axis shows, and what the colours of a heat map do."""
    colours = (f"colour: {heat.label}" for heat in figure.heats[:1])
    return ", ".join(part for part in (figure.y_label, *colours) if part)


def _legend(figure: Figure) -> str:
    """What each line is, as buttons that hide and show it."""
    entries: dict[str, Curve] = {curve.name: curve for curve in reversed(figure.curves)}
    if len(entries) < 2:
        return ""
    buttons = (
        f'<button type="button" aria-pressed="true" data-figure="{_text(figure.name)}" data-entry="{entry}">'
        f"{swatch(curve, entry)}{_text(curve.name)}</button>"
        for entry, curve in enumerate(entries[name] for name in entries_of(figure))
    )
    return f'<div class="legend" role="group" aria-label="Lines shown">{"".join(buttons)}</div>'


def _how_to_read(sections: Sequence[Section]) -> str:
    meanings = {fact.label: fact.meaning for section in sections for fact in section.facts if fact.meaning}
    items = (f"<dt>{_text(label)}</dt><dd>{_text(meaning)}</dd>" for label, meaning in meanings.items())
    return _closing("how-to-read", "How to read this", f"<dl>{''.join(items)}</dl>") if meanings else ""


def _assumptions(sections: Sequence[Section]) -> str:
    lines = dict.fromkeys(line for section in sections for line in section.assumptions)
    items = (f"<li>{_text(line)}</li>" for line in lines)
    return _closing("assumptions", "Assumptions", f"<ul>{''.join(items)}</ul>") if lines else ""


def _provenance(entries: Iterable[tuple[str, str]]) -> str:
    items = "".join(f"<dt>{_text(what)}</dt><dd><code>{_text(value)}</code></dd>" for what, value in entries)
    return _closing("provenance", "Provenance", f"<dl>{items}</dl>") if items else ""


def _closing(name: str, title: str, content: str) -> str:
    return f'<section class="closing" id="{name}">\n<h2>{title}</h2>\n{content}\n</section>'


def _asset(name: str) -> str:
    return (files("agentctl.report") / name).read_text(encoding="utf-8")


def _text(content: Any) -> str:
    return escape(printable(str(content)))
