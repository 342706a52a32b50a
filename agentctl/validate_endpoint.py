"""Validation against a live server: a slice of a trace replayed there, simulated, and the two compared."""

from __future__ import annotations

import asyncio
import json
import math
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from agentctl import __version__
from agentctl.cluster import Cluster, cluster_of, with_profile
from agentctl.endpoint.client import Client
from agentctl.endpoint.dialect import PROMPTS, find_dialect
from agentctl.endpoint.measured import dialect_of, new_salt
from agentctl.endpoint.replay import Limits, Progress, replay
from agentctl.endpoint.replayed import REPLAY_SCHEMA, Replayed, first_token_s, read_replayed, why_not
from agentctl.endpoint.rows_file import with_zeros
from agentctl.endpoint.server import ask_server, check_quiet, short
from agentctl.endpoint.slice import Contents, Slice, cut
from agentctl.engine_meta import UNLIMITED
from agentctl.errors import ConfigError, InputError, UsageError
from agentctl.files import atomic_file
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.logged import blocks_for_all
from agentctl.profile import MOST, Profile
from agentctl.result import RunResult
from agentctl.trace import Trace
from agentctl.validate.back_test import back_test
from agentctl.validate.run import result_of
from agentctl.validate_endpoint_pace import own_pace
from agentctl.validate_endpoint_sections import Sent, distances, sections_of
from agentctl.workload import compile_workload

