"""One file to a spool: typed columns on disk, block chains in a trie. Memory does not grow with the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import InputError
from agentctl.formats._columns import take
from agentctl.formats._names import shared_id
from agentctl.formats.base import Batch, Reading, ReadOptions, choose_reader
from agentctl.ingest.blocks import BlockSizes, fits_block
from agentctl.ingest.clocks import Steps
from agentctl.ingest.events import Events
from agentctl.ingest.hidden import hide_names
from agentctl.ingest.ids import Ids
from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Source
from agentctl.ingest.spool import Spool
from agentctl.ingest.texts import Texts
from agentctl.ingest.trie import UNKNOWN_TIP, Trie, salt_ids


@dataclass
class FileReport:
    """What one file gave; `spool` holds its rows."""

    name: str
    sha256: str
    n_bytes: int
    format: str
    spool: Path
    time_origin: str
    tz_assumed: str | None
    hash_scope: str
    hash_kind: str
    n_lines: int
    n_blank_lines: int
    n_header_lines: int
    n_record_lines: int
    n_quarantined_lines: int
    n_records: int  # good, bad and dropped together
    n_rows: int
    quarantine: Quarantine
    dropped: dict[str, int]
    sizes: BlockSizes
    has_ids: bool
    resolution_s: float = 0.0
    warnings: list[str] = field(default_factory=list)
    has_texts: bool = False
    # of trees of its own, in the common ones, by the column that refers to them
    node_numbers: dict[str, NDArray[np.uint32]] | None = None
    year_assumed: int | None = None
    n_other_lines: int = 0
    n_events: int = 0  # in `events`
    events: Path | None = None


def read_file(
    path: str,
    format_name: str | None,
    options: ReadOptions,
    trie: Trie,
    spool_path: Path,
    texts: Texts | None = None,
) -> FileReport:
    """Read one input with its reader; rows to `spool_path`, block ids into `trie`, prompts into `texts`."""
    texts = texts or Texts(options.hashing)
    source = Source(path)
    reader = choose_reader(source, format_name, options)
    events = Events(spool_path.with_suffix(".events"), options.hashing)
    reading = Reading(source, Quarantine(source.name), options, events=events, prefixes=texts.prefixes)
    spool, sizes, has_ids, has_texts = Spool(spool_path), BlockSizes(), False, False
    n_record_lines, steps = 0, Steps()
    for batch in reader.read(reading):
        if options.join and "join_id" in batch.columns:
            batch.columns["join_id"] = [shared_id(name) for name in batch.columns["join_id"]]
        batch = hide_names(batch, options.hashing)
        batch, extra = _place_chains(batch, reading, sizes, trie)
        n_record_lines += np.unique(batch.lines).size
        batch, extra = _hash_prompts(batch, extra, texts)
        has_ids = has_ids or batch.ids is not None
        has_texts = has_texts or batch.prompts is not None
        if batch.lines.size:
            spool.append(batch, extra)
            if reading.time_origin != "session":
                steps.see(batch.columns)
    spool.close()
    events.close()
    sha256, n_bytes = source.finish()
    name = f"file-{sha256[:8]}" if options.hashing.names else source.name
    n_record_lines += reading.n_dropped_lines + reading.n_continuation_lines
    other_lines = n_record_lines + reading.n_blank_lines + reading.n_header_lines + reading.n_other_lines
    report = FileReport(
        name=name,
        sha256=sha256,
        n_bytes=n_bytes,
        format=reader.NAME,
        spool=spool_path,
        time_origin=reading.time_origin,
        tz_assumed=reading.tz_assumed,
        hash_scope=reading.hash_scope,
        hash_kind=options.hashing.level if has_texts and not has_ids else reading.hash_kind,
        n_lines=source.n_lines,
        n_blank_lines=reading.n_blank_lines,
        n_header_lines=reading.n_header_lines,
        n_record_lines=0 if source.is_parquet else n_record_lines,
        n_quarantined_lines=0 if source.is_parquet else source.n_lines - other_lines,
        n_records=spool.n_rows + reading.quarantine.count + sum(reading.dropped.values()),
        n_rows=spool.n_rows,
        quarantine=reading.quarantine,
        dropped=reading.dropped,
        sizes=sizes,
        has_ids=has_ids,
        has_texts=has_texts,
        resolution_s=reading.resolution_s,
        warnings=[
            text.replace(source.name, name)
            for text in (*source.warnings, *reading.warnings, *steps.warnings(source.name))
        ],
        year_assumed=reading.year_assumed,
        n_other_lines=reading.n_other_lines,
        n_events=events.n,
        events=events.path if events.n else None,
    )
    _check_conservation(
        report, reading.n_records, getattr(reader, "ONE_RECORD_A_LINE", True) and not source.is_parquet
    )
    return report


def _place_chains(
    batch: Batch, reading: Reading, sizes: BlockSizes, trie: Trie
) -> tuple[Batch, dict[str, NDArray[Any]]]:
    """Insert the chains; a row whose list does not fit the known block size is set aside."""
    if batch.ids is None:
        return batch, {}
    prompt = batch.columns["prompt_tokens"]
    n_ids = np.diff(batch.ids.starts)
    assert isinstance(prompt, np.ndarray)
    block_tokens: Any = batch.columns.get("block_tokens", reading.options.block_tokens)
    if block_tokens is None:
        sizes.see(prompt, n_ids, batch.lines, reading.source.name)
    else:
        fits = fits_block(prompt, n_ids, block_tokens)
        for line in batch.lines[~fits]:
            reading.reject(None, int(line), "block_count")
        reading.n_records -= int(np.count_nonzero(~fits))
        batch = _take(batch, fits)
        n_ids = n_ids[fits]
    assert batch.ids is not None
    if reading.hash_scope == "session":
        salt_ids(batch.ids.values, batch.ids.starts, session_salts(batch.columns["session_id"]))
    tips = trie.insert(batch.ids).astype(np.int64)
    tips[tips == UNKNOWN_TIP] = -1
    n_ids = np.where(tips < 0, -1, n_ids)
    return batch, {"tip_node": tips, "n_blocks": n_ids}


def _hash_prompts(
    batch: Batch, extra: dict[str, NDArray[Any]], texts: Texts
) -> tuple[Batch, dict[str, NDArray[Any]]]:
    """Insert the prompts; what the reader counted itself (messages, tools) wins."""
    if batch.prompts is None:
        return batch, extra
    placed = texts.add(batch.prompts)._asdict()
    if (placed["cache_group"] < 0).all():
        del placed["cache_group"]
    return batch, placed | extra


def session_salts(session_ids: Any) -> NDArray[np.uint64]:
    """A number per session name (never 0), the same on every machine."""
    import hashlib

    known: dict[str, int] = {}
    for name in session_ids:
        if name not in known:
            digest = hashlib.blake2b(str(name).encode(), digest_size=8).digest()
            known[name] = int.from_bytes(digest, "little") | 1
    return np.array([known[name] for name in session_ids], dtype=np.uint64)


def _take(batch: Batch, keep: NDArray[np.bool_]) -> Batch:
    if keep.all():
        return batch
    columns = {name: take(values, keep) for name, values in batch.columns.items()}
    ids: Ids | None = batch.ids.take(keep) if batch.ids else None
    prompts = list(compress(batch.prompts, keep)) if batch.prompts else None
    return Batch(batch.lines[keep], columns, ids, prompts)


def _check_conservation(report: FileReport, n_good: int, one_record_a_line: bool) -> None:
    """Every line and every record is accounted for; a difference is a fault of a reader."""
    bad = report.quarantine.count
    assert report.n_rows == n_good, f"{report.format}: {report.n_rows} rows from {n_good} good records"
    assert 0 <= report.n_quarantined_lines <= bad, f"{report.format}: lines do not add up"
    assert not one_record_a_line or report.n_quarantined_lines == bad, f"{report.format}: lines do not add up"
    if report.n_records == report.n_events == 0:
        raise InputError(
            "holds no record", place=report.name, expected=f"at least one {report.format} record"
        )
