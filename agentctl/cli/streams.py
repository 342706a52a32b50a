"""Where a command's words go: results to stdout, everything else to stderr, progress to a terminal only."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import IO, TYPE_CHECKING, Any

import typer

from agentctl.errors import OutputError

if TYPE_CHECKING:
    from agentctl.present import Section

PATIENCE_S = 1.0  # work that takes less shows no progress
REDRAW_S = 0.1


class Streams:
    """One run's output: `result` once at the end, `note` and `progress` on the way."""

    def __init__(self, *, json: bool = False, quiet: bool = False, verbose: bool = False) -> None:
        self.json, self.quiet, self.verbose = json, quiet, verbose
        self.out, self.err = sys.stdout, sys.stderr

    def result(self, document: dict[str, Any], sections: Sequence[Section]) -> None:
        """Print the document (with --json) or the sections."""
        if self.json:
            from agentctl.files import canonical_json

            return self.write(canonical_json(document).decode())
        from agentctl.report.terminal import render

        self.write(render(sections, terminal=self.out.isatty(), verbose=self.verbose))

    def write(self, text: str) -> None:
        """Write to stdout; a reader that has seen enough (`| head -1`) ends the run without a word."""
        try:
            self.out.write(text)
            self.out.flush()
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.out.fileno())  # or Python writes again at exit
            if isinstance(error, BrokenPipeError):
                raise typer.Exit(0) from None
            fact = f"cannot be written ({error.strerror or error})"
            raise OutputError(fact, place="standard output") from error

    def note(self, text: str) -> None:
        """A remark about the run, not part of its result."""
        if not self.quiet:
            from agentctl.report.escape import printable

            self.err.write(f"{printable(text)}\n")
            self.err.flush()

    @contextmanager
    def progress(self) -> Iterator[Callable[[float, str], None] | None]:
        """A function (share done, what is being done) that draws a line on the terminal, or None."""
        if self.quiet or not self.err.isatty():
            yield None
            return
        line = _ProgressLine(self.err)
        try:
            yield line.show
        finally:
            line.clear()


class _ProgressLine:
    def __init__(self, out: IO[str]) -> None:
        self.out, self.start, self.drawn = out, time.monotonic(), 0.0

    def show(self, share: float, what: str) -> None:
        now = time.monotonic()
        if now - self.start < PATIENCE_S or now - self.drawn < REDRAW_S:
            return
        self.drawn = now
        left = (now - self.start) * (1 - share) / share if share > 0 else None
        remaining = f", {left:.0f} s left" if left is not None else ""
        self.out.write(f"\r\x1b[2K{what} {100 * share:.0f} %{remaining}")
        self.out.flush()

    def clear(self) -> None:
        if self.drawn:
            self.out.write("\r\x1b[2K")
            self.out.flush()


@contextmanager
def stdout_on_stderr() -> Iterator[None]:
    """What others print meanwhile, libraries in C included, is no part of a result."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
