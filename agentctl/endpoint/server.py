"""What a server says of itself: its model, its limits, who else is on it."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import Any

from agentctl.endpoint.client import Answer, Client
from agentctl.endpoint.failures import failure
from agentctl.errors import InputError, UsageError
from agentctl.profile import MOST

CACHE = re.compile(r"^vllm:cache_config_info\{([^}]*)\}", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
MOST_NAME = 300  # characters
NO_LIST = (404, 405, 501)  # a server without /models
LIMITS = ("max_model_len", "kv_blocks", "block_tokens", "max_num_seqs", "max_num_batched_tokens")


@dataclass(frozen=True)
class Server:
    """None: it does not say. model: as it wants to be asked; `short` of it is for others."""

    model: str
    kind: str | None = None  # vllm | llama.cpp | sglang
    max_model_len: int | None = None
    kv_blocks: int | None = None
    block_tokens: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None

    @property
    def limits(self) -> dict[str, int]:
        return {name: value for name, value in asdict(self).items() if name in LIMITS and value is not None}


def short(model: str) -> str:
    """A model's name without where its file lies; `Qwen/Qwen3-8B` stays."""
    return PurePath(model).name if model.startswith(("/", "~", ".")) else model


async def ask_server(client: Client, wanted: str | None = None) -> Server:
    """`wanted`: the model's name there, where it serves several. Raises InputError, UsageError."""
    models = await client.models()
    if models is None:
        raise InputError("nothing answers there", place="endpoint", hint="is the server up, the port right?")
    if isinstance(models, int) and models not in (200, *NO_LIST):
        raise failure(Answer(0.0, "http", models))
    listed = models if isinstance(models, list) else []
    model = wanted or (_name(listed[0].get("id"), client.key) if len(listed) == 1 else None)
    if model is None:
        raise UsageError(f"the server lists {len(listed)} models", place="--served-model",
                         expected="the name of one of them")  # fmt: skip
    one = next((one for one in listed if one.get("id") == model), {})
    said = _count(one.get("max_model_len"))
    if one.get("owned_by") == "llamacpp":
        return _llama_cpp(model, await _json(client, "props"))
    if cache := CACHE.search(await client.metrics()):
        labels = dict(LABEL.findall(cache[1]))
        blocks = _count(labels.get("num_gpu_blocks")) or _count(labels.get("num_cpu_blocks"))
        return Server(model, "vllm", said, blocks, _count(labels.get("block_size")))
    if one.get("owned_by") == "sglang":
        return _sglang(model, await _json(client, "get_server_info"))
    return Server(model, None, said)


def _name(said: Any, key: str | None) -> str:
    """A model's name, which goes into files and reports; raises UsageError for what is none."""
    is_name = isinstance(said, str) and 0 < len(said) <= MOST_NAME and said.isprintable()
    if not is_name or (key and key in said):
        raise UsageError(
            "the server gives its model no name that can be shown", place="--served-model",
            expected=f"printable characters, {MOST_NAME} at most",
            hint="name the model as the server knows it",
        )  # fmt: skip
    return str(said)


def _llama_cpp(model: str, props: Mapping[str, Any]) -> Server:
    settings = props.get("default_generation_settings")
    context = settings.get("n_ctx") if isinstance(settings, dict) else None
    return Server(model, "llama.cpp", _count(context), max_num_seqs=_count(props.get("total_slots")))


def _sglang(model: str, info: Mapping[str, Any]) -> Server:
    page = _count(info.get("page_size")) or 1
    tokens = _count(info.get("max_total_num_tokens"))
    return Server(
        model, "sglang", _count(info.get("context_length")), tokens // page if tokens else None, page,
        _count(info.get("max_running_requests")), _count(info.get("chunked_prefill_size")),
    )  # fmt: skip


async def _json(client: Client, path: str) -> Mapping[str, Any]:
    said = await client.ask(f"{client.root}/{path}")
    try:
        found = json.loads(said[1]) if said and said[0] == 200 else {}
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _count(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 12:
        value = int(value)
    return value if type(value) is int and 0 < value <= MOST else None


async def check_quiet(client: Client) -> None:
    """Other traffic would be measured as the engine's own slowness. Raises InputError."""
    load = await quiet_load(client, 0.3)
    if load:
        raise InputError(
            f"the engine is serving {load:.0f} other requests, and timings would be theirs, too",
            place="endpoint", hint="probe an engine that nothing else is sent to",
        )  # fmt: skip


async def quiet_load(client: Client, pause_s: float = 0.1) -> float | None:
    """Requests of others while none of ours is there: our last one may still be counted for an instant."""
    for _ in range(3):
        load = await client.load()
        if not load:
            break
        await asyncio.sleep(pause_s)
    return load
