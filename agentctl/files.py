"""Safe writes: a file or folder appears under its name complete, or not at all.

Everything is written under a temporary name in the target's directory, flushed to disk and renamed, so
that a killed run, a full disk or a second run never destroys an older result.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentctl.errors import OutputError


def canonical_json(document: Any) -> bytes:
    """The same bytes for the same document: sorted keys, no spaces, NaN refused, final newline."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.encode() + b"\n"


@contextlib.contextmanager
def atomic_file(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` when the block ends well."""
    with _target(path, force), _disk_errors(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            _flush(temporary)
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
            _flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path, *, force: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to fill; it becomes `path` when the block ends well.

    An older folder is moved aside, replaced, and only then removed.
    """
    with _target(path, force), _disk_errors(path):
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name[:80]}.", suffix=".tmp", dir=path.parent))
        try:
            yield temporary
            for file in sorted(temporary.rglob("*")):
                _flush(file)
            _flush(temporary)
            temporary.chmod(0o777 & ~_umask())
            _replace_folder(temporary, path)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def _replace_folder(new: Path, path: Path) -> None:
    aside = path.parent / f".{path.name[:80]}.{os.getpid()}.old"
    had_older = path.is_dir()
    if had_older:
        path.rename(aside)
    try:
        new.rename(path)
    except OSError:
        if had_older:
            aside.rename(path)
        raise
    _flush(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def _target(path: Path, force: bool) -> Iterator[None]:
    """Hold the lock of `path` and make sure that it may be written."""
    if not path.name:
        raise OutputError("the output has no name", place=str(path))
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path):
        if path.exists() and not force:
            raise OutputError("already exists", place=str(path), hint="--force replaces it")
        yield


@contextlib.contextmanager
def lock(path: Path) -> Iterator[None]:
    """Keep a second run from writing to `path`; the lock of a process that died is free again."""
    lock_path = path.parent / f".{path.name[:80]}.lock"
    handle = _take_lock(lock_path, path)
    try:
        yield
    finally:
        lock_path.unlink(missing_ok=True)  # while it is held, so that nobody's else is removed
        os.close(handle)


def _take_lock(lock_path: Path, path: Path) -> int:
    while True:
        with _disk_errors(path):
            handle = os.open(lock_path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.read(handle, 32).decode(errors="replace").strip() or "unknown"
            os.close(handle)
            raise OutputError(
                f"is being written by another run (process {holder})",
                place=str(path),
                hint="wait for it, or choose another output",
            ) from error
        # The last holder may have removed the file between our open and our lock: then it guards nothing.
        if lock_path.exists() and os.path.samestat(os.fstat(handle), lock_path.stat()):
            os.ftruncate(handle, 0)
            os.write(handle, f"{os.getpid()}\n".encode())
            return handle
        os.close(handle)


@contextlib.contextmanager
def _disk_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"cannot be written ({error.strerror or error})", place=str(error.filename or path)
        ) from error


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
