"""Safe writes: a file or folder appears under its name complete, or not at all.

Everything is written under a temporary name in the target's directory, flushed to disk and renamed, so
that a killed run, a full disk or a second run never destroys an older result.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentctl.errors import OutputError

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux, <fcntl.h>


def canonical_json(document: Any) -> bytes:
    """The same bytes for the same document: sorted keys, no spaces, NaN refused, final newline."""
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False, ensure_ascii=True)
    return text.encode() + b"\n"


@contextlib.contextmanager
def atomic_file(path: Path, *, force: bool = False, private: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write to; rename it to `path` when the block ends well.

    private  for nobody else to read, at no time (mode 0600)
    """
    with _target(path, force, None), _disk_errors(path):
        handle, name = tempfile.mkstemp(prefix=f".{path.name[:80]}.", suffix=".tmp", dir=path.parent)
        os.close(handle)
        temporary = Path(name)
        try:
            yield temporary
            _flush(temporary)
            temporary.chmod(0o600 if private else 0o666 & ~_umask())
            temporary.replace(path)
            _flush(path.parent)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(path: Path, *, mark: str, force: bool = False) -> Iterator[Path]:
    """Yield a temporary folder to fill; it becomes `path` when the block ends well.

    An older folder changes names with it and is only then removed; one without the file `mark` is not ours to
    remove.
    """
    with _target(path, force, mark), _disk_errors(path):
        temporary = Path(tempfile.mkdtemp(prefix=f".{path.name[:80]}.", suffix=".tmp", dir=path.parent))
        try:
            yield temporary
            for file in sorted(temporary.rglob("*")):
                _flush(file)
            _flush(temporary)
            temporary.chmod(0o777 & ~_umask())
            _replace_folder(temporary, path)
        finally:
            _remove(temporary)


def _replace_folder(new: Path, path: Path) -> None:
    """Where names cannot be exchanged, a kill may leave the older folder aside, for _sweep to put back."""
    if _exchange(new, path):
        _flush(path.parent)
        return
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
    _remove(aside)


def _exchange(one: Path, other: Path) -> bool:
    """Swap two names, at no moment of which either is missing; False where one is not there, or the system or
    the file system cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    names = (os.fsencode(one), os.fsencode(other))
    return renameat2(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0


def _sweep(path: Path) -> None:
    """What a killed run left of `path`, under its lock: put an older result back, remove what is unfinished.

    The names are those of the two functions above; behind the target's own name they have no further dot.
    """
    ours = re.compile(re.escape(f".{path.name[:80]}.") + r"(?:[a-z0-9_]{8}\.tmp|[0-9]+\.old)")
    for left in sorted(entry for entry in path.parent.iterdir() if ours.fullmatch(entry.name)):
        if left.suffix == ".old" and not os.path.lexists(path):
            left.rename(path)
        else:
            _remove(left)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def check_output(path: Path, *, force: bool, mark: str | None) -> None:
    """Raise OutputError unless `path` may be written: as a file, or as a folder that has the file `mark`.

    `force` replaces a file by a file, and a folder by a folder only where the older one is empty or was made
    by agentctl too: a mistyped name must not cost anybody's logs.
    """
    place, kind = str(path), "file" if mark is None else "folder"
    if not path.name:
        raise OutputError("the output has no name", place=place, expected=f"the name of a {kind}")
    if path == Path("-"):
        raise OutputError("standard output takes no " + kind, place="-", expected=f"the name of a {kind}")
    if not is_text(place):
        raise OutputError("the name is not UTF-8", place=place, expected="a name that is valid text")
    with _disk_errors(path):
        is_folder, exists = path.is_dir(), os.path.lexists(path)
        is_ours = is_folder and mark is not None and ((path / mark).is_file() or not any(path.iterdir()))
    if not exists:
        return
    if is_folder != (mark is not None) or not (is_folder or path.is_file()):
        found = "a folder" if is_folder else "a file" if path.is_file() else "no regular file"
        raise OutputError(f"is {found}", place=place, expected=f"the name of a {kind}")
    if is_folder and not is_ours:
        raise OutputError(
            f"is a folder without {mark}: agentctl did not make it and does not replace it",
            place=place,
            hint="choose another name, or remove the folder yourself",
        )
    if not force:
        raise OutputError("already exists", place=place, hint="--force replaces it")


def is_text(name: str) -> bool:
    """Bytes of a file name that are no UTF-8 reach Python as lone surrogates."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@contextlib.contextmanager
def _target(path: Path, force: bool, mark: str | None) -> Iterator[None]:
    """Hold the lock of `path` and make sure that it may be written."""
    check_output(path, force=force, mark=mark)
    with _disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    with lock(path):
        with _disk_errors(path):
            _sweep(path)
        check_output(path, force=force, mark=mark)
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
        named = str(error.filename or path)  # our temporary names tell nobody anything
        place = str(path) if f".{path.name[:80]}." in named else named
        raise OutputError(f"cannot be written ({error.strerror or error})", place=place) from error


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
