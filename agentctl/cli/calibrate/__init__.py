"""`agentctl calibrate SOURCE`: how fast one engine is. One file per source, with a function of its name."""

from __future__ import annotations

import typer

from agentctl.cli.groups import Commands, purposes


class Sources(Commands):
    package = __name__
    names = purposes(__name__, list(__path__))


app = typer.Typer(cls=Sources, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback(epilog="The profile goes to agentctl simulate and recommend with --profile.")
def calibrate() -> None:
    """Say how fast one engine is, from what was measured: a profile with its error."""
