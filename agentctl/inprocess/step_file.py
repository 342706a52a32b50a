"""The step log of a measurement: `agentctl/steps/1`, so that `agentctl calibrate steps` reads it, too.

A line a step, written scene by scene: nothing is lost, and a run can go on. The first line of each start also
says what the engine is (`engine_facts`). The first steps of the first start are its warm-up, as in every log;
later starts warm up without a line.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from agentctl.errors import InputError, OutputError, UsageError
from agentctl.recorders.writer import SCHEMA

if TYPE_CHECKING:
    from agentctl.inprocess.stepping import Taken

WARM = "warm-up"
SAME = ("asked", "engine", "device", "clock", "mode")  # facts; memory, and so KV blocks, may differ


class StepFile:
    """facts: of the engine that its steps are of, {} of a new file; done: (round, scene) that it has;
    spent_s: from the first step of each start to its last."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.facts: dict[str, Any] = {}
        self.done: set[tuple[int, str]] = set()
        self.starts = 0
        self.spent_s = 0.0
        self._said = False
        self._file: IO[str] | None = None
        if path.is_file() and path.stat().st_size:
            self._read()

    def _read(self) -> None:
        lines = self.path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        if not lines[-1].endswith("\n"):  # a killed run may have left half a line
            lines.pop()
            self.path.write_text("".join(lines), encoding="utf-8")
        before = began = 0.0
        for number, line in enumerate(lines, 1):
            try:
                row = json.loads(line)
                if "engine_facts" in row:
                    self.starts, before, began = self.starts + 1, self.spent_s, row["time_s"]
                self.spent_s = before + row["time_s"] - began
                if number == 1:
                    self.facts = dict(row["engine_facts"])
                if row["scene"] != WARM:
                    self.done.add((int(row["round"]), str(row["scene"])))
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    "is no step of a measured engine", place=f"{self.path}:{number}",
                    hint="name another file with --measured",
                ) from error  # fmt: skip

    def open(self, facts: dict[str, Any]) -> None:
        """Go on writing. Raises UsageError when the file is of another engine, OutputError."""
        if self.facts:
            check_same(self.facts, facts, SAME, self.path)
        self.facts = self.facts or facts
        try:
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot be written ({error.strerror})", place=str(self.path)) from error
        self.starts += 1

    def close(self) -> None:
        file, self._file = self._file, None
        if file:
            with contextlib.suppress(OSError):  # what could not be written was said by write()
                file.close()

    def write(
        self, taken: Sequence[Taken], number: int, scene: str, totals: dict[str, Any] | None = None
    ) -> None:
        """All steps of a scene at once, so that a file never holds half of one.

        totals  of each step's batch, where its composition is not known
        """
        assert self._file is not None, "open() comes first"
        text = ""
        for step in taken:
            row: dict[str, Any] = {
                "schema": SCHEMA, "time_s": step.time_s, "seconds": step.seconds,
                "wall_clock_s": step.wall_s, "scene": scene, "round": number,
                **({"batch": step.batch} if totals is None else totals),
            }  # fmt: skip
            if not self._said:
                row["engine_facts"] = self.facts
                self._said = True
            text += json.dumps(row, separators=(",", ":")) + "\n"
        try:
            self._file.write(text)
            self._file.flush()
        except OSError as error:
            raise OutputError(f"cannot be written ({error.strerror})", place=str(self.path)) from error
        if taken and scene != WARM:
            self.done.add((number, scene))


def check_same(then: dict[str, Any], now: dict[str, Any], keys: Iterable[str], path: Path) -> None:
    """Raise UsageError: steps of two engines make no profile of one."""
    differs = [key for key in keys if then.get(key) != now[key]]
    if differs:
        raise UsageError(
            f"was measured with another {', '.join(differs)}", place=str(path),
            hint="give the same flags, or another file with --measured",
        )  # fmt: skip
