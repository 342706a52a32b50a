"""`agentctl study NAME`: what a paper measured, run again. One file a study, with a function of its name."""

from __future__ import annotations

import typer

from agentctl.cli.groups import Commands, purposes


class Studies(Commands):
    package = __name__
    names = purposes(__name__, list(__path__))


app = typer.Typer(cls=Studies, rich_markup_mode=None, pretty_exceptions_enable=False)


@app.callback()
def study() -> None:
    """Run again what a paper measured: as it was run, and with what its clocks left out."""
