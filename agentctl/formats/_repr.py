"""Text that Python's repr wrote, without evaluating it."""

from __future__ import annotations

import re

import msgspec

LITERAL = re.compile(rb"'[^'\\]*(?:\\.[^'\\]*)*'|\"[^\"\\]*(?:\\.[^\"\\]*)*\"", re.DOTALL)


def literal_end(text: bytes) -> int:
    """Where the literal ends with which `text` begins, -1 if it does not; fast for long ones."""
    quote, at = text[:1], 0
    if quote not in (b"'", b'"'):
        return -1
    while (at := text.find(quote, at + 1)) >= 0:
        n_before = at
        while text[n_before - 1 : n_before] == b"\\":
            n_before -= 1
        if (at - n_before) % 2 == 0:
            return at + 1
    return -1


def text_of(literal: bytes) -> str:
    """The string that a literal of LITERAL stands for. Raises ValueError."""
    text = literal[1:-1].decode()
    if "\\" not in text:
        return text
    # What is beyond Latin-1 becomes an escape, too, so that one decoding undoes them all.
    return text.encode("latin-1", "backslashreplace").decode("unicode_escape")


def to_json(text: bytes) -> bytes:
    """Dicts, lists, tuples and calls with keywords, Name(key=value, ...), as JSON; raises ValueError.

    What cannot be told (objects in angle brackets, NaN, calls with positions) is null, and so is a string or
    list that was shortened ('head' ... 'tail').
    """
    out: list[bytes] = []
    closing: list[bytes] = []  # what ends each open bracket
    at, is_shortened = 0, False
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError
        kind, token, at = match.lastgroup, match[0], match.end()
        if kind in ("literal", "numbers"):
            if is_shortened:
                is_shortened = False
            else:
                out.append(msgspec.json.encode(text_of(token)) if kind == "literal" else token)
        elif kind == "dots":
            if not out or not out[-1].endswith((b'"', b"]")):
                raise ValueError
            out[-1], is_shortened = b"null", True
        elif kind == "call" and not _KEYWORD.match(text, at):
            at = _skip(text, at)
            out.append(b"null")
        elif kind in ("call", "open"):
            opening, end = _BRACKETS[token if kind == "open" else b"call"]
            out.append(opening)
            closing.append(end)
        elif kind == "close":
            if not closing:
                raise ValueError
            if out[-1] == b",":  # of a tuple of one
                out.pop()
            out.append(closing.pop())
        elif kind == "key":
            out.append(b'"' + match["name"] + b'":')
        elif kind in ("word", "object"):
            out.append(_WORDS.get(token, b"null"))
        elif kind != "space":  # a number, a comma, a colon
            out.append(token)
    if closing:
        raise ValueError
    return b"".join(out)


_TOKEN = re.compile(
    rb"(?P<space>\s+)|(?P<numbers>\[[0-9][0-9, ]*\])|(?P<literal>" + LITERAL.pattern + rb")"
    rb"|(?P<dots>\.\.\.)|(?P<call>[A-Za-z_][\w.]*\()|(?P<key>(?P<name>[A-Za-z_]\w*)=)"
    rb"|(?P<number>-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)|(?P<word>-?[A-Za-z_][\w.]*)|(?P<object><[^<>]*>)"
    rb"|(?P<open>[\[({])|(?P<close>[\])}])|(?P<mark>[,:])",
    re.DOTALL,
)
_KEYWORD = re.compile(rb"[A-Za-z_]\w*=|\)")
_BRACKETS = {b"[": (b"[", b"]"), b"(": (b"[", b"]"), b"{": (b"{", b"}"), b"call": (b"{", b"}")}
_WORDS = {b"True": b"true", b"False": b"false", b"None": b"null"}


def _skip(text: bytes, at: int) -> int:
    """Behind the bracket that closes the one just before `at`."""
    depth = 1
    while depth:
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError
        at = match.end()
        depth += (match.lastgroup in ("call", "open")) - (match.lastgroup == "close")
    return at


def without_strings(text: bytes) -> bytes:
    """The same length with every string literal blanked, so that names found in it are no one's words."""
    if b"'" not in text and b'"' not in text:
        return text
    return LITERAL.sub(lambda match: b"'" + b" " * (len(match[0]) - 2) + b"'", text)
