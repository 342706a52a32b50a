"""Power samples of one engine's GPUs: what nvidia-smi or an NVML loop wrote, CSV or JSON lines.

    timestamp, index, power.draw [W], clocks.current.sm [MHz]     (nvidia-smi --query-gpu=... --format=csv)
    2026/11/30 12:10:16.123, 0, 301.25 W, 1980 MHz

    {"time_s": 1764504616.1, "watts": 301.2, "clock_mhz": 1980, "phase": "decode"}

Clock, phase and GPU are optional. A sample is the mean over the time since the one before of the same GPU.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from agentctl.errors import InputError
from agentctl.estimators.step_rows import json_rows
from agentctl.ingest.source import Source

PHASES = ("idle", "prefill", "decode", "mixed", "busy")
FEWEST = 20  # samples of a GPU
LOWEST_W, HIGHEST_W = 5.0, 3000.0  # the median of a GPU outside of these is in another unit
ABSOLUTE_S = 1e9  # times beyond are unix seconds
COLUMNS = {
    "time": {"time_s": 1.0, "time": 1.0, "ts": 1.0, "ts_s": 1.0, "timestamp": 1.0, "timestamp_s": 1.0,
             "time_ms": 1e-3, "timestamp_ms": 1e-3, "time_ns": 1e-9, "timestamp_ns": 1e-9},
    "watts": {"watts": 1.0, "power_w": 1.0, "power": 1.0, "power.draw": 1.0, "power.draw.average": 1.0,
              "power.draw.instant": 1.0, "power_draw_w": 1.0, "power_mw": 1e-3, "milliwatts": 1e-3},
    "clock": {"clock_mhz": 1.0, "sm_clock_mhz": 1.0, "clocks.sm": 1.0, "clocks.current.sm": 1.0,
              "clocks.gr": 1.0, "clocks.current.graphics": 1.0},
    "phase": {"phase": 1.0},
    "gpu": {"index": 1.0, "gpu": 1.0, "gpu_index": 1.0, "uuid": 1.0, "gpu_uuid": 1.0},
}  # fmt: skip
_NUMBER = re.compile(r"\s*([-+]?[0-9]+(?:\.[0-9]*)?(?:[eE][-+]?[0-9]+)?)\s*(?:W|MHz)?\s*")
_UNKNOWN = ("", "[N/A]", "N/A", "[Not Supported]")


@dataclass(frozen=True)
class PowerSamples:
    """n samples, GPU by GPU in order of time; NaN where unknown.

    since_s   when the sample before was taken: the mean is over since_s to time_s
    phase     position in PHASES, -1: not said
    gpu       number of the GPU, from 0
    """

    time_s: np.ndarray
    since_s: np.ndarray
    watts: np.ndarray
    clock_mhz: np.ndarray
    phase: np.ndarray
    gpu: np.ndarray
    inputs: dict[str, str]  # {file name: sha256}

    @property
    def n_gpus(self) -> int:
        return int(self.gpu.max()) + 1

    @property
    def is_absolute(self) -> bool:
        return bool(self.time_s[0] > ABSOLUTE_S)


def read_power(paths: Sequence[Path]) -> PowerSamples:
    """The samples in `paths`, all of one engine. Raises InputError, with the place, for what is no sample."""
    inputs: dict[str, str] = {}
    rows = [row for path in paths for row in _file(path, inputs)]
    place = ", ".join(path.name for path in paths)
    labels = sorted({row[4] for row in rows})
    parts = [_of_one(sorted((r for r in rows if r[4] == gpu), key=lambda r: r[0]), place) for gpu in labels]
    gpu = np.concatenate([np.full(len(part), number) for number, part in enumerate(parts)])
    time_s, since_s, watts, clock, phase = np.concatenate(parts).T
    if (time_s > ABSOLUTE_S).any() != (time_s > ABSOLUTE_S).all():
        raise InputError("holds dates and times from a start of its own", place=place, expected="one clock")
    return PowerSamples(time_s, since_s, watts, clock, phase.astype(np.int64), gpu, inputs)


Row = tuple[float, float, float, int, str]  # time, watts, clock, phase, GPU


def _of_one(rows: list[Row], place: str) -> np.ndarray:
    """time, since, watts, clock, phase of one GPU's samples but the first, whose beginning nobody knows."""
    known = np.array([row[:4] for row in rows if math.isfinite(row[1])]).reshape(-1, 4)
    if len(known) < FEWEST:
        raise InputError(f"holds {len(known)} samples of a GPU", place=place, expected=f"at least {FEWEST}")
    median = float(np.median(known[:, 1]))
    if not LOWEST_W <= median <= HIGHEST_W:
        raise InputError(
            f"the median sample is {median:.3g} W",
            place=place,
            expected=f"{LOWEST_W:g} to {HIGHEST_W:g} W of one GPU",
            hint="milliwatts, as NVML gives them, belong in a column power_mw",
        )
    time = known[:, 0]
    if (np.diff(time) <= 0).any():
        raise InputError(
            "has two samples of a GPU at one time", place=place, expected="one GPU a column `gpu`"
        )
    return np.column_stack((time[1:], time[:-1], known[1:, 1:]))


