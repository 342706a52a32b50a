"""The part of JSON Schema 2020-12 that our schemas use, read as the standard says: is a document valid?"""

from __future__ import annotations

import re

TYPES = {
    "object": dict, "array": list, "string": str, "boolean": bool, "null": type(None),
    "integer": int, "number": (int, float),
}  # fmt: skip
KNOWN = {
    "$schema", "$ref", "$defs", "title", "type", "properties", "required", "additionalProperties", "enum",
    "const", "anyOf", "items", "minItems", "minimum", "maximum", "exclusiveMinimum", "minLength", "pattern",
    "discriminator",
}  # fmt: skip


def is_valid(value, schema, root=None):
    root = root or schema
    assert set(schema) <= KNOWN, f"not known: {set(schema) - KNOWN}"
    return all(rule(value, schema, root) for rule in (referred, typed, keyed, listed, bounded))


def referred(value, schema, root):
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        if not is_valid(value, root["$defs"][name], root):
            return False
    return "anyOf" not in schema or any(is_valid(value, one, root) for one in schema["anyOf"])


def typed(value, schema, root):
    if "type" in schema:
        if isinstance(value, bool) and schema["type"] != "boolean":
            return False
        if not isinstance(value, TYPES[schema["type"]]):
            return False
    return value in schema.get("enum", [value]) and value == schema.get("const", value)


def keyed(value, schema, root):
    if not isinstance(value, dict):
        return True
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for key, inner in value.items():
        if key in properties:
            if not is_valid(inner, properties[key], root):
                return False
        elif more is False or (isinstance(more, dict) and not is_valid(inner, more, root)):
            return False
    return set(schema.get("required", [])) <= set(value)


def listed(value, schema, root):
    if not isinstance(value, list):
        return True
    return len(value) >= schema.get("minItems", 0) and all(
        is_valid(inner, schema.get("items", {}), root) for inner in value
    )


def bounded(value, schema, root):
    if isinstance(value, str):
        return len(value) >= schema.get("minLength", 0) and bool(re.search(schema.get("pattern", ""), value))
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    above = value > schema["exclusiveMinimum"] if "exclusiveMinimum" in schema else True
    return above and schema.get("minimum", value) <= value <= schema.get("maximum", value)
