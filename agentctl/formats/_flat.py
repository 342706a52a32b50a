"""Lists that instrumentations flatten into attributes, one a field: `llm.input_messages.0.message.role`.

OpenInference and OpenLLMetry write messages and tools so. Each item becomes an object again, its fields in a
fixed order: the same in every span, though not byte for byte what was sent.
"""

from __future__ import annotations

import re

import msgspec

from agentctl.formats import _otlp
from agentctl.formats._otlp import Attributes

_FIRST = ("role", "content")
_CALL = re.compile(r"tool_calls\.[0-9]+\.(?:tool_call\.function\.)?name")
HIDDEN = "__REDACTED__"  # OpenInference writes it in place of content


def flat_list(attributes: Attributes, prefix: str, infix: str = "", leave: str = "") -> bytes | None:
    """The items named PREFIX.N.INFIX FIELD, in the order of N, as JSON; None where there are none.

    leave  a field that is no part of the item
    """
    items: dict[int, dict[str, str | None]] = {}
    for name, raw in attributes.items():
        if name.startswith(prefix):
            number, _, field = name[len(prefix) :].partition(".")
            if number.isdecimal() and field.startswith(infix) and field != leave:
                items.setdefault(int(number), {})[field.removeprefix(infix)] = _otlp.text(raw)
    if not items or any(text == HIDDEN for item in items.values() for text in item.values()):
        return None
    return msgspec.json.encode([_item(items[number]) for number in sorted(items)])


def _item(fields: dict[str, str | None]) -> dict[str, object]:
    """Role and content first; names of the functions that it calls as a list."""
    ordered: dict[str, object] = {name: fields[name] for name in _FIRST if name in fields}
    ordered |= {name: fields[name] for name in sorted(fields) if name not in _FIRST}
    if calls := [fields[name] for name in sorted(fields) if _CALL.fullmatch(name)]:
        ordered["tool_calls"] = calls
    return ordered
