"""Commands that are found by name and imported only when used: those of agentctl, and the sources of one.

A command is `agentctl/cli/NAME.py` with the function NAME. A command of several sources is a package
`agentctl/cli/NAME/` with a typer application `app`; a source is one file in it, with a function of its name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from typer.core import TyperGroup
from typer.main import get_command

from agentctl.cli.command import Command, build


class Commands(TyperGroup):
    """A group whose commands are the modules of `package`: {name: purpose in `names`}."""

    package = "agentctl.cli"
    names: Mapping[str, str] = {}

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = dict.fromkeys(self.names)  # type: ignore[assignment]  # names only, for suggestions

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        return load(f"{self.package}.{cmd_name}", self.names[cmd_name]) if cmd_name in self.names else None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(self.names.items()))
        options = [param.get_help_record(ctx) for param in self.get_params(ctx)]
        with formatter.section("Options"):
            formatter.write_dl([option for option in options if option])


def load(module_name: str, purpose: str) -> Command | Commands:
    """The command in a module, or the group in a package."""
    module = import_module(module_name)
    name = module_name.rpartition(".")[2]
    if not hasattr(module, "__path__"):
        return build(getattr(module, name), name=name, short_help=purpose)
    group = get_command(module.app)
    assert isinstance(group, Commands)
    group.name, group.short_help = name, purpose
    return group


def leaves(name: str, package: str = "agentctl.cli") -> list[Command]:
    """The command `name`, or all commands of the group of this name."""
    found = load(f"{package}.{name}", "")
    if isinstance(found, Commands):
        return [command for inner in found.names for command in leaves(inner, found.package)]
    return [found]


def purposes(package: str, path: list[str]) -> dict[str, str]:
    """{module: first line of the docstring of its function} of a package of commands."""
    modules = [module.name for module in iter_modules(path) if not module.name.startswith("_")]
    functions = {name: getattr(import_module(f"{package}.{name}"), name) for name in modules}
    return {name: (function.__doc__ or "").split("\n")[0] for name, function in functions.items()}
