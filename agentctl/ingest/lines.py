"""JSON lines to typed rows: a whole chunk at once when it is clean, line by line when it is not.

The lax rule for one line that fails strictly: "12" and 12.0 are the whole number 12; 1.5 is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Chunk

_PATH = re.compile(r" - at `(\$[^`]*)`")


class Lines(NamedTuple):
    """Rows decoded from a chunk and the line that each stands on."""

    rows: list[Any]
    lines: NDArray[np.int64]
    n_blank: int


class Fault(NamedTuple):
    """Why a text is no value of the expected type, and where in it."""

    reason: str
    path: str | None = None


class ValueDecoder:
    """Decodes one JSON text strictly and, if that fails, by the lax rule."""

    def __init__(self, type_: Any) -> None:
        self.strict = msgspec.json.Decoder(type_)
        self._lax = msgspec.json.Decoder(type_, strict=False)

    def decode(self, text: bytes | msgspec.Raw) -> Any:
        """The value, or a Fault."""
        try:
            try:
                return self.strict.decode(text)
            except msgspec.ValidationError:
                return self._lax.decode(text)  # reads on where the strict one stopped, and may find worse
        except RecursionError:
            return Fault("nested_too_deep")
        except msgspec.ValidationError as error:
            path = _PATH.search(str(error))
            missing = "missing required field" in str(error)
            return Fault("missing_field" if missing else "wrong_type", path and path.group(1))
        except msgspec.DecodeError:
            return Fault("not_json")


class LineDecoder:
    """Decodes lines into one msgspec Struct; what fails goes to the quarantine.

    fold  shortens the text first, line by line (Reading.folding); faults are told of the lines as they were
    """

    def __init__(
        self,
        row: type[msgspec.Struct],
        quarantine: Quarantine,
        fold: Callable[[bytes, int], bytes] | None = None,
    ) -> None:
        self._decoder = ValueDecoder(row)
        self._quarantine, self._fold = quarantine, fold

    def decode(self, chunk: Chunk) -> Lines:
        if chunk.skipped_bytes:
            self._quarantine.add(chunk.first_line, chunk.offset, chunk.skipped_bytes, "line_too_long")
            return Lines([], np.empty(0, np.int64), 0)
        text = self._fold(chunk.data, chunk.n_lines) if self._fold else chunk.data
        if _is_clean_text(text):
            try:
                rows = self._decoder.strict.decode_lines(text)
            except (msgspec.DecodeError, RecursionError):  # ValidationError is a DecodeError
                return self._one_by_one(chunk, text)
            if chunk.n_lines == len(rows) and _lines_hold_objects(text):
                return Lines(rows, np.arange(chunk.first_line, chunk.first_line + chunk.n_lines), 0)
        return self._one_by_one(chunk, text)

    def _one_by_one(self, chunk: Chunk, text: bytes) -> Lines:
        rows: list[Any] = []
        numbers: list[int] = []
        n_blank = 0
        for number, line in enumerate(_split(text), start=chunk.first_line):
            if not line.strip():
                n_blank += 1
            elif isinstance(row := self._decode_line(line), Fault):
                place = (0, 0) if self._quarantine.is_full else chunk.locate(number)
                self._quarantine.add(number, *place, row.reason, row.path)
            else:
                rows.append(row)
                numbers.append(number)
        return Lines(rows, np.array(numbers, dtype=np.int64), n_blank)

    def _decode_line(self, line: bytes) -> Any:
        try:
            line.decode()
        except UnicodeDecodeError:
            return Fault("invalid_utf8")
        if b"\\u" in line and _has_lone_surrogate(np.frombuffer(line, dtype=np.uint8)):
            return Fault("lone_surrogate")
        return self._decoder.decode(line)


def _lines_hold_objects(data: bytes) -> bool:
    """Every line begins with { and ends with }.

    msgspec takes any white space for the end of a line, so that two objects on one line could make up for a
    blank one. Between } and { no object goes on: as many objects as such lines means one on each.
    """
    return bool(_are_objects(np.frombuffer(data, dtype=np.uint8)))


@njit(cache=True, nogil=True)
def _are_objects(text):  # type: ignore[no-untyped-def]
    """Lines may end with \\r\\n, and the last one without either."""
    begin = 0
    for start in range(0, text.size, 256):
        part = text[start : start + 256]
        n = 0
        for at in range(part.size):  # without a branch it goes 16 bytes at a time
            n += part[at] == 10
        if not n:
            continue
        for at in range(part.size):
            if part[at] == 10:
                if not _is_object(text, begin, start + at):
                    return False
                begin = start + at + 1
    return begin == text.size or _is_object(text, begin, text.size)


@njit(cache=True, nogil=True)
def _is_object(text, begin, end):  # type: ignore[no-untyped-def]
    if end > begin and text[end - 1] == 13:
        end -= 1
    return end - begin >= 2 and text[begin] == 123 and text[end - 1] == 125  # { }


def _split(data: bytes) -> list[bytes]:
    lines = data.split(b"\n")
    return lines[:-1] if lines[-1] == b"" else lines


def _is_clean_text(data: bytes) -> bool:
    """Valid UTF-8 whose escaped surrogates are pairs."""
    if b"\\u" in data and _has_lone_surrogate(np.frombuffer(data, dtype=np.uint8)):
        return False
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@njit(cache=True, nogil=True)
def _has_lone_surrogate(text):  # type: ignore[no-untyped-def]
    """Whether JSON text has half of a pair \\ud8xx \\udcxx, which is no character though decoders take it."""
    for start in range(0, text.size, 4096):
        part = text[start : start + 4098]
        n = 0
        for at in range(part.size - 2):  # without a branch it goes 16 bytes at a time
            n += (part[at] == 92) & (part[at + 1] == 117) & ((part[at + 2] | 32) == 100)  # \\ u d
        if n:
            for at in range(start, start + part.size - 2):
                half = _half(text, at)
                if half == 1 and _half(text, at + 6) != 2:
                    return True
                if half == 2 and _half(text, at - 6) != 1:
                    return True
    return False


@njit(cache=True, nogil=True)
def _half(text, at):  # type: ignore[no-untyped-def]
    """1 where the escape \\ud8xx to \\udbxx stands, 2 for \\udcxx to \\udfxx, else 0."""
    if at < 0 or at + 3 >= text.size or text[at] != 92 or text[at + 1] != 117 or text[at + 2] | 32 != 100:
        return 0
    digit = text[at + 3] | 32
    if digit < 56 or digit > 102:  # 8 to f
        return 0
    n_before = 0
    while n_before < at and text[at - 1 - n_before] == 92:
        n_before += 1
    if n_before % 2:  # the backslash is escaped itself
        return 0
    return 1 if digit <= 98 else 2  # 8 9 a b
