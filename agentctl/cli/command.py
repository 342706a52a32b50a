"""What all commands share: the common options, where each value comes from, and `--show-config`.

A value comes from its flag, else from AGENTCTL_<OPTION>, else from the configuration file, else from its
default.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperOption
from typer.main import get_command

from agentctl.cli.config import defaults_from
from agentctl.cli.streams import Streams

# A file must not overwrite results on its own, nor turn a command into another.
NEVER_CONFIGURED = {"force", "config", "show_config", "help", "formats"}
TELLING = {"--show-config", "--formats"}  # they only tell something: no argument is required then
ANY_OPTION = "Every option can also be set as AGENTCTL_OPTION or in agentctl.toml"
CONFIG_META = "agentctl.config"  # key of the context's metadata: the configuration file that was read


def _read_config(ctx: typer.Context, value: Path | None) -> Path | None:
    """Eager callback of --config: its values become the defaults of the options that follow."""
    if not ctx.resilient_parsing:
        words = ctx.command_path.split()  # agentctl calibrate steps: the table is [calibrate]
        ctx.meta[CONFIG_META], ctx.default_map = defaults_from(
            value, words[min(1, len(words) - 1)], options_of
        )
    return value


def _shared(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print results and errors only.")] = False,
    verbose: Annotated[
        bool,
        typer.Option("--verbose", "-v", help="Print all tables, assumptions, and what each number means."),
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            envvar="AGENTCTL_CONFIG",
            callback=_read_config,
            is_eager=True,
            help="Configuration file; default: ./agentctl.toml if there is one.",
        ),
    ] = None,
    show_config: Annotated[
        bool, typer.Option("--show-config", help="Print every setting and where it comes from, and stop.")
    ] = False,
) -> None: ...


class Command(TyperCommand):
    """A command whose common options become the `Streams` in `ctx.obj`; its function takes only its own."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        shared = _shared_params()
        own = [param for param in self.params if param not in shared]
        groups: dict[str, list[Any]] = {
            "Arguments": [param for param in own if not isinstance(param, TyperOption)],
            "Options": [param for param in own if isinstance(param, TyperOption)],
            "Common options": [*shared, self.get_help_option(ctx)],
        }
        for title, params in groups.items():
            if params:
                with formatter.section(title):
                    formatter.write_dl([_help_row(param) for param in params], col_max=34)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(f"{ANY_OPTION} (see --show-config).")

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        arguments = [param for param in self.params if not isinstance(param, TyperOption)]
        return ["[OPTIONS]", *(f"{param.metavar}{'...' if param.nargs == -1 else ''}" for param in arguments)]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if TELLING & set(args):
            for param in self.params:
                param.required = False
        return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        shared = {param.name: ctx.params.pop(param.name) for param in _shared_params()}
        ctx.obj = Streams(json=shared["json"], quiet=shared["quiet"], verbose=shared["verbose"])
        if shared["show_config"]:
            return _show_config(ctx, shared)
        return super().invoke(ctx)


def build(function: Callable[..., Any], name: str, short_help: str) -> Command:
    """The command line of `function`: its parameters and the shared ones, each with its variable."""
    command = _parse(function, name, short_help)
    command.params += _shared_params()
    for param in options_of(command):
        param.envvar, param.show_envvar = f"AGENTCTL_{param.name.upper()}", False
    return command


def options_of(command: str | Command) -> list[Any]:
    """The options of a command (or of those with this name) that environment and file may set."""
    if isinstance(command, str):
        from agentctl.cli.groups import leaves

        return [param for leaf in leaves(command) for param in options_of(leaf)]
    return [
        param
        for param in command.params
        if isinstance(param, TyperOption) and param.name not in NEVER_CONFIGURED
    ]


def origin(ctx: typer.Context, param: Any) -> str:
    """Where the value of `param` came from: flag, the variable's name, the file's path, or default."""
    source = ctx.get_parameter_source(param.name)
    if source is None or source.name == "COMMANDLINE":
        return "flag"
    places = {"ENVIRONMENT": str(param.envvar), "DEFAULT_MAP": str(ctx.meta.get(CONFIG_META))}
    return places.get(source.name, "default")


def _show_config(ctx: typer.Context, shared: dict[str, Any]) -> None:
    """One row per option: name, value, origin."""
    from agentctl.present import Section, Table

    values = {**ctx.params, **shared}
    params = [
        param
        for param in ctx.command.params
        if isinstance(param, TyperOption) and param.name != "show_config"
    ]
    rows = tuple((param.name, _plain(values.get(param.name)), origin(ctx, param)) for param in params)
    settings = {name: {"value": value, "origin": place} for name, value, place in rows}
    table = Table((("setting", ""), ("value", ""), ("origin", "")), rows)
    ctx.obj.result(
        {"schema": "agentctl/config/1", "command": ctx.info_name, "settings": settings},
        (Section("config", f"Settings of agentctl {ctx.info_name}", "", tables=(table,)),),
    )


def _help_row(param: Any) -> tuple[str, str]:
    """`-o, --output NAME.trace` and what it does, with its default."""
    names = ", ".join(sorted(param.opts, key=len)) if isinstance(param, TyperOption) else param.metavar
    is_flag = isinstance(param, TyperOption) and param.is_flag
    value = f" {param.metavar}" if isinstance(param, TyperOption) and param.metavar and not is_flag else ""
    default = getattr(param.default, "value", param.default)
    notes = "  [required]" if param.required else f"  [default: {default}]" if default and not is_flag else ""
    return f"{names}{value}", f"{param.help}{notes}"


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value)
    return str(value) if isinstance(value, Path) else value


def _parse(function: Callable[..., Any], name: str, short_help: str) -> Command:
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    app.command(name, cls=Command, short_help=short_help, context_settings={"max_content_width": 100})(
        function
    )
    command = get_command(app)
    assert isinstance(command, Command)
    return command


@cache
def _shared_params() -> list[Any]:
    return list(_parse(_shared, "shared", "").params)
