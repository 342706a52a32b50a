"""Strings that came from a log, made harmless wherever they are shown."""

from __future__ import annotations

FORMULA = ("=", "+", "-", "@")  # a spreadsheet runs a cell that starts with one of these


def printable(text: str) -> str:
    """Control, direction and other invisible characters written out: a terminal obeys none of them."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def table_cell(text: str) -> str:
    """A string for a cell of a CSV or TSV file: printable, and text for a spreadsheet too."""
    text = printable(text)
    return f"'{text}" if text.startswith(FORMULA) else text
