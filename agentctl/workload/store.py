"""Arrays that can be made again, kept in the user's cache and mapped into memory when they are asked for.

An entry is one file: a line with the format and a checksum of all that follows, a line of JSON (key, facts,
where each array lies), and the arrays. It counts only when it is ours, whole and about this very key;
otherwise it is made again. The key names the code that made it, so that no other version's entry is read.
A cache that cannot be read or written is no cache: nothing here fails.

Entries are written under another name and renamed; two processes that write the same do no harm. The oldest
go when there are more than LIMIT bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import mmap
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

FORMAT = b"agentctl/arrays/1"
FIRST_LINE = len(FORMAT) + 1 + 64 + 1  # bytes: format and checksum
LIMIT = 1 << 30  # bytes of all entries
ABANDONED_S = 3600.0  # a file half written for so long belongs to a run that was killed
ALIGNED = 64  # bytes, of every array's start
TYPES = ("<f8", "<i8", "<i4", "<u4", "|i1", "|u1")  # of arrays

Key = Mapping[str, str | int | None]


class Entry(NamedTuple):
    """`arrays` are mapped: reading them costs no copy, and what is written to them stays in this process."""

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]


def folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "agentctl" / "workloads"


def load(key: Key) -> Entry | None:
    """The entry of that key, None when there is none that can be trusted."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # RuntimeError: no home
        path = _path(key)
        if not _is_ours(path.parent):
            return None
        entry = _read(path, key)
        os.utime(path)  # it was used: others are older
        return entry
    return None


def save(key: Key, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Keep arrays of TYPES under `key`, if the cache can be written."""
    with contextlib.suppress(OSError, RuntimeError):
        path = _path(key)
        size = sum(values.nbytes for values in arrays.values())
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(path.parent) or size > LIMIT:
            return
        handle, name = tempfile.mkstemp(dir=path.parent, prefix="new-", suffix=".tmp")  # readable by us only
        try:
            with os.fdopen(handle, "wb") as file:
                _write(file, key, facts, arrays)
            Path(name).replace(path)
        finally:
            Path(name).unlink(missing_ok=True)
        _evict(path.parent)


@cache
def code_of(*files: str) -> str:
    """Identifies the sources in `files`: what other code makes is another entry."""
    total = hashlib.sha256()
    for file in files:
        total.update(Path(file).read_bytes())
    return total.hexdigest()


def _path(key: Key) -> Path:
    return folder() / f"{hashlib.sha256(_json(key)).hexdigest()[:32]}.arrays"


def _json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, allow_nan=False).encode()


def _is_ours(path: Path) -> bool:
    """Whether nobody else can have put anything there."""
    status = path.lstat()
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def _write(file: Any, key: Key, facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    plain = {name: np.ascontiguousarray(values) for name, values in arrays.items()}
    layout, at = [], 0
    for name, values in plain.items():
        assert values.dtype.str in TYPES, f"{name} is {values.dtype.str}"
        layout.append([name, values.dtype.str, list(values.shape), at])
        at += -(-values.nbytes // ALIGNED) * ALIGNED
    head = _json({"key": dict(key), "facts": dict(facts), "arrays": layout, "size": at}) + b"\n"
    head = b" " * (-(FIRST_LINE + len(head)) % ALIGNED) + head
    total = hashlib.sha256(head)
    for chunk in _chunks(plain):
        total.update(chunk)
    file.write(_first_line(total.hexdigest()) + head)
    for chunk in _chunks(plain):
        file.write(chunk)


def _first_line(checksum: str) -> bytes:
    return FORMAT + b" " + checksum.encode() + b"\n"


def _chunks(arrays: Mapping[str, np.ndarray]) -> Iterator[bytes | memoryview]:
    for values in arrays.values():
        yield values.reshape(-1).view(np.uint8).data
        yield b"\0" * (-values.nbytes % ALIGNED)


def _read(path: Path, key: Key) -> Entry:
    """Raises OSError or ValueError for anything but a whole entry of that key."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not _is_ours(path):
            raise ValueError("somebody else's")
        mapped = mmap.mmap(handle, 0, access=mmap.ACCESS_COPY)
    finally:
        os.close(handle)
    with memoryview(mapped) as content:
        checksum = hashlib.sha256(content[FIRST_LINE:]).hexdigest()
    if mapped.read(FIRST_LINE) != _first_line(checksum):
        raise ValueError("another format, or damaged")
    head = json.loads(mapped.readline())
    begin = mapped.tell()
    if head["key"] != dict(key) or begin + head["size"] != len(mapped):
        raise ValueError("of another key, or cut")
    arrays = {}
    for name, dtype, shape, at in head["arrays"]:
        if dtype not in TYPES:
            raise ValueError("no array of ours")
        values = np.frombuffer(mapped, dtype, math.prod(shape), begin + at)
        arrays[name] = values.reshape(shape)
    return Entry(head["facts"], arrays)


def _evict(path: Path) -> None:
    """Remove the entries used longest ago that are too many, and what killed runs left."""
    entries, abandoned = [], time.time() - ABANDONED_S
    for file in path.iterdir():
        with contextlib.suppress(FileNotFoundError):  # another process is at it too
            status = file.lstat()
            if file.suffix == ".arrays":
                entries.append((status.st_mtime, status.st_size, file))
            elif file.suffix == ".tmp" and status.st_mtime < abandoned:
                file.unlink()
    kept = 0
    for _, size, file in sorted(entries, reverse=True):
        kept += size
        if kept > LIMIT:
            file.unlink(missing_ok=True)
