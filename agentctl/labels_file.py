"""A file of labels as typed columns: CSV, JSON lines or Parquet give the same frame.

Names are text, everything else is a number; an empty cell is null. A column that agentctl does not know is a
feature of the request, and a number: text has no place here, and no prompt is ever read.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from agentctl.errors import InputError
from agentctl.estimators.step_rows import json_rows
from agentctl.ingest.source import Source
from agentctl.toml import suggestion

NAMES = ("request_id", "task", "model")
TOKENS = ("prompt_tokens", "output_tokens")
KNOWN = (*NAMES, "score", *TOKENS)
ALIKE = 0.75  # a name this close to one of ours is a slip of the pen, not a feature
LONGEST = 200  # characters of a name
PLACES = 3  # rows that an error names


def read_columns(path: Path, inputs: dict[str, str]) -> tuple[str, pl.DataFrame]:
    """(name of the file, its columns with `row` from 1); the file's sha256 goes into `inputs`.

    All of KNOWN are there, features behind them. Raises InputError with file and row.
    """
    source = Source(str(path))
    raw = _parquet(path, source.name) if source.is_parquet else _text(source)
    inputs[source.name] = source.finish()[0]
    if raw.height == 0:
        raise InputError("holds no rows", place=source.name, expected="labels, one a row")
    features = [name for name in raw.columns if name not in KNOWN]
    for name in features:
        _check_feature(raw[name], name, source.name)
    columns = [pl.int_range(1, raw.height + 1, eager=True).alias("row")]
    for name in (*KNOWN, *features):
        cells = raw[name] if name in raw.columns else pl.Series(name, [None] * raw.height, pl.Null)
        read = _names if name in NAMES else _numbers
        columns.append(read(cells, f"{source.name}: {name}").alias(name))
    return source.name, pl.DataFrame(columns)


def refuse(bad: pl.Series, rows: pl.Series, place: str, fact: str, **help: str | None) -> None:
    """Raise InputError where `bad` holds, naming the first rows and how many there are."""
    found = rows.filter(bad.fill_null(False))
    if found.len():
        some = ", ".join(str(row) for row in found.head(PLACES))
        more = f" and {found.len() - PLACES:,} more" if found.len() > PLACES else ""
        raise InputError(f"{fact} (row {some}{more})", place=place, **help)


def _text(source: Source) -> pl.DataFrame:
    text = source.document()
    first = text.lstrip()[:1]
    if first == b"[":
        raise InputError("is one JSON list", place=source.name, hint="one object a line: jq -c '.[]' FILE")
    return _json(json_rows(text, source.name)) if first == b"{" else _csv(text, source.name)


def _csv(text: bytes, name: str) -> pl.DataFrame:
    try:
        header = next(csv.reader(io.StringIO(text.split(b"\n", 1)[0].decode())), [])
        frame = pl.read_csv(io.BytesIO(text), infer_schema=False)
    except (pl.exceptions.PolarsError, UnicodeDecodeError, csv.Error, StopIteration) as error:
        raise InputError(
            "is neither CSV nor JSON lines nor Parquet",
            place=name,
            expected="UTF-8, commas, and as many cells in each row as in the header",
        ) from error
    twice = [column for column in header if header.count(column) > 1]
    if twice:
        raise InputError(f"two columns are called {twice[0]!r}", place=name)
    return frame.rename({old: old.strip() for old in frame.columns})


def _json(records: Sequence[dict[str, Any]]) -> pl.DataFrame:
    """One column for every key; cells of several types as text, what is no cell as Object."""
    columns = []
    for name in dict.fromkeys(key for record in records for key in record):
        cells = [record.get(name) for record in records]
        kinds = {type(cell) for cell in cells if cell is not None}
        if kinds <= {int, float} or kinds == {bool}:
            columns.append(pl.Series(name, [None if c is None else float(c) for c in cells], pl.Float64))
        elif kinds <= {str, int, float}:
            columns.append(pl.Series(name, [None if c is None else str(c) for c in cells], pl.String))
        else:
            columns.append(pl.Series(name, cells, pl.Object))
    return pl.DataFrame(columns)


def _parquet(path: Path, name: str) -> pl.DataFrame:
    try:
        return pl.read_parquet(path, glob=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        raise InputError("cannot be read as Parquet: it is truncated or damaged", place=name) from error


def _check_feature(cells: pl.Series, name: str, place: str) -> None:
    """A column of ours misspelt, or text, is no feature."""
    hint = suggestion(name, KNOWN)
    if _is_alike(name):
        rename = f"{hint} If it is a feature of the request, give it a name of its own"
        raise InputError(f"unknown column {name[:LONGEST]!r}", place=place, hint=rename)
    if not (cells.dtype.is_numeric() or cells.dtype in (pl.Boolean, pl.Null)) and not _is_number(cells):
        raise InputError(
            f"unknown column {name[:LONGEST]!r} does not hold numbers",
            place=place,
            expected="a feature is a number; no text of a prompt belongs into labels",
            hint=f"leave it out; {hint}",
        )


def _is_alike(name: str) -> bool:
    import difflib

    return bool(difflib.get_close_matches(name.lower(), KNOWN, n=1, cutoff=ALIKE))


def _is_number(cells: pl.Series) -> bool:
    """Whether the first cell of text that is not empty is a number: one bad cell is reported with its row."""
    if cells.dtype != pl.String:
        return False
    filled = cells.str.strip_chars().replace("", None).drop_nulls()
    return filled.len() == 0 or filled.head(1).cast(pl.Float64, strict=False).null_count() == 0


def _names(cells: pl.Series, place: str) -> pl.Series:
    rows = pl.int_range(1, cells.len() + 1, eager=True)
    if cells.dtype == pl.Float64:  # JSON numbers: 17, not 17.0
        whole = cells == cells.round(0)
        cells = pl.select(
            pl.when(whole)
            .then(cells.cast(pl.Int64, strict=False).cast(pl.String))
            .otherwise(cells.cast(pl.String))
        ).to_series()
    elif cells.dtype in (pl.Object, pl.Boolean) or cells.dtype.is_nested() or cells.dtype == pl.Binary:
        raise InputError("does not hold names", place=place, expected="text")
    names = cells.cast(pl.String).str.strip_chars().replace("", None)
    limit = f"a name of at most {LONGEST} characters"
    refuse(names.str.len_chars() > LONGEST, rows, place, "is no name", expected=limit)
    return names


def _numbers(cells: pl.Series, place: str) -> pl.Series:
    rows = pl.int_range(1, cells.len() + 1, eager=True)
    if cells.dtype == pl.String:
        text = cells.str.strip_chars().replace("", None)
        numbers = text.cast(pl.Float64, strict=False)
        refuse(numbers.is_null() & text.is_not_null(), rows, place, "is no number", expected="a number")
        refuse(numbers.is_nan(), rows, place, "is not finite", expected="a number, or an empty cell")
    elif cells.dtype.is_numeric() or cells.dtype in (pl.Boolean, pl.Null):
        numbers = cells.cast(pl.Float64).fill_nan(None)  # how pandas writes a missing number
    else:
        raise InputError("does not hold numbers", place=place, expected="numbers")
    refuse(numbers.is_infinite(), rows, place, "is not finite", expected="a number, or an empty cell")
    return numbers


def features_of(frames: Iterator[pl.DataFrame]) -> tuple[str, ...]:
    """Names of the features in any of the frames, sorted."""
    return tuple(sorted({name for frame in frames for name in frame.columns} - {*KNOWN, "row", "file"}))
