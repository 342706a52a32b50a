"""The configuration file: TOML, top-level keys for every command that has them, `[command]` tables for one.

seed = 7                    # of every command with --seed
[recommend]
profile = "h100-qwen3-8b"
slo = ["ttft p95 < 2s"]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from agentctl.cli import COMMANDS
from agentctl.errors import ConfigError

DEFAULT_FILE = Path("agentctl.toml")


def defaults_from(
    path: Path | None, command: str, options_of: Callable[[str], list[Any]]
) -> tuple[Path | None, dict[str, Any]]:
    """The file that was read, and what it sets for `command`: {parameter name: value}.

    Without `path`, ./agentctl.toml is read if it exists. Every key is checked, also those of other commands.
    Raises ConfigError.
    """
    if path is None and not DEFAULT_FILE.is_file():
        return None, {}
    from agentctl.toml import check_keys, read_toml

    path = path or DEFAULT_FILE
    document = read_toml(path)
    general = _names({key: value for key, value in document.items() if not isinstance(value, dict)})
    tables = {key: _names(value) for key, value in document.items() if isinstance(value, dict)}
    options = {name: {param.name: param for param in options_of(name)} for name in COMMANDS}
    known = {name: set(params) for name, params in options.items()}
    check_keys(general, set().union(*known.values()), f"{path}:")
    check_keys(tables, COMMANDS, f"{path}: table")
    for name, table in tables.items():
        check_keys(table, known[name], f"{path}: [{name}]")
    mine = {key: value for key, value in general.items() if key in known[command]} | tables.get(command, {})
    params = options[command]
    return path, {key: _given(value, params[key], f"{path}: {key}") for key, value in mine.items()}


def _names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keys as Python names: a dash reads as an underscore, as in `--max-bad`."""
    return {key.replace("-", "_"): value for key, value in values.items()}


def _given(value: Any, param: Any, place: str) -> Any:
    """As the command line would have given it, so that one parser checks both; raises ConfigError.

    One value may stand for a list of one.
    """
    if isinstance(value, list) and not param.multiple:
        raise ConfigError("is a list", place=place, expected="one value, as the flag takes it")
    items = value if isinstance(value, list) else [value]
    for item in items:
        if not isinstance(item, str | int | float):
            what = "a list" if isinstance(item, list) else "a table" if isinstance(item, dict) else "a date"
            raise ConfigError(f"holds {what}", place=place, expected="text, numbers, true or false")
    texts = [item if isinstance(item, bool) else str(item) for item in items]
    return texts if param.multiple else texts[0]