def _file(path: Path, inputs: dict[str, str]) -> list[Row]:
    source = Source(str(path))
    text = source.document()
    inputs[path.name] = source.finish()[0]
    if text.lstrip()[:1] == b"{":
        records: list[dict[str, Any]] = json_rows(text, path.name)
        first = 1
    else:
        try:
            lines = list(csv.reader(io.StringIO(text.decode()), skipinitialspace=True))
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError("is neither CSV nor JSON lines", place=path.name) from error
        head = [name.strip() for name in lines[0]] if lines else []
        if any(len(line) != len(head) for line in lines if line):
            raise InputError("has rows of several lengths", place=path.name, expected="CSV with a header")
        records = [dict(zip(head, line, strict=True)) for line in lines[1:] if line]
        first = 2
    names = sorted({name for record in records[:100] for name in record})
    chosen = {what: _column(names, aliases) for what, aliases in COLUMNS.items()}
    for what in ("time", "watts"):
        if chosen[what] is None:
            known = ", ".join(list(COLUMNS[what])[:4])
            raise InputError(f"has no column of {what}", place=path.name, expected=f"one of {known}, ...")
    return [_row(record, chosen, f"{path.name}:{line}") for line, record in enumerate(records, start=first)]


Column = tuple[str, float] | None  # name in the file, our units per one of its own


def _column(names: Sequence[str], aliases: Mapping[str, float]) -> Column:
    """The column of the first known name; units in brackets, as nvidia-smi has them, do not count."""
    plain = {re.sub(r"\s*\[\w+\]$", "", name).lower(): name for name in names}
    return next(((plain[alias], scale) for alias, scale in aliases.items() if alias in plain), None)


def _row(record: Mapping[str, Any], chosen: Mapping[str, Column], place: str) -> Row:
    cell = {what: None if column is None else record.get(column[0]) for what, column in chosen.items()}
    scale = {what: 1.0 if column is None else column[1] for what, column in chosen.items()}
    time = _date(cell["time"])
    time = _number(cell["time"], f"{place}: time") * scale["time"] if time is None else time
    if not math.isfinite(time):
        raise InputError("has no time", place=place)
    watts = _number(cell["watts"], f"{place}: power") * scale["watts"]
    if watts < 0:
        raise InputError(f"power is {watts:g} W", place=place, expected="0 or more")
    clock = _number(cell["clock"], f"{place}: clock") * scale["clock"]
    phase = cell["phase"]
    if phase not in (None, "", *PHASES):
        raise InputError("is no phase", place=f"{place}: phase", expected=" or ".join(PHASES))
    return time, watts, clock, PHASES.index(phase) if phase else -1, str(cell["gpu"])


def _number(value: Any, place: str) -> float:
    """`301.25 W` as 301.25; NaN where nothing is said."""
    if value is None or (isinstance(value, str) and value.strip() in _UNKNOWN):
        return math.nan
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    match = _NUMBER.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise InputError("is no number", place=place, expected="a number")
    return float(match[1])


def _date(value: Any) -> float | None:
    """Unix seconds of `2026/11/30 12:10:16.123` or ISO 8601, in UTC unless it has a zone; None: no date."""
    if not isinstance(value, str) or _NUMBER.fullmatch(value):
        return None
    try:
        date = datetime.fromisoformat(value.strip().replace("/", "-"))
    except ValueError:
        return None
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
