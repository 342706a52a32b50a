"""Documents of plain values as YAML that every reader understands the same way.

Block style, keys in the order given, one spelling for every value: text is bare where no reader could take it
for anything else, and in double quotes with escapes otherwise; a text of several lines stands as it is under
`|`. There are no anchors, tags or comments, and what is written is read back unchanged by YAML 1.1 and 1.2.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BARE = re.compile(r"[A-Za-z/][A-Za-z0-9_./-]*")
# What readers of YAML 1.1 take for a truth value, a number or nothing.
TAKEN = {"true", "false", "yes", "no", "on", "off", "y", "n", "null", "nan", "inf", "infinity"}


def yaml_text(document: Mapping[str, Any]) -> str:
    """The document with a final newline. Values: mappings, lists, text, numbers, bool, None."""
    return "".join(f"{line}\n" for line in _mapping(document, 0))


def _mapping(table: Mapping[str, Any], depth: int) -> Iterator[str]:
    for key, value in table.items():
        yield from _entry(f"{_scalar(key)}:", value, depth)


def _list(items: Sequence[Any], depth: int) -> Iterator[str]:
    """`- ` takes the place of the indentation of the item's first line."""
    for item in items:
        if isinstance(item, Mapping | list | tuple) and item:
            first, *others = (
                _mapping(item, depth + 1) if isinstance(item, Mapping) else _list(item, depth + 1)
            )
            yield f"{'  ' * depth}- {first.lstrip(' ')}"
            yield from others
        else:
            yield from _entry("-", item, depth)


def _entry(head: str, value: Any, depth: int) -> Iterator[str]:
    indent = "  " * depth
    if isinstance(value, Mapping) and value:
        yield indent + head
        yield from _mapping(value, depth + 1)
    elif isinstance(value, list | tuple) and value:
        yield indent + head
        yield from _list(value, depth + 1)
    elif isinstance(value, str) and _is_block(value):
        yield f"{indent}{head} |"
        yield from (f"{indent}  {line}" if line else "" for line in value.splitlines())
    else:
        yield f"{indent}{head} {_scalar(value)}"


def _is_block(text: str) -> bool:
    """Whether `|` keeps it as it is: printable lines with exactly one newline at the end."""
    body = text.removesuffix("\n")
    lines = body.split("\n")
    plain = all(line.isascii() and line.isprintable() for line in lines)
    return text.endswith("\n") and plain and body[-1:] not in ("", "\n") and body[0] not in (" ", "\n")


def _scalar(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, str):
        return value if BARE.fullmatch(value) and value.lower() not in TAKEN else quoted(value)
    assert not value, f"{type(value).__name__} is no value of YAML"
    return "{}" if isinstance(value, Mapping) else "[]"


def _number(value: float) -> str:
    """Digits, a point and a signed exponent: YAML 1.1 takes `1e-05` for text."""
    assert math.isfinite(value), "NaN and infinity are no settings"
    mantissa, e, exponent = repr(value).partition("e")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}{e}{exponent}"


def quoted(text: str) -> str:
    """In double quotes; what is not printable ASCII is escaped."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return f"\\{character}"
    if character.isascii() and character.isprintable():
        return character
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
