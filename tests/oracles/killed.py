"""Commands that are killed at a chosen moment: the n-th time that they touch a file, or after some seconds.

    with Killer() as killer:
        n = killer.run(arguments, folder).n_touches
        killer.run(arguments, folder, touch=n // 2)      # SIGKILL just before that touch
        killer.run(arguments, folder, seconds=0.3)       # SIGKILL then, wherever it is

A touch is a change to the file system that Python makes below the folder: a file opened for writing or to be
flushed, a rename, a removal, a new folder. The commands run in forks of a process that has imported agentctl
and computed nothing, so that one takes tenths of a second.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

TOUCHES = {"open", "os.rename", "os.remove", "os.rmdir", "os.mkdir", "os.chmod", "os.truncate", "os.link"}
HEAVY = (
    *("analyze", "simulate", "recommend", "validate", "ingest.build", "export", "synth.dataset"),
    *("synth.labelled", "conserve.study", "calibrate_prior", "result", "report.html", "cli.inputs"),
)


class Ended(NamedTuple):
    code: int  # of exit; -9 when it was killed
    n_touches: int
    out: str
    err: str


class Killer:
    """The process that forks commands."""

    def __enter__(self) -> Killer:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def run(
        self, arguments: list[str], folder: Path, *, touch: int | None = None, seconds: float | None = None
    ) -> Ended:
        """`agentctl ARGUMENTS` in `folder`, killed before touch `touch` (from 1) or after `seconds`."""
        assert self._process.stdin and self._process.stdout
        asked = {"arguments": arguments, "folder": str(folder), "touch": touch, "seconds": seconds}
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return Ended(**json.loads(self._process.stdout.readline()))


def _serve() -> None:
    from importlib import import_module

    for name in HEAVY:
        import_module(f"agentctl.{name}")
    for line in sys.stdin:
        asked = json.loads(line)
        with tempfile.TemporaryDirectory() as words:
            pid = os.fork()
            if pid == 0:
                _child(asked, Path(words))
            status = os.waitpid(pid, 0)[1]
            touches = (Path(words) / "touches").read_bytes()
            told = [(Path(words) / name).read_text(errors="replace") for name in ("out", "err")]
        ended = Ended(os.waitstatus_to_exitcode(status), len(touches), *told)
        print(json.dumps(ended._asdict()), flush=True)  # noqa: T201


def _child(asked: dict, words: Path) -> None:
    for number, name in ((0, "/dev/null"), (1, words / "out"), (2, words / "err")):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    counter = os.open(words / "touches", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.chdir(asked["folder"])
    code = 70
    try:
        from agentctl.cli.main import main

        me, n = os.getpid(), 0

        def watch(event: str, args: tuple) -> None:
            nonlocal n
            if event not in TOUCHES or os.getpid() != me or not _is_below(args[0], asked["folder"]):
                return
            if event == "open" and not _is_a_touch(args):
                return
            n += 1
            if n == asked["touch"]:
                os.kill(me, signal.SIGKILL)
            os.write(counter, b".")

        sys.addaudithook(watch)
        if asked["seconds"] is not None:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            killer = f"sleep {asked['seconds']}; kill -9 {me} 2>/dev/null"
            subprocess.Popen(["sh", "-c", killer], stdin=subprocess.DEVNULL)
        code = main(asked["arguments"])
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _is_a_touch(args: tuple) -> bool:
    """Opened to be written, or by os.open, as what is flushed to disk is."""
    _, mode, flags = args
    return mode is None or bool(set(mode) & set("wax+")) or bool(flags & (os.O_WRONLY | os.O_RDWR))


def _is_below(path: object, folder: str) -> bool:
    if isinstance(path, int):
        return False
    name = os.path.abspath(os.fsdecode(path))  # noqa: PTH100
    return name.startswith(folder + "/")


if __name__ == "__main__":
    _serve()
