"""Step logs of one engine in whichever form they come: read, checked, cleaned of what is no steady step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from agentctl.errors import InputError, UsageError
from agentctl.estimators import step_kernels, step_rows, step_sglang
from agentctl.estimators.step_rows import Rows
from agentctl.estimators.steps import MIN_ROWS, Steps, checked, joined
from agentctl.ingest.source import Source

WARM_UP = 20  # steps in which engines still compile and capture graphs
MOST_OVERLAP = 2.0  # steps of one engine follow each other: their sum over the time that they span
MOST_WAIT = 0.05  # share of a step in which the engine's thread may have waited for a core


@dataclass(frozen=True)
class StepLog:
    steps: Steps
    formats: tuple[str, ...]
    inputs: dict[str, str]  # {file name: sha256}
    read: int  # steps in the files
    set_aside: dict[str, int]  # {reason: steps}
    notes: tuple[str, ...]
    loop_s: float | None = None  # median time between two steps of an engine that was not idle between them


def read_step_logs(
    paths: Sequence[Path],
    *,
    n_layers: int | None = None,
    renamed: Mapping[str, str] | None = None,
    warm_up: int | None = None,
    max_wait: float = MOST_WAIT,
) -> StepLog:
    """The steps in `paths`.

    n_layers  of the model, for kernel tables
    renamed   {column in the file: column that agentctl knows}
    warm_up   steps at the beginning of each file to leave out; None: WARM_UP of a log in order of time
    max_wait  share of a step that the engine's thread may have waited for a core, where the log says it
    Raises InputError, with the place, for files that hold no steps or damaged ones.
    """
    inputs: dict[str, str] = {}
    parts: list[Steps] = []
    formats: list[str] = []
    notes: list[str] = []
    aside = {"warm-up": 0, "waited for a core": 0, "computed nothing": 0}
    n_read = 0
    between: list[np.ndarray] = []
    for path in paths:
        rows = _read(path, n_layers, renamed or {}, inputs)
        place = path.name or str(path)
        _check_overlap(checked(rows.steps, place, min_rows=0), place)
        between.append(_between(rows))
        keep = _steady(rows, warm_up, max_wait, aside)
        n_read += len(rows.steps)
        parts.append(rows.steps.at(keep))
        formats.append(rows.format)
        notes += [note for note in rows.notes if note not in notes]
    place = ", ".join(path.name or str(path) for path in paths)
    _check_waits(sum(map(len, parts)), n_read, aside["waited for a core"], max_wait, place)
    steps = checked(joined(parts), place)
    gaps = np.concatenate(between)
    loop_s = float(np.median(gaps)) if len(gaps) >= MIN_ROWS else None
    return StepLog(steps, tuple(dict.fromkeys(formats)), inputs, n_read, aside, tuple(notes), loop_s)


def _check_waits(kept: int, read: int, waited: int, most: float, place: str) -> None:
    """Raise InputError when too few steps are left for having waited."""
    if kept < MIN_ROWS <= kept + waited:
        raise InputError(
            f"{waited:,} of {read:,} steps waited for a core for more than {100 * most:g} % of their time",
            place=place,
            expected=f"at least {MIN_ROWS} that did not",
            hint="record on a quiet machine; --max-wait 0.2 takes steps that waited up to a fifth",
        )


def _between(rows: Rows) -> np.ndarray:
    """Seconds from the end of a step to the begin of the next, where the next has decodes: the engine had
    work all the time. None of logs that may leave steps out."""
    steps = rows.steps
    if not rows.follow or not np.isfinite(steps.time_s).all():
        return np.empty(0)
    gaps = np.diff(steps.time_s) - steps.seconds[:-1]
    return np.maximum(gaps, 0.0)[steps.n_decode[1:] > 0]


def _read(path: Path, n_layers: int | None, renamed: Mapping[str, str], inputs: dict[str, str]) -> Rows:
    if step_kernels.is_kernel_folder(path):
        for name in step_kernels.FILES:
            _text(path / name, inputs)
        return step_kernels.read_kernels(path, n_layers)
    if path.is_dir():
        raise InputError(
            "is a folder without " + ", ".join(step_kernels.FILES), place=path.name,
            expected="step logs, or a folder of kernel tables",
            hint=f"name the logs in it: {path.name}/*.jsonl",
        )  # fmt: skip
    text = _text(path, inputs)
    name = path.name
    if text.lstrip()[:1] == b"{":
        rows = step_rows.json_rows(text, name)
        _check_one_engine(rows, name)
        return step_rows.from_json(rows, name, renamed)
    if step_sglang.is_sglang(text):
        return step_sglang.read_sglang(text, name)
    head = text.split(b"\n", 1)[0]
    if b"," not in head:
        raise InputError(
            "holds no steps", place=name,
            expected="JSON lines, CSV with a header, SGLang's batch lines, or a folder of kernel tables",
            hint="agentctl calibrate steps --help; how to record them: docs/calibrate_steps.md",
        )  # fmt: skip
    return step_rows.from_columns(step_rows.csv_columns(text, name, renamed), name, "named columns")


def _text(path: Path, inputs: dict[str, str]) -> bytes:
    source = Source(str(path))
    text = source.document()
    digest = source.finish()[0]
    if digest in inputs.values():
        raise UsageError("is given twice", place=path.name, expected="every log once")
    inputs[path.name if path.name not in inputs else str(path)] = digest
    return text


def _check_one_engine(rows: Sequence[Mapping[str, object]], name: str) -> None:
    engines = {(str(row.get("worker_id")), str(row.get("dp_rank")), str(row.get("engine"))) for row in rows}
    if len(engines) > 1:
        raise InputError(
            f"holds the steps of {len(engines)} engines",
            place=name,
            expected="one engine a file",
            hint="split it by engine (worker_id, dp_rank); engines of one kind may be given together",
        )


def _check_overlap(steps: Steps, place: str) -> None:
    """Raise InputError when steps, in order of time, last longer than the time that they span."""
    if len(steps) < MIN_ROWS or not np.isfinite(steps.time_s).all():
        return
    span, total = float(np.ptp(steps.time_s)) + float(steps.seconds[-1]), float(steps.seconds.sum())
    if total > MOST_OVERLAP * span:
        raise InputError(
            f"its steps last {total:,.4g} s together and span {span:,.4g} s",
            place=place,
            expected="steps of one engine, one after the other",
            hint="a unit of time is wrong (name the column with its unit: duration_ms, time_us), or the log "
            "holds several engines",
        )


def _steady(rows: Rows, warm_up: int | None, max_wait: float, aside: dict[str, int]) -> np.ndarray:
    """Which steps to keep, bool[n]; the others are counted in `aside`, in place."""
    n = len(rows.steps)
    if warm_up is None:
        warm_up = WARM_UP if np.isfinite(rows.steps.time_s).all() and n >= WARM_UP + MIN_ROWS else 0
    is_warm = np.arange(n) >= warm_up
    waited = is_warm & (rows.wait_s > max_wait * rows.steps.seconds)
    aside["warm-up"] += int((~is_warm).sum())
    aside["waited for a core"] += int(waited.sum())
    is_empty = is_warm & ~waited & (rows.steps.tokens == 0)
    aside["computed nothing"] += int(is_empty.sum())
    return is_warm & ~waited & ~is_empty
