"""Sections as text: aligned tables for a person at a terminal, tab-separated rows for a pipe."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from agentctl.present import Section, Table
from agentctl.report.escape import printable, table_cell
from agentctl.report.numbers import exact, fact_text, heading, style_of

BEST = "*"  # marks the best value of a column; colour never carries meaning alone
MAX_WIDTH = 120
SHORT = 200  # characters of assumptions that are shown unasked


def render(sections: Sequence[Section], *, terminal: bool, verbose: bool = False) -> str:
    """The sections as one text.

    On a terminal a verdict shows all its evidence, other sections their sentence and facts; `verbose` adds
    their tables and assumptions and what each number means. A pipe always gets everything.
    """
    if not terminal:
        return "".join(f"{line}\n" for line in _rows(sections))
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH)
    console = Console(file=io.StringIO(), force_terminal=True, width=width, highlight=False, emoji=False)
    for position, section in enumerate(sections):
        if position:
            console.print()
        _print_section(console, section, verbose)
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def _print_section(console: Console, section: Section, verbose: bool) -> None:
    is_verdict = section.name == "verdict"  # the answer needs no heading
    if section.title and not is_verdict:
        console.print(_text(section.title, "bold"))
    if section.sentence:
        console.print(_text(section.sentence, "bold" if is_verdict else ""))
    for warning in section.warnings:
        console.print(_text(f"warning: {warning}", "yellow"))
    if section.facts:
        console.print()
        console.print(_facts(section, verbose))
    for table in section.tables if verbose or is_verdict or not section.facts else ():
        console.print()
        if table.title:
            console.print(_text(table.title))
        console.print(_table(table))
    if section.assumptions and (verbose or is_verdict):
        console.print()
        console.print(_text(f"assumed: {_assumed(section.assumptions, verbose)}", "dim"))


def _assumed(assumptions: Sequence[str], verbose: bool) -> str:
    """All of them when asked for, else as many as two lines hold."""
    shown = [line.rstrip(".") for line in assumptions]
    while not verbose and len(shown) > 1 and len("; ".join(shown)) > SHORT:
        shown.pop()
    left = len(assumptions) - len(shown)
    return "; ".join(shown) + (f"; and {left} more (-v)" if left else "")


def _facts(section: Section, verbose: bool) -> RichTable:
    grid = RichTable.grid(padding=(0, 2))
    grid.add_column()
    grid.add_column(justify="right", no_wrap=True)
    for fact in section.facts:
        cells = [_text(fact.label), _text(fact_text(fact.value, fact.unit, fact.label))]
        grid.add_row(*cells, *([_text(fact.meaning, "dim")] if verbose else []))
    return grid


def _table(table: Table) -> RichTable:
    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    columns = []
    for position, (label, unit) in enumerate(table.columns):
        values = [row[position] for row in table.rows]
        style = style_of(values, unit, label)
        text = all(isinstance(value, str) for value in values if value is not None) and any(values)
        best = table.best.get(position)
        mark = BEST if best is not None else ""
        drawn.add_column(_text(heading(label, style.unit)), justify="left" if text else "right")
        cells = [style.write(value) for value in values]
        columns.append(
            [
                _text(cell + (mark if row == best else " " * len(mark)), "bold" if row == best else "")
                for row, cell in enumerate(cells)
            ]
        )
    for row in zip(*columns, strict=True):
        drawn.add_row(*row)
    return drawn


def _text(content: str, style: str = "") -> Text:
    return Text(printable(content), style=style)  # Text: square brackets are content, not markup


def _rows(sections: Sequence[Section]) -> Iterator[str]:
    """Tab-separated: full precision, SI units named in the header or beside the value."""
    for position, section in enumerate(sections):
        if position:
            yield ""
        yield from (printable(line) for line in (section.sentence or section.title,) if line)
        yield from (f"warning: {printable(warning)}" for warning in section.warnings)
        for fact in section.facts:
            yield "\t".join((table_cell(fact.label), _cell(fact.value), fact.unit))
        for table in section.tables:
            yield ""
            yield "\t".join(table_cell(f"{label} {unit}".strip()) for label, unit in table.columns)
            yield from ("\t".join(_cell(value) for value in row) for row in table.rows)
        if section.assumptions:
            yield f"assumed: {printable(_assumed(section.assumptions, verbose=True))}"


def _cell(value: float | int | str | bool | None) -> str:
    return table_cell(value) if isinstance(value, str) else exact(value)
