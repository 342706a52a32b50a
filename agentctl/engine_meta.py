"""What an engine was started with: limits given as flags, and those in a JSON file of its arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentctl.calibrate import Engine
from agentctl.errors import InputError, UsageError
from agentctl.profile import MOST

UNLIMITED = "unlimited"
MOST_BYTES = 1 << 20
# Ours, and what vLLM calls it.
LIMITS = {
    "kv_blocks": ("num_gpu_blocks", "num_gpu_blocks_override"),
    "block_tokens": ("block_size",),
    "max_num_batched_tokens": ("max_num_batched_tokens",),
    "max_num_seqs": ("max_num_seqs",),
    "max_model_len": ("max_model_len",),
}
NESTED = ("engine_kwargs", "engine_args", "args")


@dataclass(frozen=True)
class Limits:
    """kv_blocks: a number, UNLIMITED, or None where nobody said."""

    kv_blocks: int | str | None = None
    block_tokens: int | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None
    max_model_len: int | None = None


def limits_of(text: str | None) -> int | str | None:
    """The value of --kv-blocks; raises UsageError."""
    if text is None or text == UNLIMITED:
        return text
    if not text.isascii() or not text.isdigit() or len(text) > 19 or not 2 <= int(text) <= MOST:
        raise UsageError(
            f"is {text!r}", place="--kv-blocks", expected=f"a number from 2 to {MOST}, or unlimited"
        )
    return int(text)


def read_meta(path: Path, limits: Limits, engine: Engine) -> tuple[Limits, Engine]:
    """What is not given, from a JSON object with vLLM's arguments, at its top or one level below."""
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(MOST_BYTES))
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", place=str(path)) from error
    except (ValueError, RecursionError) as error:
        raise InputError("is not JSON", place=str(path)) from error
    if not isinstance(document, dict):
        raise InputError("is not an object", place=str(path), expected='{"max_num_seqs": 256, ...}')
    known: dict[str, Any] = dict(document)
    for name in NESTED:
        if isinstance(document.get(name), Mapping):
            known |= document[name]
    for ours, theirs in LIMITS.items():
        value = next((number for key in theirs if (number := _number(known, key, path))), None)
        if getattr(limits, ours) is None and value is not None:
            limits = replace(limits, **{ours: value})
    model = known.get("model")
    if engine.model is None and isinstance(model, str):
        engine = replace(engine, model=model)
    if engine.tensor_parallel is None:
        engine = replace(engine, tensor_parallel=_number(known, "tensor_parallel_size", path))
    return limits, engine


def _number(known: Mapping[str, Any], key: str, path: Path) -> int | None:
    value = known.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST:
        raise InputError(f"{key} is not a whole number from 1 to {MOST}", place=str(path))
    return value
