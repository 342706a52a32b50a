"""A file of JSON lines that is written as things happen: a header first, and nothing is lost."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, Any

from agentctl.errors import InputError, OutputError


class RowsFile:
    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        self.path, self.header = path, header
        self._file: IO[str] | None = None

    def open(self) -> None:
        """Go on writing; raises OutputError."""
        try:
            self._file = self.path.open("a", encoding="utf-8")
            if self.path.stat().st_size == 0:
                self.write(self.header)
        except OSError as error:
            raise OutputError(f"cannot be written ({error.strerror})", place=str(self.path)) from error

    def close(self) -> None:
        file, self._file = self._file, None
        if file:
            with contextlib.suppress(OSError):  # what could not be written was said by write()
                file.close()

    def write(self, row: dict[str, Any]) -> None:
        assert self._file is not None, "open() comes first"
        try:
            self._file.write(json.dumps(row, separators=(",", ":")) + "\n")
            self._file.flush()
        except OSError as error:
            raise OutputError(f"cannot be written ({error.strerror})", place=str(self.path)) from error


def read_rows_file(path: Path, schema: str) -> list[dict[str, Any]]:
    """Header and rows. Raises InputError for another file, or one that is damaged before its last line; a
    last line that a killed run left half written is taken off."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", place=str(path)) from error
    rows, lines = [], text.splitlines()
    for number, line in enumerate(lines):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            rows.append(row)
        elif number + 1 < len(lines):
            raise InputError("is no JSON object", place=f"{path}:{number + 1}")
    if not rows or rows[0].get("schema") != schema:
        raise InputError("holds no measured rows", place=str(path), expected=f"schema {schema}")
    if len(rows) < len(lines) or not text.endswith("\n"):  # the next row begins a line
        path.write_text("".join(f"{line}\n" for line in lines[: len(rows)]), encoding="utf-8")
    return rows


def with_zeros(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Some servers report cached tokens only where there are any: there, none reported is none found."""
    if not any(row["cached_tokens"] for row in rows):
        return list(rows)
    return [{**row, "cached_tokens": row["cached_tokens"] or 0} for row in rows]


def check_answer(row: dict[str, Any], counts: Iterable[str]) -> None:
    """Of a request's row, `counts`: its whole numbers. Raises KeyError, TypeError, ValueError."""
    for key in counts:
        if type(row[key]) is not int:
            raise TypeError(key)
    for key in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        if row[key] is not None and type(row[key]) is not int:
            raise TypeError(key)
    row["chunks_s"] = [float(value) for value in row["chunks_s"]]
    row["sent"] = float(row["sent"])
