"""Steps from rows with named columns: JSON lines or CSV, whatever wrote them.

    {"schema": "agentctl/steps/1", "time_s": 12.5, "seconds": 0.031, "batch": [[4096, 1, 0], [0, 512, 1]]}
    {"schema": "agentctl/steps/1", "time_s": 12.5, "seconds": 0.031, "prefill_tokens": 512, "n_prefill": 1,
     "n_decode": 1, "kv_tokens": 4608}

`batch` holds [tokens computed before, tokens computed now, 1 if prefill else 0] of each request; the totals
of the second form do instead, with decode_context and prefill_context where they are known, else kv_tokens
(KV in use after the step was scheduled). Optional: wait_s (time in which the engine's thread had no core),
engine. Durations and times in other units say so in their name: duration_ms, time_us, wait_ms. Also known by
their names: the columns of Dynamo's ForwardPassMetrics v1 (dynamo.common.forward_pass_metrics; its idle
heartbeats are no steps) and of AIConfigurator's iteration tables, and `prefill_x_ctx` with `prefill_sq_sum`,
as the latency-aware routing paper's engine logs them.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import polars as pl

from agentctl.errors import InputError
from agentctl.estimators.steps import Floats, Steps, composed, even_pairs, steps_of
from agentctl.toml import suggestion

STEPS_SCHEMA = "agentctl/steps/1"
UNITS = {"_s": 1.0, "_ms": 1e-3, "_us": 1e-6, "_ns": 1e-9}
SECONDS = {
    "seconds": 1.0, "wall_time": 1.0, "ms": 1e-3,
    **{f"{name}{unit}": scale for name in ("duration", "step", "elapsed", "latency", "iteration")
       for unit, scale in UNITS.items()},
    "time_ms": 1e-3, "time_us": 1e-6,
}  # fmt: skip
TIME = {"time_s": 1.0, "ts": 1.0, "timestamp_s": 1.0, "start_s": 1.0, "timestamp": 1.0}
WAIT = {f"wait{unit}": scale for unit, scale in UNITS.items()}
COLUMNS = {
    "prefill_tokens": ("sum_prefill_tokens", "num_prefill_tokens", "num_ctx_tokens", "prefill"),
    "n_prefill": ("num_prefill_requests", "num_ctx_requests"),
    "prefill_context": ("sum_prefill_kv_tokens",),
    "prefill_pairs": (),
    "n_decode": ("num_decode_requests", "num_generation_requests", "decode"),
    "decode_context": ("sum_decode_kv_tokens",),
    "prefill_squares": ("prefill_sq_sum",),
    "sequence_tokens": ("sum_tokens",),
    "sequence_squares": ("sum_sq_tokens",),
    "prefill_x_ctx": ("prefill_x_processed_ctx_sum",),
    "kv_tokens": (),
}
BATCH = ("batch", "b")


class Rows(msgspec.Struct):
    """What a reader found: steps, and what has to be said of them."""

    steps: Steps
    wait_s: Floats  # NaN where unknown
    format: str
    notes: list[str] = []
    follow: bool = False  # every step of an engine is there, one after the other


def json_rows(text: bytes, name: str) -> list[dict[str, Any]]:
    """One object a line; raises InputError with the line of the first that is none."""
    rows = []
    decode = msgspec.json.Decoder(dict[str, Any]).decode
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            rows.append(decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            last = not text.endswith(b"\n") and number == text.count(b"\n") + 1
            hint = "the file was cut off while it was written: copy it again, or delete its last line"
            raise InputError(
                "is no JSON object",
                place=f"{name}:{number}",
                expected="one JSON object a line",
                hint=hint if last else "NaN and Infinity are no JSON: write null for what is unknown",
            ) from error
    return rows


def csv_columns(text: bytes, name: str, renamed: Mapping[str, str]) -> dict[str, Floats]:
    """Numbers by column that agentctl knows; raises InputError for a cell that is none."""
    if not text.endswith(b"\n"):
        raise InputError(
            "its last line has no end", place=name, expected="a newline",
            hint="the file may be cut off: copy it again, or end the line if it is whole",
        )  # fmt: skip
    try:
        frame = pl.read_csv(io.BytesIO(text), infer_schema_length=None)
    except pl.exceptions.PolarsError as error:
        raise InputError(
            "is no CSV table with as many cells in every row",
            place=name,
            hint="it may have been cut off: copy it again, or delete its last line",
        ) from error
    _check_renamed(frame.columns, renamed, name)
    return {
        renamed.get(column, column): _cells(frame[column], f"{name}: column {column}")
        for column in frame.columns
        if column in known_names() | set(renamed)
    }


def _check_renamed(present: Collection[str], renamed: Mapping[str, str], name: str) -> None:
    for column in renamed:
        if column not in present:
            raise InputError(
                f"has no column {column!r}", place=name, hint=f"--map: {suggestion(column, present)}"
            )


def _cells(cells: pl.Series, place: str) -> Floats:
    """Numbers, an empty cell as NaN; raises InputError with the line of a cell that is no number."""
    numbers = cells.cast(pl.Float64, strict=False)
    wrong = (numbers.is_null() & cells.is_not_null()).arg_true()
    if len(wrong):
        raise InputError("is no number", place=f"{place}, line {wrong[0] + 2}", expected="numbers")
    return numbers.fill_null(np.nan).to_numpy()


def known_names() -> set[str]:
    others = {alias for names in COLUMNS.values() for alias in names}
    return {*SECONDS, *TIME, *WAIT, *COLUMNS, *others, *BATCH}


def from_json(rows: Sequence[Mapping[str, Any]], name: str, renamed: Mapping[str, str]) -> Rows:
    """Rows of one file; raises InputError when a needed column is missing or holds something else."""
    if rows and "scheduled_requests" in rows[0]:
        return _forward_passes(rows, name)
    batch = next((key for key in BATCH if rows and isinstance(rows[0].get(key), list)), None)
    present = {key for row in rows[:1000] for key in row}
    _check_renamed(present, renamed, name)
    keys = sorted(present & (known_names() | set(renamed)))
    table = {key: _numbers(rows, key, name) for key in keys if key != batch}
    table = {renamed.get(key, key): values for key, values in table.items()}
    if batch is None:
        return from_columns(table, name, "named columns")
    seconds, time_s, wait_s = _clock(table, len(rows), name)
    whole = all(isinstance(row.get(batch), list) and row[batch] for row in rows)
    if not (whole and _is_batch([part for row in rows for part in row[batch]])):
        line = next(number for number, row in enumerate(rows, start=1) if not _is_batch(row.get(batch)))
        raise InputError(
            "a step does not name its requests in whole numbers >= 0",
            place=f"{name}:{line}",
            expected=f"{batch}: [[context, tokens, 1 if prefill else 0], ...]",
            hint="take that line out, or record with agentctl.recorders.vllm_scheduler",
        )
    steps = composed([row[batch] for row in rows], list(seconds), list(time_s))
    # `scene`: of a measurement that leaves out what led to a batch (agentctl/inprocess)
    return Rows(steps, wait_s, "steps with their composition", follow="scene" not in present)


def _is_batch(value: Any) -> bool:
    """[[tokens before, tokens now, 1 if prefill else 0], ...], of at least one request."""
    if not isinstance(value, list) or not value:
        return False
    try:
        parts = np.array(value)
    except (ValueError, OverflowError):  # rows of several lengths
        return False
    is_table = parts.ndim == 2 and parts.shape[1] == 3 and parts.dtype.kind == "i"
    return bool(is_table and (parts >= 0).all() and (parts[:, 2] <= 1).all())


def _forward_passes(rows: Sequence[Mapping[str, Any]], name: str) -> Rows:
    for line, row in enumerate(rows, start=1):
        version = row.get("version", 1)
        if version != 1:
            told = f"version {version}" if isinstance(version, int) else "another version"
            raise InputError(f"ForwardPassMetrics of {told}", place=f"{name}:{line}", expected="version 1",
                             hint="record with a Dynamo that writes version 1")  # fmt: skip
        if row.get("wall_time") != 0 and not isinstance(row.get("scheduled_requests"), dict):
            raise InputError("has no scheduled_requests", place=f"{name}:{line}",
                             expected="an object, as in the lines before" if line > 1 else "an object",
                             hint="take that line out")  # fmt: skip
    busy = [{**row, **row["scheduled_requests"]} for row in rows if row.get("wall_time") != 0]
    if not busy:
        raise InputError(f"all {len(rows):,} lines are idle heartbeats (wall_time 0)", place=name,
                         hint="record while the engine serves requests")  # fmt: skip
    keys = [key for key in known_names() if busy and key in busy[0]]
    found = from_columns({key: _numbers(busy, key, name) for key in keys}, name, "ForwardPassMetrics")
    idle = len(rows) - len(busy)
    return Rows(
        found.steps, found.wait_s, found.format,
        [*found.notes, *([f"{idle:,} idle heartbeats are no steps"] if idle else [])],
    )  # fmt: skip


def _numbers(rows: Sequence[Mapping[str, Any]], key: str, name: str) -> Floats:
    values = [row.get(key) for row in rows]
    for line, value in enumerate(values, start=1):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            kind = type(value).__name__
            raise InputError(f"{key} is of type {kind}", place=f"{name}:{line}", expected="a number")
    return np.array([np.nan if value is None else _float(value) for value in values], np.float64)


def _float(value: int | float) -> float:
    """A whole number too large for one is refused like infinity, later."""
    try:
        return float(value)
    except OverflowError:
        return np.inf


def from_columns(table: Mapping[str, Floats], name: str, format_: str) -> Rows:
    """Steps from columns by name, sums as far as they are known."""
    n = len(next(iter(table.values()), np.empty(0)))
    seconds, time_s, wait_s = _clock(table, n, name)
    known = {
        column: table[found]
        for column, aliases in COLUMNS.items()
        if (found := next((key for key in (column, *aliases) if key in table), None))
    }
    for column in ("prefill_tokens", "n_decode"):
        said = np.isfinite(known.get(column, np.empty(0)))
        if column not in known or not said.all():
            first = f"step {int(np.argmin(said)) + 1:,} does not" if column in known else "no step does"
            cure = "the file may be cut off: copy it again" if column in known else ""
            raise InputError(
                f"does not say {column} of every step: {first}",
                place=name,
                expected=f"a column {column}",
                hint=cure or f"--map {column}=YOUR_COLUMN names it",
            )
    notes = _complete(known)
    kept = {key: values for key, values in known.items() if key not in ("prefill_x_ctx", "kv_tokens")}
    return Rows(steps_of(n, seconds=seconds, time_s=time_s, **kept), wait_s, format_, notes)


def _complete(known: dict[str, Floats]) -> list[str]:
    """Fill in, in place, what the other sums imply; returns what had to be assumed."""
    notes = []
    prefill, decodes = known["prefill_tokens"], known["n_decode"]
    if "n_prefill" not in known:
        known["n_prefill"] = (prefill > 0).astype(np.float64)
        notes.append("the log does not count prefill chunks: one a step is assumed")
    chunks = known["n_prefill"]
    if "kv_tokens" in known and not {"decode_context", "prefill_context"} & known.keys():
        before = np.maximum(known["kv_tokens"] - prefill - decodes, 0)
        share = decodes / np.maximum(decodes + chunks, 1)
        known["decode_context"], known["prefill_context"] = before * share, before * (1 - share)
        notes.append(
            "contexts are taken from the KV in use and, in mixed steps, spread evenly over requests: rough"
        )
    for column, cause in (("decode_context", decodes), ("prefill_context", chunks)):
        if column in known:
            known[column] = np.where(cause == 0, 0.0, known[column])
    if "prefill_pairs" not in known and {"prefill_x_ctx", "prefill_squares"} <= known.keys():
        known["prefill_pairs"] = known["prefill_x_ctx"] + (known["prefill_squares"] + prefill) / 2
    elif "prefill_pairs" not in known and "prefill_context" in known:
        known["prefill_pairs"] = even_pairs(prefill, known["prefill_context"], chunks)
        if (chunks > 1).any():
            notes.append("attention pairs of steps with several chunks assume chunks of equal size")
    return notes


def _clock(table: Mapping[str, Floats], n: int, name: str) -> tuple[Floats, Floats, Floats]:
    """Durations, begin and waiting of each step, in seconds."""
    seconds = _first(table, SECONDS)
    if seconds is None:
        raise InputError(
            "does not say how long a step took",
            place=name,
            expected="a column seconds, duration_ms, time_us, ...",
            hint="--map duration_ms=YOUR_COLUMN names it with its unit",
        )
    unknown = np.full(n, np.nan)
    time_s, wait_s = _first(table, TIME), _first(table, WAIT)
    return seconds, unknown if time_s is None else time_s, unknown if wait_s is None else wait_s


def _first(table: Mapping[str, Floats], names: Mapping[str, float]) -> Floats | None:
    return next((table[key] * scale for key, scale in names.items() if key in table), None)