ROWS_FILE = "requests.jsonl"
STALL_S = 60.0  # without a token: under load a first one may wait longer than alone
USUAL_BLOCK = 16  # tokens, where neither the server nor the profile says
LIMITS = ("kv_blocks", "block_tokens", "max_num_seqs", "max_model_len", "max_num_batched_tokens")
MAP = {
    "request_id": "id", "arrival_s": "at", "prompt_tokens": "in", "output_tokens": "out", "ttft_s": "ttft",
    "e2e_s": "e2e", "cached_tokens": "cached", "status": "status",
    "hash_ids": "ids",
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What is sent. speed: how much faster sessions start than in the log; gaps between turns stay."""

    requests: int = 200
    seconds: float = 300.0
    speed: float = 1.0
    rate: float = 10.0  # requests a second, at most
    model: str | None = None  # its name there; None: the only one that it serves
    prompts: str = "auto"  # auto | tokens | text
    max_context: int | None = None  # None: as the server says

    @property
    def slice(self) -> dict[str, Any]:
        """What decides which requests are sent, and when."""
        return {"requests": self.requests, "seconds": self.seconds, "speed": self.speed, "rate": self.rate}


def measure(
    base: str,
    trace: Trace,
    path: Path,
    asked: Asked,
    key: str | None = None,
    note: Callable[[str], None] = lambda said: None,
    progress: Progress | None = None,
    force: bool = False,
) -> Replayed:
    """Replay a slice of `trace` at `base` (of address.base_url) into the file `path`.

    A file that is there is read and nothing is sent, also where it was interrupted: a replay is of one piece.
    `force` replaces it. Ctrl-C keeps what was seen. Raises InputError for a server that cannot be used,
    UsageError for a file of another slice.
    """
    if asked.prompts not in PROMPTS:
        raise UsageError(f"is {asked.prompts!r}", place="--prompts", expected="auto, tokens or text")
    if path.is_file() and path.stat().st_size and not force:
        return _read(path, trace, asked, note)
    return asyncio.run(replayed_from(base, trace, path, asked, key, note, progress))


def _read(path: Path, trace: Trace, asked: Asked, note: Callable[[str], None]) -> Replayed:
    found = read_replayed(path)
    if (found.header.get("trace"), found.header.get("slice")) != (trace.digest, asked.slice):
        raise UsageError(
            "is of another trace or another part of it", place=str(path),
            hint="give the same flags, another file with --measured, or --force to replace it",
        )  # fmt: skip
    state = "complete" if found.end else "of an interrupted replay"
    note(f"{path} is {state}: nothing is sent" + ("" if found.end else "; --force starts again"))
    return found


async def replayed_from(
    base: str,
    trace: Trace,
    path: Path,
    asked: Asked,
    key: str | None = None,
    note: Callable[[str], None] = lambda said: None,
    progress: Progress | None = None,
    stall_s: float = STALL_S,
    cpu_time: Callable[[], float] = time.process_time,
) -> Replayed:
    """The same in a loop that runs already; the file is written anew."""
    workload = compile_workload(trace)
    cut(workload, asked.requests, asked.seconds, asked.speed, None)  # before anybody is asked
    async with Client(base, key, stall_s) as client:
        server = await ask_server(client, asked.model)
        limits = [one for one in (asked.max_context, server.max_model_len) if one is not None]
        max_context = min(limits) if limits else None
        part = cut(workload, asked.requests, asked.seconds, asked.speed, max_context)
        await check_quiet(client)
        salt = new_salt()
        dialect, _ = await find_dialect(
            client, server.model, asked.prompts, salt, server.kind == "llama.cpp", note
        )
        header = {
            "schema": REPLAY_SCHEMA, "trace": trace.digest, "slice": asked.slice, "max_context": max_context,
            "model": short(server.model), "kind": server.kind, "limits": server.limits, "salt": salt,
            "dialect": dialect.as_header(), "agentctl": __version__,
        }  # fmt: skip
        with atomic_file(path, force=True) as temporary:  # what was there goes, now that the server answers
            temporary.write_bytes(b"")
        rows = Replayed(path, header)
        note(_announcement(part, asked, path))
        rows.open()
        try:
            allowed = Limits(asked.seconds, asked.rate)
            await replay(part, client, server.model, rows, allowed, progress, cpu_time)
        finally:
            rows.close()
    return rows


def _announcement(part: Slice, asked: Asked, path: Path) -> str:
    last = float(part.workload.requests.arrival.max())
    left = "".join(f"; {n} left out: {why}" for why, n in part.left_out.items())
    return (
        f"{part.n_requests} requests of {part.sessions} sessions, about {last:.0f} s by the log and "
        f"{asked.seconds:.0f} s at most{left}; what is measured goes to {path}"
    )


def compare(
    trace: Trace,
    rows: Replayed,
    asked: Asked,
    profile: Profile | None = None,
    cluster: Cluster | None = None,
    kv_blocks: int | str | None = None,
    strict: bool = False,
) -> RunResult:
    """Simulate what was sent on one engine and compare; documents as of `agentctl.validate.validate`.

    The engine has the limits that the server told, else those of the profile; a cluster file stands above
    both. Raises InputError, ConfigError, UsageError.
    """
    place = f"{rows.path}:1"
    max_context = rows.header.get("max_context")
    if max_context is not None and type(max_context) is not int:
        raise InputError("holds no usable max_context", place=place)
    part = cut(compile_workload(trace), asked.requests, asked.seconds, asked.speed, max_context)
    if any(not 0 <= row["request"] < part.n_requests for row in rows.rows):
        raise InputError("holds requests that the slice lacks", place=str(rows.path))
    dialect = dialect_of(rows.header, place)
    reasons = [why_not(row, rows.disturbed, dialect) for row in rows.rows]
    if None not in reasons:
        told = ", ".join(f"{why} {n}" for why, n in Counter(reasons).items()) or "none was sent"
        raise InputError(
            f"no request's times can be used: {told}", place=str(rows.path), hint="--force starts again"
        )
    said = {
        name: n for name, n in dict(rows.header.get("limits") or {}).items()
        if name in LIMITS and type(n) is int and 0 < n <= MOST
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="agentctl-") as folder:
        block = _block_tokens(profile, cluster, said)
        measured = _as_log(part, rows, reasons, block, Path(folder) / f"{trace.name}.trace")
        base = _one_engine(measured, profile, cluster, kv_blocks, said, block)
        overhead = base.pools[0].profile.fit.get("request_overhead_s")
        delay = float(overhead) if isinstance(overhead, int | float) else 0.0
        test = replace(back_test(measured, base, overhead_s=delay), of="server")
        result = result_of(measured, base, test, strict)
        pace = own_pace(part, rows, measured, base, delay) if test.compared else None
    sent = Sent(part, rows, tuple(reasons), said, delay if isinstance(overhead, int | float) else None)
    far = distances(test.compared, pace)
    document = {**result.document, "endpoint": sent.document(), "distribution": [asdict(one) for one in far]}
    document["warnings"] = [*document["warnings"], *sent.warnings()]
    content = rows.path.read_bytes()
    sections = sections_of(result.sections, sent, far, pace)
    return replace(result, document=document, sections=sections, files={ROWS_FILE: content})


def _block_tokens(profile: Profile | None, cluster: Cluster | None, said: dict[str, int]) -> int:
    if cluster is not None:
        return cluster.pools[0].block_tokens
    return said.get("block_tokens") or (profile.block_tokens if profile else None) or USUAL_BLOCK


def _one_engine(
    measured: Trace,
    profile: Profile | None,
    cluster: Cluster | None,
    kv_blocks: int | str | None,
    said: dict[str, int],
    block: int,
) -> Cluster:
    if cluster is not None:
        if kv_blocks is not None:
            raise UsageError("belongs to a profile alone", place="--kv-blocks",
                             hint="kv_blocks of the [[pool]]")  # fmt: skip
        if cluster.n_engines != 1:
            raise UsageError(f"has {cluster.n_engines} engines", place="--cluster",
                             expected="one: an endpoint is compared with one engine")  # fmt: skip
        return with_profile(cluster, profile) if profile else cluster
    if profile is None:
        raise UsageError("neither is given", place="--profile, --cluster", expected="at least one of them")
    blocks = kv_blocks or said.get("kv_blocks") or profile.kv_blocks
    if blocks is None:
        raise ConfigError(
            "missing, and the server does not say it", place=f"profile {profile.name}: kv_blocks",
            hint="--kv-blocks N (the engine prints it at start), or unlimited if its KV cache is never full",
        )  # fmt: skip
    if blocks == UNLIMITED:
        blocks = blocks_for_all(measured, block)
    others: dict[str, Any] = {
        name: n for name, n in said.items() if name not in ("kv_blocks", "block_tokens")
    }
    return cluster_of(replace(profile, kv_blocks=int(blocks), block_tokens=block, **others))


def _as_log(part: Slice, rows: Replayed, reasons: list[str | None], block: int, output: Path) -> Trace:
    """What was sent as a dataset of requests without sessions: they came when they came."""
    contents = Contents(part.workload)
    unit = math.gcd(contents.block, block)  # the engine's block, where the trace has none
    ids = part.workload.request_ids
    lines = [
        json.dumps(_logged(row, why, ids[row["request"]], contents, unit))
        for row, why in zip(with_zeros(rows.rows), reasons, strict=True)
        if row["status"] != "not sent"
    ]
    path = output.with_suffix(".jsonl")
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    options = IngestOptions(
        format="generic", map=MAP, sessions="none", duplicates="keep", block_tokens=unit
    )  # fmt: skip
    return ingest([path], output, options).trace


def _logged(row: dict[str, Any], why: str | None, name: str, contents: Contents, unit: int) -> dict[str, Any]:
    """A request that was answered in part is a load like any other; its times are compared with nothing."""
    prompt = row["prompt_tokens"] if why is None else row["asked_tokens"]
    chunks = row["chunks_s"]
    held = row["status"] not in ("http", "refused")
    found = {
        "id": name, "at": row["sent"], "in": prompt, "status": "ok" if why is None else "error",
        "out": row["completion_tokens"] if why is None else max(len(chunks), 1),
        "cached": row["cached_tokens"] if why is None else None,
        "ttft": first_token_s(row) if why is None else None, "e2e": chunks[-1] if why is None else None,
    }  # fmt: skip
    if why is not None and held:
        found["status"] = "aborted"
    found["ids"] = contents.identities(row["request"], unit, prompt)
    return found
