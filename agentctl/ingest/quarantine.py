"""Records that cannot be used: counted, placed, never quoted. One bad line costs one line."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from agentctl.errors import BadRecordsError
from agentctl.files import atomic_file

MAX_PLACES = 1000  # places kept per file; the rest is only counted


@dataclass(frozen=True)
class Place:
    """Where a bad record stands: file, line from 1, byte offset in the unpacked text, length."""

    file: str
    line: int
    byte_offset: int
    length: int
    reason: str
    json_path: str | None = None

    def __str__(self) -> str:
        at = f" at {self.json_path}" if self.json_path else ""
        return f"{self.file}:{self.line}: {self.reason}{at}"


@dataclass
class Quarantine:
    """The bad records of one file."""

    file: str
    places: list[Place] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return sum(self.reasons.values())

    @property
    def is_full(self) -> bool:
        """No more places are kept, only counts."""
        return len(self.places) >= MAX_PLACES

    def add(self, line: int, offset: int, length: int, reason: str, json_path: str | None = None) -> None:
        self.reasons[reason] += 1
        if not self.is_full:
            self.places.append(Place(self.file, line, offset, length, reason, json_path))


@dataclass(frozen=True)
class Budget:
    """How many bad records a run tolerates. Only the limits given apply; none given means none tolerated."""

    max_bad: int | None = None
    max_bad_ratio: float | None = None

    def check(self, places: list[Place], reasons: Counter[str], n_records: int, report: Path | None) -> None:
        """Raise BadRecordsError when there are more bad records than allowed."""
        bad = sum(reasons.values())
        if not bad or self._allows(bad, n_records):
            return
        shown = "\n".join(f"  {place}" for place in places[:5])
        totals = ", ".join(f"{reason} {n:,}" for reason, n in sorted(reasons.items()))
        where = f" (place and reason in {report})" if report else ""
        cure = f"--max-bad {bad} sets them aside"
        if bad == n_records:
            cure = "no record is good: is it the right format? --format NAME decides"
        raise BadRecordsError(
            f"{bad:,} of {n_records:,} records are bad ({totals}); the first:\n{shown}", hint=cure + where
        )

    def _allows(self, bad: int, n_records: int) -> bool:
        if self.max_bad is None and self.max_bad_ratio is None:
            return False
        within_count = self.max_bad is None or bad <= self.max_bad
        within_ratio = self.max_bad_ratio is None or bad <= self.max_bad_ratio * n_records
        return within_count and within_ratio


def write_places(path: Path, places: list[Place], reasons: Counter[str]) -> None:
    """One JSON line a bad record (file, line, offset, length, reason), totals first; never the record."""
    with atomic_file(path, force=True) as temporary, temporary.open("w", encoding="utf-8") as out:
        out.write(
            json.dumps({"quarantined": sum(reasons.values()), "reasons": dict(sorted(reasons.items()))})
        )
        out.write("\n")
        for place in places:
            out.write(json.dumps(vars(place)) + "\n")
