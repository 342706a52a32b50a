"""`--quarantine-raw`: the bad lines themselves, for who must see them to mend a log.

They may hold prompts and keys, so they are written only when asked for, to a file that nobody else can read,
and nowhere else. The logs are read a second time for it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from agentctl.errors import UsageError
from agentctl.files import atomic_file
from agentctl.formats.base import Reading, ReadOptions
from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Source

FLAG = "--quarantine-raw"


def check_raw_lines(path: Path, logs: Sequence[str], output: Path) -> None:
    """Raise UsageError where the lines could not be had again, or would be handed on with the dataset."""
    if path.resolve().is_relative_to(output.resolve()):
        raise UsageError("lies inside the dataset, which may be handed on", place=FLAG)
    for log in logs:
        if log == "-" or not os.path.isfile(log):  # noqa: PTH113  (as given, for the message)
            raise UsageError(f"{log} cannot be read twice", place=FLAG, expected="logs that are files")


def write_raw_lines(
    path: Path, bad: Sequence[tuple[str, Quarantine]], json_document: bool, *, force: bool
) -> None:
    """Write {"file", "line", "reason", "text"} for each bad line of the logs in `bad`, mode 0600.

    As many lines a log as places are kept; over-long ones and records of Parquet files are left out. Bytes
    that are no UTF-8 are written as their escapes.
    """
    with atomic_file(path, force=force, private=True) as temporary, temporary.open("w") as out:
        for log, quarantine in bad:
            reasons = {place.line: place.reason for place in quarantine.places}
            for line, text in _lines(log, set(reasons), ReadOptions(json_document=json_document)):
                record = {"file": quarantine.file, "line": line, "reason": reasons[line], "text": text}
                out.write(json.dumps(record) + "\n")


def _lines(log: str, wanted: set[int], options: ReadOptions) -> Iterator[tuple[int, str]]:
    """(number, text) of some lines of a log, in their order."""
    source = Source(log)
    if source.is_parquet or not wanted:
        return
    for chunk in Reading(source, Quarantine(source.name), options).chunks():
        for line in sorted(wanted & set(range(chunk.first_line, chunk.first_line + chunk.n_lines))):
            if not chunk.skipped_bytes:
                offset, length = chunk.locate(line)
                start = offset - chunk.offset
                yield line, chunk.data[start : start + length].decode("utf-8", "backslashreplace")
