"""Tokenizers that the user gives as a file. Nothing is ever downloaded.

    FILE.json       a `tokenizers` file (tokenizer.json of a model's folder); needs that package
    FILE.tiktoken   ranks, a line `BASE64 RANK` each (cl100k_base, o200k_base, ...); needs tiktoken

A message is rendered plainly: its role, its text, and whatever else it holds as compact JSON. The template of
a model adds some tokens a message; where the log reports counts, blocks are placed by those.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from agentctl.errors import InputError, UsageError

Encoder = Callable[[bytes], Sequence[int]]

# How cl100k_base splits text before it merges bytes (tiktoken 0.12, tiktoken_ext/openai_public.py).
_CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


def load_encoder(path: Path | None) -> Encoder:
    """A function from the raw JSON of a message to token ids. Raises InputError, UsageError."""
    if path is None:
        raise UsageError("needs a tokenizer", place="--blocks token", hint="--tokenizer FILE gives one")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read ({error.strerror})", place=str(path)) from error
    encode = _tokenizers(data, path) if data.lstrip()[:1] == b"{" else _tiktoken(data, path)
    return lambda message: encode(render(message))


def render(message: bytes) -> str:
    """The text of a message as a model sees it, about: no JSON escapes, no keys around what is text."""
    try:
        value = msgspec.json.decode(message)
    except (msgspec.DecodeError, RecursionError):
        return message.decode("utf-8", "replace")
    if not isinstance(value, dict):
        return value if isinstance(value, str) else message.decode("utf-8", "replace")
    role, content = value.pop("role", ""), value.pop("content", "")
    rest = {key: item for key, item in value.items() if item not in (None, [], {})}
    other = msgspec.json.encode(rest).decode() if rest else ""
    return f"{role}\n{_text(content)}{other}\n"


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return "".join(
            part if isinstance(part, str) else msgspec.json.encode(whole).decode()
            for part, whole in zip(parts, content, strict=True)
        )
    return "" if content is None else msgspec.json.encode(content).decode()


def _tokenizers(data: bytes, path: Path) -> Callable[[str], Sequence[int]]:
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise _missing("tokenizers", path) from error
    try:
        tokenizer = Tokenizer.from_str(data.decode())
    except Exception as error:  # the package raises plain Exception
        raise InputError("is no tokenizer", place=str(path), expected="a tokenizer.json") from error
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def _tiktoken(data: bytes, path: Path) -> Callable[[str], Sequence[int]]:
    try:
        from tiktoken import Encoding
    except ImportError as error:
        raise _missing("tiktoken", path) from error
    try:
        pairs = (line.split() for line in data.splitlines() if line)
        ranks = {base64.b64decode(token, validate=True): int(rank) for token, rank in pairs}
        encoding = Encoding("given", pat_str=_CL100K, mergeable_ranks=ranks, special_tokens={})
    except ValueError as error:
        raise InputError(
            "is no tokenizer", place=str(path), expected="a tokenizer.json, or lines of BASE64 RANK"
        ) from error
    return encoding.encode_ordinary


def _missing(package: str, path: Path) -> UsageError:
    return UsageError(
        f"{path.name} needs the package {package}",
        place="--tokenizer",
        hint="pip install 'agentctl[text]', or leave it out: blocks of bytes are then used",
    )
