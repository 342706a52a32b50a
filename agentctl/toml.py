"""TOML files to frozen dataclasses: unknown keys are errors with a suggestion, values must fit their type."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
import tomllib
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from agentctl.errors import ConfigError

T = TypeVar("T")


def read_toml(path: Path) -> dict[str, Any]:
    """The tables of a TOML file; raises ConfigError when it cannot be read or is not TOML."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", place=str(path)) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        hint = "TOML is UTF-8 text of [tables] and `key = value`"
        raise ConfigError(f"is not TOML: {error}", place=str(path), hint=hint) from error


def check_schema(tables: Mapping[str, Any], schema: str, file: str) -> None:
    if tables.get("schema") != schema:
        found = repr(tables["schema"]) if "schema" in tables else "missing"
        raise ConfigError(f"schema is {found}", place=file, expected=f'schema = "{schema}"')


def suggestion(word: str, known: Iterable[str]) -> str:
    """A hint: the known word that `word` was probably meant to be, else all known words."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"did you mean `{close[0]}`?" if close else f"known: {', '.join(names)}"


def check_keys(table: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Raise ConfigError for the first key of `table` that is not known. `place` is `file: [table]`."""
    known = set(known)
    for key in table:
        if key not in known:
            raise ConfigError("unknown key", place=f"{place} {key}", hint=suggestion(key, known))


def build(cls: type[T], table: Mapping[str, Any], place: str) -> T:
    """A dataclass or NamedTuple from a TOML table.

    Types and bounds stand at the fields (Annotated with msgspec.Meta). Raises ConfigError whose place is
    `file: [table] key`.
    """
    if not isinstance(table, Mapping):
        raise ConfigError("is not a table", place=place)
    check_keys(table, field_names(cls), place)
    for key, value in table.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"is {value}", place=f"{place} {key}", expected="a finite number")
    try:
        # msgspec reads TOML's whole numbers as floats where a float is asked for.
        return msgspec.convert(dict(table), cls)
    except msgspec.ValidationError as error:
        raise _as_config_error(str(error), cls, place) from error


def field_names(cls: type) -> tuple[str, ...]:
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    return tuple(cls._fields)  # type: ignore[attr-defined]


def _as_config_error(message: str, cls: type, place: str) -> ConfigError:
    """Turn msgspec's `Expected ... - at `$.key`` into our own words."""
    missing = re.match(r"Object missing required field `(\w+)`", message)
    if missing:
        return ConfigError("missing", place=f"{place} {missing[1]}")
    text, _, path = message.partition(" - at `$")
    key = path.rstrip("`").lstrip(".")
    found = re.match(r"Expected `?(.+?)`?, got `?(.+?)`?$", text)
    where = f"{place} {key}".rstrip()
    if found:
        return ConfigError(f"is of type {found[2]}", place=where, expected=found[1].replace("|", " or "))
    if text.startswith("Invalid enum value"):
        choices = _choices(typing.get_type_hints(cls)[key])
        return ConfigError(f"is {text.split(' ', 3)[3]}", place=where, expected=" or ".join(choices))
    if text.startswith("Expected "):
        return ConfigError(
            "is out of range", place=where, expected=text.removeprefix("Expected ").replace("`", "")
        )
    return ConfigError(text.replace("`", ""), place=where)


def _choices(hint: Any) -> list[str]:
    """The words of a Literal, also of one that may be None."""
    parts = typing.get_args(hint)
    return [word for part in parts for word in ([part] if isinstance(part, str) else _choices(part))]
