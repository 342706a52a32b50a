"""Write a made workload as a trace dataset, and say what it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from agentctl import __version__
from agentctl.errors import UsageError
from agentctl.files import atomic_folder, canonical_json
from agentctl.present import Section
from agentctl.schema import GAP_KINDS, PREFIX_NODES, REQUESTS, TRACE_SCHEMA
from agentctl.synth.draw import Requests, draw
from agentctl.synth.model import Model
from agentctl.synth.plant import Planted, hashes, plant
from agentctl.synth.text import describe
from agentctl.trace import META_FILE, NODES_FILE, REQUESTS_FILE, Trace, open_trace

SYNTH_SCHEMA = "agentctl/synth/1"
SOURCE = "synth"  # in place of a log's format and file
MAX_SESSIONS, MAX_RATE_PER_MIN = 1_000_000, 1_000_000.0


@dataclass(frozen=True)
class SynthReport:
    """The dataset, and what it was made of."""

    trace: Trace
    document: dict[str, Any]
    sections: tuple[Section, ...]


def synthesise(
    model: Model,
    output: Path,
    *,
    sessions: int | None = None,
    sessions_per_min: float | None = None,
    seed: int = 0,
    force: bool = False,
) -> SynthReport:
    """Draw a workload into the dataset folder `output`; the same arguments, the same bytes.

    sessions, sessions_per_min  None: those of the model
    """
    sessions = model.sessions if sessions is None else sessions
    rate = model.sessions_per_min if sessions_per_min is None else sessions_per_min
    check_size(sessions, rate)
    requests, n_later = draw(model, sessions, rate, seed)
    blocks = plant(requests, model.prefixes, model.block_tokens) if model.block_tokens else None
    made = {
        "workload": model.name,
        "sessions": sessions,
        "sessions_per_min": rate,
        "seed": seed,
        "after_the_end": n_later,
        "min_sessions_per_number": model.min_sessions,
        "classes": len(model.classes),
        "shared_prefixes": len(model.prefixes),
    }
    chains = Chains(blocks, model.block_tokens, model.hash_scope)
    trace = write_dataset(output, requests, chains, made, force=force)
    document = {"schema": SYNTH_SCHEMA, "requests": trace.n_requests, "trace_digest": trace.digest, **made}
    return SynthReport(trace, document, describe(document, model))


def check_size(sessions: int, per_min: float) -> None:
    """Raises UsageError for what makes no workload."""
    if not 1 <= sessions <= MAX_SESSIONS:
        raise UsageError(f"is {sessions}", place="--sessions", expected=f"1 to {MAX_SESSIONS}")
    if not 0 < per_min <= MAX_RATE_PER_MIN:
        raise UsageError(f"is {per_min}", place="--rate", expected="session starts per minute, above 0")


class Chains(NamedTuple):
    """The block chains of a workload; block_tokens None: it has none."""

    blocks: Planted | None = None
    block_tokens: int | None = None
    hash_scope: str = "global"


def write_dataset(
    output: Path,
    requests: Requests,
    chains: Chains,
    made: dict[str, Any],
    warnings: Sequence[str] = (),
    force: bool = False,
) -> Trace:
    """Write a drawn workload.

    made      what `dataset.json` says under `synth`; at least sessions_per_min and seed
    warnings  what a reader of the dataset must know
    """
    table = _table(requests, chains)
    with atomic_folder(output, mark=META_FILE, force=force) as folder:
        pq.write_table(table, folder / REQUESTS_FILE, compression="zstd", row_group_size=1 << 14)
        nodes = _nodes(chains.blocks)
        pq.write_table(nodes, folder / NODES_FILE, compression="zstd", row_group_size=1 << 18)
        (folder / META_FILE).write_bytes(canonical_json(_meta(table, chains, made, warnings)))
    return open_trace(output)


def request_ids(n: int) -> NDArray[Any]:
    """r1, r2, ... in order of arrival."""
    return np.array([f"r{row}" for row in range(1, n + 1)], dtype=object)


def _table(requests: Requests, chains: Chains) -> pa.Table:
    n, blocks, block_tokens = requests.turn.size, chains.blocks, chains.block_tokens
    ids = request_ids(n)
    before = ids[requests.before]
    before[requests.before < 0] = None
    # A parent is named where the prompt extends the request before it, whose answer it then holds.
    extends = (requests.base == requests.before) & (requests.base >= 0)
    extends &= requests.held == requests.prompt[requests.base]
    known_gap = ~np.isnan(requests.gap)
    columns: dict[str, Any] = {
        "request_id": ids,
        "source_format": [SOURCE] * n,
        "source_file": [SOURCE] * n,
        "source_row": np.arange(1, n + 1),
        "session_id": [f"s{number}" for number in (requests.session + 1).tolist()],
        "session_source": ["explicit"] * n,
        "session_conf": np.ones(n, np.float32),
        "parent_request_id": pa.array(before, pa.string(), mask=~extends),
        "after_request_id": pa.array(before, pa.string(), mask=~known_gap),
        "turn_index": requests.turn,
        "attempt": np.zeros(n, np.int16),
        "origin": ["new"] * n,
        "arrival_s": requests.arrival,
        "gap_s": pa.array(requests.gap, from_pandas=True),
        "gap_kind": [GAP_KINDS[kind] if kind >= 0 else None for kind in requests.gap_kind.tolist()],
        "prompt_tokens": requests.prompt,
        "output_tokens": requests.output,
        "token_source": ["reported"] * n,
        "status": ["ok"] * n,
    }
    if blocks is not None and block_tokens:
        columns |= {
            "block_tokens": np.full(n, block_tokens),
            "tip_node": blocks.tip,
            "n_blocks": blocks.depth[blocks.tip],
            "tail_tokens": requests.prompt % block_tokens,
            "hash_scope": [chains.hash_scope] * n,
            "hash_kind": ["token"] * n,
        }
    arrays = [
        pa.nulls(n, field.type)
        if columns.get(field.name) is None
        else _array(columns[field.name], field.type)
        for field in REQUESTS
    ]
    return pa.Table.from_arrays(arrays, schema=REQUESTS)


def _array(values: Any, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.array(values, kind.value_type).dictionary_encode()
    return (values if isinstance(values, pa.Array) else pa.array(values)).cast(kind)


def _nodes(blocks: Planted | None) -> pa.Table:
    if blocks is None:
        return PREFIX_NODES.empty_table()
    n = blocks.parent.size
    values: tuple[NDArray[Any], ...] = (
        np.arange(n), blocks.parent, blocks.depth, hashes(n), blocks.first_row,
    )  # fmt: skip
    arrays = [pa.array(each[1:]).cast(field.type) for each, field in zip(values, PREFIX_NODES, strict=True)]
    return pa.Table.from_arrays(arrays, schema=PREFIX_NODES)


def _meta(table: pa.Table, chains: Chains, made: dict[str, Any], warnings: Sequence[str]) -> dict[str, Any]:
    """dataset.json as `ingest` writes it, with `synth` beside."""
    n = table.num_rows
    sizes = np.unique(table["session_id"].to_numpy(), return_counts=True)[1]
    file = {"name": SOURCE, "sha256": "0" * 64, "bytes": 0, "format": SOURCE, "lines": n, "record_lines": n}
    others = ("blank_lines", "header_lines", "other_lines", "quarantined_lines", "events")
    return {
        "schema": TRACE_SCHEMA,
        "agentctl_version": __version__,
        "block_tokens": chains.block_tokens,
        "time_origin_ns": None,
        "time": {
            "origin": "synthesised",
            "tz_assumed": None,
            "year_assumed": None,
            "session_rate_per_min": made["sessions_per_min"],
            "seed": made["seed"],
        },
        "files": [file | dict.fromkeys(others, 0) | {"records": n}],
        "join": None,
        "records": {
            "read": n,
            "rows": n,
            "quarantined": 0,
            "quarantined_by_reason": {},
            "dropped": {},
            "joined": 0,
        },
        "hash": {"kind": "token", "scope": chains.hash_scope} if chains.block_tokens else None,
        "names": {"hashed": False, "salt": None},
        "sessions": {
            "method": "explicit",
            "count": int(sizes.size),
            "multi_turn": int(np.count_nonzero(sizes > 1)),
            "source": {"explicit": n},
            "id_test": {},
            "band": [],
        },
        "coverage": {
            field.name: 1 - column.null_count / n
            for field, column in zip(REQUESTS, table.columns, strict=True)
        },
        "chain_conflicts": 0,
        "warnings": list(warnings),
        "synth": made,
    }
