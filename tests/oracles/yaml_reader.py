"""Reads the part of YAML that configurations here are written in: an independent judge of the writer.

Block mappings and lists by indentation, scalars bare or in double quotes, `|` for lines as they are, `{}` and
`[]`. Anything else is an error. What it reads it reads as YAML 1.1 and 1.2 both do.
"""

from __future__ import annotations

import re

TRUTH = {"true": True, "false": False, "null": None, "{}": {}, "[]": []}
ESCAPES = {"\\": "\\", '"': '"'}


def read_yaml(text):
    lines = text.split("\n")
    assert lines.pop() == "", "no newline at the end"
    value, rest = block(lines, 0)
    assert not rest, f"left over: {rest[0]!r}"
    return value


def indent_of(line):
    return len(line) - len(line.lstrip(" "))


def block(lines, depth):
    """The value that starts at this indentation, and the lines that follow it."""
    assert indent_of(lines[0]) == depth, f"indentation of {lines[0]!r}"
    if lines[0].lstrip(" ").startswith("- "):
        return items(lines, depth)
    return mapping(lines, depth)


def mapping(lines, depth):
    found = {}
    while lines and indent_of(lines[0]) == depth and not lines[0].lstrip(" ").startswith("- "):
        key, rest = key_of(lines[0].strip(" "))
        assert key not in found, f"{key!r} twice"
        found[key], lines = value_after(rest, lines[1:], depth)
    return found, lines


def items(lines, depth):
    found = []
    while lines and indent_of(lines[0]) == depth and lines[0].lstrip(" ").startswith("- "):
        rest = lines[0].lstrip(" ")[2:]
        if (
            rest.startswith("- ")
            or (not rest.startswith('"') and re.match(r"[^ ]+:( |$)", rest))
            or quoted_key(rest)
        ):
            value, lines = block([" " * (depth + 2) + rest, *lines[1:]], depth + 2)
        else:
            value, lines = value_after(f" {rest}", lines[1:], depth)
        found.append(value)
    return found, lines


def quoted_key(text):
    return re.match(r'"(?:[^"\\]|\\.)*":( |$)', text)


def key_of(line):
    match = re.match(r'("(?:[^"\\]|\\.)*"|[^ :"]+):', line)
    assert match, f"no key: {line!r}"
    return scalar(match[1]), line[match.end() :]


def value_after(rest, lines, depth):
    if rest == "":
        return block(lines, depth + 2)
    assert rest[0] == " "
    if rest == " |":
        kept = []
        while lines and (lines[0] == "" or indent_of(lines[0]) > depth):
            kept.append(lines[0][depth + 2 :])
            lines = lines[1:]
        return "".join(f"{line}\n" for line in kept), lines
    return scalar(rest[1:]), lines


def scalar(text):
    if text in TRUTH:
        return TRUTH[text]
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if re.fullmatch(r"-?\d+\.\d+(e[+-]\d+)?", text):
        return float(text)
    if text.startswith('"'):
        assert text.endswith('"') and len(text) > 1, text
        return re.sub(r'\\(x..|u....|U........|["\\])', unescape, text[1:-1])
    assert re.fullmatch(r"[A-Za-z/][A-Za-z0-9_./-]*", text), f"not plain: {text!r}"
    return text


def unescape(match):
    return ESCAPES.get(match[1]) or chr(int(match[1][1:], 16))
