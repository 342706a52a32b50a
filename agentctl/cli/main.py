"""`agentctl`: the commands, and the one place where an error becomes words and an exit code.

A command's module is imported only when the command is used, so that `--help` stays fast.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer
from typer.main import get_command

from agentctl import __version__
from agentctl.cli import COMMANDS
from agentctl.cli.boundary import Terminated, explain, show_warning
from agentctl.cli.groups import Commands
from agentctl.start_up import look_for_garbage_rarely


class All(Commands):
    names = COMMANDS


app = typer.Typer(cls=All, rich_markup_mode=None, pretty_exceptions_enable=False)


def print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"agentctl {__version__}")
        raise typer.Exit()


@app.callback(epilog="Start with: agentctl recommend LOGS... --profile h100-qwen3-8b -o run/")
def agentctl(
    version: Annotated[
        bool,
        typer.Option("--version", callback=print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None:
    """From the request logs of an LLM cluster for agents to a routing and capacity decision."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (errors.py, and 130 or 143 for a run that was stopped)."""
    look_for_garbage_rarely()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # its threads turn in circles while they wait
    signal.signal(signal.SIGTERM, _terminate)
    _open_closed_streams()
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    with warnings.catch_warnings():
        warnings.showwarning = show_warning  # type: ignore[assignment]  # as Python calls it
        try:
            code = get_command(app).main(arguments, prog_name="agentctl", standalone_mode=False)
        except (Exception, KeyboardInterrupt, Terminated) as error:  # the boundary: whatever it is ends here
            return explain(error, sys.stderr)
    return code if isinstance(code, int) else 0


def _open_closed_streams() -> None:
    """A stream that the caller closed (`>&-`) is None in Python: what would go there goes nowhere."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115, PTH123


def _terminate(*_: object) -> NoReturn:
    raise Terminated


if __name__ == "__main__":
    sys.exit(main())
