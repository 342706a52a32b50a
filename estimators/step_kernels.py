"""Steps put together from tables of measured kernels, as LLMServingSim's profiler writes them (5daddb2).

A folder with attention.csv (prefill_chunk, kv_prefill, n_decode, kv_decode of each, time_us of one layer),
dense.csv (layer, tokens, time_us of one call) and per_sequence.csv (layer, sequences, time_us):

    step = layers * (dense(tokens) + attention) + embedding + final norm + lm_head(seqs) + sampler(seqs)

with `layernorm` twice a layer, and times between measured numbers of tokens interpolated; somewhat beyond the
last they go on as over the upper half. It holds no work of the host, and the rows are a grid of what was
profiled, not what traffic does.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl

from agentctl.errors import InputError, UsageError
from agentctl.estimators.step_rows import Rows
from agentctl.estimators.steps import Floats, steps_of

FILES = ("attention.csv", "dense.csv", "per_sequence.csv")
ONCE = ("embedding", "final_layernorm")  # calls of a step; every other layer of dense.csv, of a layer
TWICE = ("layernorm",)
BEYOND = 1.25  # of the largest number that was measured: as far as times are extrapolated
CUT = "the file may be cut off: copy it again"
ATTENTION = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us")


def is_kernel_folder(path: Path) -> bool:
    return path.is_dir() and all((path / name).is_file() for name in FILES)


def read_kernels(folder: Path, n_layers: int | None) -> Rows:
    """Steps of a whole model of `n_layers`; raises UsageError without it, InputError for a damaged table."""
    if n_layers is None:
        raise UsageError(
            "kernel tables hold one layer",
            place=folder.name,
            hint="--layers N says how many the model has (num_hidden_layers of its config.json)",
        )
    attention = _table(folder / FILES[0], ATTENTION)
    chunk, past, n_decode, context, layer_us = (attention[name].to_numpy() for name in ATTENTION)
    tokens, n_prefill = chunk + n_decode, (chunk > 0).astype(np.float64)
    micros = n_layers * layer_us
    dense = _table(folder / FILES[1], ("layer", "tokens", "time_us"))
    _check_grid(dense, FILES[1])
    for (name,), rows in dense.group_by("layer", maintain_order=True):
        calls = 1 if name in ONCE else n_layers * (2 if name in TWICE else 1)
        micros = micros + calls * _between(tokens, rows, "tokens")
    per_sequence = _table(folder / FILES[2], ("layer", "sequences", "time_us"))
    for _, rows in per_sequence.group_by("layer", maintain_order=True):
        micros = micros + _between(n_prefill + n_decode, rows, "sequences")
    lengths = context + 1
    steps = steps_of(
        len(micros),
        seconds=micros * 1e-6,
        prefill_tokens=chunk,
        n_prefill=n_prefill,
        prefill_pairs=chunk * past + chunk * (chunk + 1) / 2,
        prefill_context=past * n_prefill,
        n_decode=n_decode,
        decode_context=n_decode * context,
        prefill_squares=chunk**2,
        sequence_tokens=n_decode * lengths + n_prefill * (past + chunk),
        sequence_squares=n_decode * lengths**2 + n_prefill * (past + chunk) ** 2,
    )
    notes = ["put together from measured kernels: no work of the host, and a grid instead of traffic"]
    return Rows(steps, np.full(len(micros), np.nan), "kernel tables", notes)


def _table(path: Path, columns: tuple[str, ...]) -> pl.DataFrame:
    try:
        frame = pl.read_csv(path, infer_schema_length=None)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError("is no CSV table", place=path.name, hint=CUT) from error
    if not path.read_bytes().endswith(b"\n"):
        raise InputError("its last line has no end", place=path.name, expected="a newline", hint=CUT)
    missing = [name for name in columns if name not in frame.columns]
    if missing or frame.is_empty():
        fact = f"has no column {missing[0]}" if missing else "holds no rows"
        raise InputError(fact, place=path.name, expected=", ".join(columns))
    numbers = [pl.col(name).cast(pl.Float64, strict=False) for name in columns if name != "layer"]
    frame = frame.with_columns(numbers)
    for line, row in enumerate(frame.select(columns).iter_rows(), start=2):
        numbers_of = row if columns[0] != "layer" else row[1:]
        if any(value is None for value in row):
            raise InputError("a cell is no number", place=f"{path.name}:{line}", hint=CUT)
        if not (all(0 <= value < np.inf for value in numbers_of) and row[-1] > 0):
            raise InputError(
                "a number is negative or none, or a time is 0", place=f"{path.name}:{line}",
                expected="counts >= 0 and a time_us above 0", hint="profile this row again, or take it out",
            )  # fmt: skip
    return frame


def _check_grid(dense: pl.DataFrame, name: str) -> None:
    """Every layer is measured at the same numbers of tokens; one that lacks some was cut off."""
    sizes = {layer: set(rows["tokens"]) for (layer,), rows in dense.group_by("layer", maintain_order=True)}
    every = set().union(*sizes.values())
    for layer, of in sizes.items():
        if of != every:
            raise InputError(
                f"{layer} is measured at {len(of)} numbers of tokens, other layers at {len(every)}",
                place=name, expected="the same of every layer", hint=CUT,
            )  # fmt: skip


def _between(at: Floats, rows: pl.DataFrame, column: str) -> Floats:
    """Times at these numbers; raises InputError far beyond the last one that was measured."""
    rows = rows.sort(column)
    known, micros = rows[column].to_numpy(), rows["time_us"].to_numpy()
    last = float(known[-1])
    if at.max() > BEYOND * last:
        raise InputError(
            f"is measured up to {last:,.0f} {column}, and batches have {at.max():,.0f}",
            place=rows["layer"][0], hint=f"profile more {column}; {CUT}",
        )  # fmt: skip
    middle = int(np.searchsorted(known, last / 2))
    slope = (micros[-1] - micros[middle]) / (last - known[middle]) if known[middle] < last else 0.0
    return np.interp(at, known, micros) + max(slope, 0.0) * np.maximum(at - last, 0)
