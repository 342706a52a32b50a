"""The file of a replay: JSON lines, a header and a line per request, written as answers end.

No prompt, no answer, no id of the trace, no key and no address is in it: requests are numbers of the slice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from agentctl.endpoint.client import Answer, Dialect
from agentctl.endpoint.rows import BUSY, STATUS, at_once, lengths_agree
from agentctl.endpoint.rows_file import RowsFile, check_answer, read_rows_file
from agentctl.errors import InputError

REPLAY_SCHEMA = "agentctl/replay/1"
LATE_S = 0.05  # after its time from which a request counts as sent late
NOT_SENT = "not sent"


class Replayed(RowsFile):
    """rows: of requests, as they ended; disturbed: stretches of time with others' traffic or a busy client;
    end: facts of the whole, None if it was interrupted."""

    def __init__(self, path: Path, header: dict[str, Any]) -> None:
        super().__init__(path, header)
        self.rows: list[dict[str, Any]] = []
        self.disturbed: list[dict[str, Any]] = []
        self.end: dict[str, Any] | None = None

    def add(self, request: int, asked: tuple[int, int], due: float, answer: Answer, origin: float) -> None:
        """asked: tokens of the prompt and of the output; times are on the loop's clock."""
        seen = asdict(answer)
        row = {
            "request": request, "asked_tokens": asked[0], "max_tokens": asked[1], "due": due - origin,
            **seen, "sent": seen["sent"] - origin,
        }  # fmt: skip
        self.rows.append(row)
        self.write(row)

    def disturb(self, begin: float, end: float, others: float, busy: float) -> None:
        row = {"from": begin, "to": end, "others": others, "client_busy": busy}
        self.disturbed.append(row)
        self.write(row)

    def finish(self, facts: dict[str, Any]) -> None:
        self.end = facts
        self.write({"ended": facts})


def read_replayed(path: Path) -> Replayed:
    """Raises InputError for another file, or one that is damaged before its last line."""
    header, *rows = read_rows_file(path, REPLAY_SCHEMA)
    found = Replayed(path, header)
    for number, row in enumerate(rows, 2):
        try:
            _take(found, row)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError("is no row of a replay", place=f"{path}:{number}") from error
    return found


def _take(found: Replayed, row: dict[str, Any]) -> None:
    if "ended" in row:
        found.end = dict(row["ended"])
    elif "request" in row:
        check_answer(row, ("request", "asked_tokens", "max_tokens"))
        row["due"] = float(row["due"])
        if not isinstance(row["status"], str):
            raise TypeError("status")
        found.rows.append(row)
    else:
        found.disturbed.append({key: float(row[key]) for key in ("from", "to", "others", "client_busy")})


def why_not(row: dict[str, Any], disturbed: Sequence[dict[str, Any]], dialect: Dialect) -> str | None:
    """Why a request's times are compared with nothing."""
    if row["status"] != "ok":
        return NOT_SENT if row["status"] == NOT_SENT else STATUS.get(row["status"], "not understood")
    if row["prompt_tokens"] is None or row["completion_tokens"] is None:
        return "no usage"
    if not lengths_agree(row, dialect):
        return "usage differs from what was sent"
    if (row["cached_tokens"] or 0) > row["prompt_tokens"]:
        return "more cached than sent"
    if not row["chunks_s"] or row["completion_tokens"] > row["max_tokens"]:
        return "another output than asked for"
    if len(row["chunks_s"]) > row["completion_tokens"]:
        return "usage differs from what came"
    end = row["sent"] + row["chunks_s"][-1]
    beside = [one for one in disturbed if one["from"] < end and row["sent"] < one["to"]]
    if any(one["others"] > 0 for one in beside):
        return "other traffic"
    if any(one["client_busy"] > BUSY for one in beside):
        return "client out of breath"
    return None


def first_token_s(row: dict[str, Any]) -> float | None:
    """None where chunks are not tokens: then the first chunk may be several, or late."""
    chunks = row["chunks_s"]
    return None if len(chunks) != row["completion_tokens"] or at_once(chunks) else chunks[0]
