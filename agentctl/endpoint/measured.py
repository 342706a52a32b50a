"""The file of what was measured: JSON lines, written as answers end: nothing is lost, and a run can go on.

A header (schema, plan, model, salt), a line per request, per step that ended and per start of the program.
No prompt, no answer, no key and no address is in it.
"""

from __future__ import annotations

import secrets
from dataclasses import asdict
from pathlib import Path
from typing import Any

from msgspec import ValidationError, convert

from agentctl.endpoint.client import Answer, Dialect
from agentctl.endpoint.plan import Plan, Probe, Step
from agentctl.endpoint.rows_file import RowsFile, check_answer, read_rows_file
from agentctl.errors import InputError

PROBE_SCHEMA = "agentctl/probe/1"


class Measured(RowsFile):
    """header and rows as read; `steps`: those that ended, by name; only their rows are used."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        super().__init__(path, header)
        self.requests: list[dict[str, Any]] = []
        self.steps: dict[str, dict[str, Any]] = {}
        self.attempts = 0

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
        super().open()
        self.attempts += 1
        self.write({"attempt": self.attempts})

    def add(self, step: Step, phase: int, probe: Probe, answer: Answer, origin: float) -> None:
        seen = asdict(answer)
        row = {
            "step": step.name, "kind": step.kind, "phase": phase, "request": probe.name, "role": probe.role,
            "attempt": self.attempts, "asked_tokens": probe.prompt_tokens,
            "prefix_tokens": sum(piece.tokens for piece in probe.prompt[:-1]), "max_tokens": probe.max_tokens,
            **seen, "sent": seen["sent"] - origin,
        }  # fmt: skip
        self.requests.append(row)
        self.write(row)

    def end_step(self, step: Step, facts: dict[str, Any]) -> None:
        row = {"ended": step.name, "attempt": self.attempts, **facts}
        self.steps[step.name] = row
        self.write(row)


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
    """Raises InputError for another file, or one that is damaged before its last line."""
    header, *rows = read_rows_file(path, PROBE_SCHEMA)
    found = Measured(path, header)
    for number, row in enumerate(rows, 2):
        try:
            _take(found, row)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("is no row of a probe", place=f"{path}:{number}") from error
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
    check_answer(row, ("phase", "attempt", "asked_tokens", "prefix_tokens", "max_tokens"))
