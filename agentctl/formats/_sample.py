"""The beginning of a file, by which its format is told, and files that are one JSON document."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import msgspec

from agentctl.errors import UnknownFormatError


@dataclass(frozen=True)
class Sample:
    """The beginning of a file, for recognition."""

    text: bytes
    whole: bool = False  # the sample is all of the file

    @cached_property
    def lines(self) -> list[bytes]:
        """Whole lines that are not blank, at most 20."""
        lines = self.text.split(b"\n")
        if not self.whole and len(lines) > 1:
            lines = lines[:-1]
        return [line.strip() for line in lines if line.strip()][:20]

    @cached_property
    def keys(self) -> list[set[str]]:
        """Keys of the JSON objects among the lines, or of the first object when it is longer than a line."""
        found = []
        for line in self.lines:
            try:
                value = msgspec.json.decode(line)
            except (msgspec.DecodeError, RecursionError):
                continue
            if isinstance(value, dict):
                found.append(set(value))
        if not found and (keys := _first_keys(self.text)):
            found.append(keys)
        return found

    def mostly(self, test: Callable[[set[str]], bool]) -> bool:
        """More than half of the objects have keys that pass `test`, so that a bad line hides no format."""
        return 2 * sum(map(test, self.keys)) > len(self.keys)

    @cached_property
    def is_document(self) -> bool:
        """A JSON array of objects, or an object over several lines."""
        first = self.lines[0] if self.lines else b""
        return first == b"{" or (first[:1] == b"[" and first[1:].lstrip()[:1] in (b"", b"{"))

    @cached_property
    def csv_header(self) -> list[str]:
        """Cells of the first line when it has commas and is not JSON; else empty."""
        if not self.lines or self.lines[0][:1] in b"{[" or b"," not in self.lines[0]:
            return []
        try:
            return [cell.strip() for cell in next(csv.reader([self.lines[0].decode()]))]
        except (UnicodeDecodeError, csv.Error):
            return []


_JSON_TOKEN = re.compile(rb'("(?:[^"\\]|\\.)*"|[{}\[\]])(\s*:)?')


def _first_keys(text: bytes) -> set[str]:
    """Keys of the first object in `text`, which may end anywhere."""
    keys: set[str] = set()
    depth = 0
    for match in _JSON_TOKEN.finditer(text, max(text.find(b"{"), 0)):
        token, colon = match.groups()
        if token in (b"{", b"["):
            depth += 1
        elif token in (b"}", b"]"):
            depth -= 1
            if depth == 0:
                break
        elif colon and depth == 1:
            keys.add(token[1:-1].decode(errors="replace"))
    return keys


def is_document(name: str) -> UnknownFormatError:
    return UnknownFormatError(
        "is one JSON document over several lines",
        place=name,
        expected="one JSON object a line",
        hint="--json-document reads a JSON array or a pretty-printed object",
    )


def document_lines(text: bytes, name: str) -> bytes:
    """One object a line from a JSON array or object; raw newlines in JSON are only ever white space."""
    try:
        raw = msgspec.json.decode(text, type=msgspec.Raw)
        stripped = bytes(raw).lstrip()
        items = msgspec.json.decode(text, type=list[msgspec.Raw]) if stripped[:1] == b"[" else [raw]
    except (msgspec.DecodeError, RecursionError) as error:
        raise UnknownFormatError(
            "is not one JSON document", place=name, hint="leave out --json-document"
        ) from error
    return b"\n".join(bytes(item).replace(b"\n", b" ").replace(b"\r", b" ") for item in items)
