"""The file of what was measured: JSON lines, written as answers end: nothing is lost, and a run can go on.

A header (schema, plan, model, salt), a line per request, per step that ended and per start of the program.
No prompt, no answer, no key and no address is in it.
"""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from msgspec import ValidationError, convert

from agentctl.endpoint.client import Answer, Dialect
from agentctl.endpoint.plan import Plan, Probe, Step
from agentctl.errors import InputError, OutputError

PROBE_SCHEMA = "agentctl/probe/1"


@dataclass
class Measured:
    """header and rows as read; `done`: names of steps that ended; only their rows are used."""

    path: Path
    header: dict[str, Any]
    requests: list[dict[str, Any]] = field(default_factory=list)
    steps: dict[str, dict[str, Any]] = field(default_factory=dict)
    attempts: int = 0
    _file: IO[str] | None = None

    @property
    def seconds_spent(self) -> float:
        return sum(float(step.get("seconds", 0)) for step in self.steps.values())

    def rows(self) -> list[dict[str, Any]]:
        """Requests of the steps that ended, of the attempt that ended them."""
        return [
            row for row in self.requests
            if row["step"] in self.steps and row["attempt"] == self.steps[row["step"]]["attempt"]
        ]  # fmt: skip

    def open(self) -> None:
        """Go on writing; raises OutputError."""
        try:
            self._file = self.path.open("a", encoding="utf-8")
            if self.path.stat().st_size == 0:
                self._write(self.header)
        except OSError as error:
            raise OutputError(f"cannot be written ({error.strerror})", place=str(self.path)) from error
        self.attempts += 1
        self._write({"attempt": self.attempts})

    def close(self) -> None:
        if self._file:
            self._file.close()
            self._file = None

    def add(self, step: Step, phase: int, probe: Probe, answer: Answer, origin: float) -> None:
        seen = asdict(answer)
        row = {
            "step": step.name, "kind": step.kind, "phase": phase, "request": probe.name, "role": probe.role,
            "attempt": self.attempts, "asked_tokens": probe.prompt_tokens,
            "prefix_tokens": sum(piece.tokens for piece in probe.prompt[:-1]), "max_tokens": probe.max_tokens,
            **seen, "sent": seen["sent"] - origin,
        }  # fmt: skip
        self.requests.append(row)
        self._write(row)

    def end_step(self, step: Step, facts: dict[str, Any]) -> None:
        row = {"ended": step.name, "attempt": self.attempts, **facts}
        self.steps[step.name] = row
        self._write(row)

    def _write(self, row: dict[str, Any]) -> None:
        assert self._file is not None, "open() comes first"
        self._file.write(json.dumps(row, separators=(",", ":")) + "\n")
        self._file.flush()


def new_measured(
    path: Path, plan: Plan, model: str, engine: dict[str, Any], salt: str | None = None
) -> Measured:
    """`engine`: what the server says of itself and the file should keep. The salt makes prompts of two runs
    differ, so that the second finds none of the first one's in the prefix cache."""
    header = {"schema": PROBE_SCHEMA, "plan": plan.digest, "model": model, "salt": salt or new_salt()}
    return Measured(path, {**header, **engine})


def new_salt() -> str:
    return secrets.token_hex(8)


def dialect_of(header: dict[str, Any], place: str) -> Dialect:
    """How the server of a file was asked; raises InputError."""
    try:
        return convert(header["dialect"], Dialect)
    except (KeyError, ValidationError) as error:
        raise InputError("holds no usable dialect", place=place) from error


def read_measured(path: Path) -> Measured:
    """Raises InputError for another file, or one that is damaged before its last line (which a killed run may
    have left half written)."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    rows = []
    for number, line in enumerate(lines):
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if isinstance(row, dict):
            rows.append(row)
        elif number + 1 < len(lines):
            raise InputError("is no JSON object", place=f"{path}:{number + 1}")
    if not rows or rows[0].get("schema") != PROBE_SCHEMA:
        raise InputError("holds no measured rows", place=str(path), expected=f"schema {PROBE_SCHEMA}")
    found = Measured(path, rows[0])
    for number, row in enumerate(rows[1:], 2):
        try:
            _take(found, row)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("is no row of a probe", place=f"{path}:{number}") from error
    if lines and len(rows) < len(lines):
        path.write_text("".join(f"{line}\n" for line in lines[:-1]), encoding="utf-8")
    return found


def _take(found: Measured, row: dict[str, Any]) -> None:
    if "ended" in row:
        found.steps[str(row["ended"])] = {**row, "attempt": int(row["attempt"])}
    elif "request" in row:
        _check(row)
        found.requests.append(row)
    else:
        found.attempts = max(found.attempts, int(row["attempt"]))


def _check(row: dict[str, Any]) -> None:
    for key in ("step", "kind", "request", "role", "status"):
        if not isinstance(row[key], str):
            raise TypeError(key)
    for key in ("phase", "attempt", "asked_tokens", "prefix_tokens", "max_tokens"):
        if type(row[key]) is not int:
            raise TypeError(key)
    for key in ("prompt_tokens", "completion_tokens", "cached_tokens"):
        if row[key] is not None and type(row[key]) is not int:
            raise TypeError(key)
    row["chunks_s"] = [float(value) for value in row["chunks_s"]]
    row["sent"] = float(row["sent"])
