"""From a trace dataset to a workload: which requests are simulated, and who waits for whom.

Simulated are requests with status ok, and aborted and timed-out ones with the output tokens they got. Errors,
rejections and answers of a proxy's cache never held an engine; they are counted and left out, and what came
after them comes after what they came after.

A workload is compiled once for a dataset and replay mode, and then read from the store.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa

from agentctl.distinct import distinct
from agentctl.errors import InputError, UsageError
from agentctl.trace import Trace
from agentctl.workload import store
from agentctl.workload.arrays import REPLAYS, LazyTree, Requests, Workload, first_children
from agentctl.workload.waits import codes, find_releases, past_skipped, read_log

SIMULATED = ("ok", "aborted", "timeout")
COLUMNS = [
    "request_id", "session_id", "agent_path", "turn_index", "parent_request_id", "after_request_id", "gap_s",
    "gap_kind", "arrival_s", "e2e_s", "end_s", "prompt_tokens", "output_tokens", "status", "tip_node",
"priority", ]  # fmt: skip
CODE = [str(Path(__file__).with_name(name)) for name in ("compile.py", "waits.py", "arrays.py")]
MOST_TOKENS = 1 << 30  # of a prompt or an output: the simulator counts in 32 bits
WORTH_STORING = 2000  # requests; fewer are compiled as fast as they are read


def compile_workload(trace: Trace, replay: str | None = None) -> Workload:
    """The workload of a dataset in one replay mode.

    replay  timestamps: as logged; causal: as logged, but not before what the log shows as ended has ended;
            thinktime: the logged gap after it; closed-loop: the same, and sessions start when others end.
            Default: thinktime where the log knows gaps, else timestamps

    Raises InputError when token counts are missing or nothing can be simulated, UsageError for another
    replay.
    """
    if replay not in (None, *REPLAYS):
        raise UsageError(f"replay is {replay!r}", expected=" or ".join(REPLAYS))
    stored = trace.n_requests >= WORTH_STORING
    code = store.code_of(*CODE)
    key: store.Key = {"kind": "requests", "trace": trace.digest, "replay": replay, "code": code}
    entry = store.load(key) if stored else None
    if entry is None:
        entry = _compile(trace, replay)
        if stored:
            store.save(key, *entry)
    facts, arrays = entry
    requests = Requests(*(arrays[name] for name in Requests._fields))
    return Workload(
        requests=requests,
        tree=LazyTree(trace),
        block_tokens=trace.block_tokens,
        request_ids=_names(arrays, "request_id"),
        session_ids=_names(arrays, "session_id"),
        replay=facts["replay"],
        counts=facts["counts"],
        trace_name=trace.name,
        trace_digest=trace.digest,
        starts_synthesised=trace.meta.get("time", {}).get("origin") == "synthesised",
        as_logged=requests,
    )


def _compile(trace: Trace, replay: str | None) -> store.Entry:
    rows = trace.requests(COLUMNS)
    is_simulated = rows["status"].cast(pl.String).is_in(SIMULATED)
    kept = rows.filter(is_simulated)
    if replay is None:
        replay = "thinktime" if kept["after_request_id"].is_not_null().any() else "timestamps"
    _check_tokens(kept, str(trace.path))
    log = read_log(rows, is_simulated.to_numpy())
    number = np.where(log.simulated, np.cumsum(log.simulated) - 1, -1)  # of a row among the simulated
    above = past_skipped(log.parent, log.simulated)
    parent = np.where(above < 0, -1, number[above])[log.simulated].astype(np.int32)
    releases = find_releases(log, above, replay)
    n = kept.height
    links = distinct(number[releases.waits] * n + number[releases.for_row])
    session, session_ids = codes(kept["session_id"])
    requests = Requests(
        arrival=log.arrival[log.simulated],
        prompt_tokens=kept["prompt_tokens"].to_numpy().astype(np.int64),
        output_tokens=np.maximum(kept["output_tokens"].to_numpy().astype(np.int64), 1),
        session=session.astype(np.int32),
        turn=kept["turn_index"].to_numpy().astype(np.int32),
        parent=parent,
        release=releases.kind[log.simulated],
        gap=releases.gap[log.simulated],
        deps_start=np.searchsorted(links, np.arange(n + 1) * n),
        deps=(links % n).astype(np.int32),
        tip=kept["tip_node"].fill_null(0).to_numpy().astype(np.uint32),
        confirmed_child=first_children(parent),
        priority=kept["priority"].fill_null(0).to_numpy().astype(np.int32),
    )
    facts = {"replay": replay, "counts": _counts(rows, kept, releases.n_fallback)}
    request_ids = pa.array(kept["request_id"].to_arrow())
    ids = {**_bytes("request_id", request_ids), **_bytes("session_id", session_ids)}
    return store.Entry(facts, {**requests._asdict(), **ids})


def _bytes(name: str, ids: pa.Array) -> dict[str, np.ndarray]:
    """Names as an array of bytes and one of the places where each begins."""
    plain = ids.cast(pa.large_string())
    _, offsets, data = plain.buffers()
    starts = np.frombuffer(offsets, np.int64)[plain.offset : plain.offset + len(plain) + 1]
    text = np.frombuffer(data or b"", np.uint8)
    return {f"{name}_starts": starts - starts[0], f"{name}_bytes": text[starts[0] : starts[-1]]}


def _names(arrays: dict[str, np.ndarray], name: str) -> list[str]:
    starts, text = arrays[f"{name}_starts"], arrays[f"{name}_bytes"]
    return pa.LargeStringArray.from_buffers(
        starts.size - 1, pa.py_buffer(starts), pa.py_buffer(text)
    ).to_pylist()


def _check_tokens(kept: pl.DataFrame, place: str) -> None:
    if kept.is_empty():
        raise InputError("no request can be simulated", place=place, expected="requests with status ok")
    for column in ("prompt_tokens", "output_tokens"):
        missing = kept[column].null_count()
        if missing:
            raise InputError(
                f"{missing:,} of {kept.height:,} requests have no {column}",
                place=place,
                expected="token counts for every request that is simulated",
                hint=f"name the field that holds them: agentctl ingest --map {column}=FIELD",
            )
        most = kept[column].max()
        if isinstance(most, int) and most > MOST_TOKENS:
            raise InputError(
                f"a request has {most:,} {column}", place=place, expected=f"at most {MOST_TOKENS:,}"
            )
    if (kept["prompt_tokens"] < 1).any():
        raise InputError("a request has an empty prompt", place=place, expected="at least one token")


def _counts(rows: pl.DataFrame, kept: pl.DataFrame, n_fallback: int) -> dict[str, int]:
    """What was left out by reason, and what was assumed by name; zeros are left out."""
    left_out = rows.filter(~pl.col("status").cast(pl.String).is_in(SIMULATED))["status"].cast(pl.String)
    counts = {f"skipped_{status}": int((left_out == status).sum()) for status in sorted(set(left_out))}
    counts["cut_short"] = int((kept["status"].cast(pl.String) != "ok").sum())  # with the output they got
    counts["output_0_as_1"] = int((kept["output_tokens"] < 1).sum())
    counts["causal_fallback"] = n_fallback
    return {name: n for name, n in counts.items() if n}
