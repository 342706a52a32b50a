"""How a policy is named where people write: `lmetric`, `vllm-router:kv_aware`, `./mine.py:choose`, with
parameters after a colon: `smetric:slack=2,hit_ratio=0.5`."""

from __future__ import annotations

import re

from agentctl.errors import UsageError

FORM = "NAME, or NAME:KEY=NUMBER,..."


def parse_policy(text: str, place: str) -> tuple[str, dict[str, float]]:
    """The name and the parameters; `place` is the option that holds the text. Raises UsageError."""
    name, _, rest = text.strip().rpartition(":")
    if "=" not in rest:
        name, rest = text.strip(), ""
    if not name.strip(":"):
        raise UsageError(f"{text!r} names no policy", place=place, expected=FORM)
    params = {}
    for pair in filter(None, rest.split(",")):
        key, _, value = pair.partition("=")
        try:
            params[key.strip()] = float(value)
        except ValueError as error:
            raise UsageError(f"cannot read {pair!r}", place=place, expected="KEY=NUMBER") from error
    return name, params


def split_policies(text: str) -> list[str]:
    """`a,b:x=1,y=2` -> `a` and `b:x=1,y=2`: a comma before KEY=NUMBER goes on with the parameters."""
    parts = re.split(r",(?![^,:]*=)", text)
    return [part.strip() for part in parts if part.strip()]


def is_user_policy(name: str) -> bool:
    """Whether the name is a Python file, with or without `:FUNCTION`."""
    return re.search(r"\.py(:|$)", name) is not None


def file_and_function(name: str) -> tuple[str, str]:
    """`./mine.py:pick` -> (`./mine.py`, `pick`); without a function `choose`."""
    file, _, function = name.partition(".py:")
    return f"{file.removesuffix('.py')}.py", function or "choose"
