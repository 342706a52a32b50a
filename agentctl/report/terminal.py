"""Sections as text: aligned tables for a person at a terminal, tab-separated rows for a pipe."""

from __future__ import annotations

import io
import shutil
from collections.abc import Iterator, Sequence
from typing import Literal

from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from agentctl.present import Section, Table
from agentctl.report.columns import Column, widths
from agentctl.report.escape import printable, table_cell
from agentctl.report.numbers import exact, fact_text, heading, style_of

BEST = "*"  # marks the best value of a column; colour never carries meaning alone
MAX_WIDTH = 120
BRIEF = 10  # rows of a table that is shown unasked
GAP = 2  # blanks between columns; 1 where it is tight
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
    left_out = 0
    for position, section in enumerate(sections):
        if section.is_detail and not (section.sentence or verbose):
            left_out += len(section.tables)
            continue
        if position:
            console.print()
        left_out += _print_section(console, section, verbose or len(sections) == 1, verbose)
    if left_out:
        more = "1 more table" if left_out == 1 else f"{left_out} more tables"
        console.print(f"\n{more} and all assumptions: -v", style="dim")
    assert isinstance(console.file, io.StringIO)
    return "".join(f"{line.rstrip()}\n" for line in console.file.getvalue().splitlines())


def _print_section(console: Console, section: Section, whole: bool, verbose: bool) -> int:
    """Print one section and return how many of its tables were left out."""
    is_verdict = section.name == "verdict"  # the answer needs no heading
    if section.is_assumptions:
        console.print(_text(f"assumed: {_assumed(section.assumptions, verbose)}", "dim"))
        return 0
    tables = [table for table in section.tables if whole or is_verdict or _is_brief(section, table)]
    if section.title and not is_verdict:
        console.print(_text(section.title, "bold"))
    if section.sentence:
        console.print(_text(section.sentence, "bold" if is_verdict else ""))
    for warning in section.warnings:
        console.print(_text(f"warning: {warning}", "yellow"))
    if section.facts:
        console.print()
        console.print(_facts(section, verbose))
    for table in tables:
        console.print()
        if table.title:
            console.print(_text(table.title))
        console.print(_table(table, console.width))
    if section.assumptions and (verbose or is_verdict):
        console.print()
        console.print(_text(f"assumed: {_assumed(section.assumptions, verbose)}", "dim"))
    return len(section.tables) - len(tables)


def _is_brief(section: Section, table: Table) -> bool:
    """A few rows of numbers that stand for a section's facts."""
    return not (section.facts or section.is_detail) and len(table.rows) <= BRIEF


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


def _table(table: Table, room: int) -> RichTable:
    columns = [_column(table, position) for position in range(len(table.columns))]
    gap = GAP if sum(widths(columns, 0)) + GAP * len(columns) <= room else 1
    fitted = widths(columns, room - gap * (len(columns) - 1))
    if sum(fitted) + gap * (len(columns) - 1) > room:
        return _stacked(columns, len(table.rows))
    drawn = RichTable(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style="dim")
    for column, width in zip(columns, fitted, strict=True):
        side: Literal["left", "right"] = "left" if column.is_text else "right"
        drawn.add_column(_text(column.head), justify=side, width=width)
    for row in range(len(table.rows)):
        is_best = [table.best.get(position) == row for position in range(len(columns))]
        cells = [column.cells[row] for column in columns]
        drawn.add_row(
            *(Text(cell, "bold" if best else "") for cell, best in zip(cells, is_best, strict=True))
        )
    return drawn


def _stacked(columns: Sequence[Column], n_rows: int) -> RichTable:
    """Where no row fits the terminal without cutting a number: each row as lines of `header  cell`."""
    first, *others = columns
    drawn = RichTable.grid(padding=(0, GAP, 0, 0))
    drawn.add_column()
    drawn.add_column(justify="right")
    for row in range(n_rows):
        drawn.add_row(_text(first.cells[row], "bold"))
        for column in others:
            drawn.add_row(_text(f"  {column.head}", "dim"), Text(column.cells[row].strip()))
    return drawn


def _column(table: Table, position: int) -> Column:
    label, unit = table.columns[position]
    values = [row[position] for row in table.rows]
    style = style_of(values, unit, label)
    best = table.best.get(position)
    marks = (
        [BEST if row == best else " " for row in range(len(values))]
        if best is not None
        else [""] * len(values)
    )
    cells = tuple(printable(style.write(value)) + mark for value, mark in zip(values, marks, strict=True))
    return Column(
        printable(heading(label, style.unit)), cells, any(isinstance(value, str) for value in values)
    )


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
