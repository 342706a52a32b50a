"""Logs to a trace dataset: read every file, put the rows in order, find sessions and turns, write, report."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from agentctl.engines import Engine, Serial, in_order
from agentctl.errors import InputError, UsageError
from agentctl.files import atomic_folder, canonical_json
from agentctl.formats.base import ReadOptions
from agentctl.ingest.assemble import Assembled, assemble
from agentctl.ingest.document import document_of
from agentctl.ingest.events import write_events
from agentctl.ingest.hashing import HashOptions
from agentctl.ingest.options import IngestOptions
from agentctl.ingest.quarantine import Budget, write_places
from agentctl.ingest.raw_lines import check_raw_lines, write_raw_lines
from agentctl.ingest.read import FileReport, read_file
from agentctl.ingest.report import describe
from agentctl.ingest.source import check_readable, safe_name
from agentctl.ingest.texts import Texts
from agentctl.ingest.trie import Trie
from agentctl.ingest.write import write_nodes, write_requests
from agentctl.present import Section
from agentctl.start_up import import_numba_without_scipy
from agentctl.trace import EVENTS_FILE, META_FILE, NODES_FILE, REQUESTS_FILE, Trace, open_trace

__all__ = ["IngestOptions", "IngestReport", "ingest"]

Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class IngestReport:
    """The dataset and what was kept, set aside and dropped on the way."""

    trace: Trace
    document: dict[str, Any]
    sections: tuple[Section, ...]


def ingest(
    files: Sequence[Path | str],
    output: Path,
    options: IngestOptions | None = None,
    *,
    engine: Engine | None = None,
    progress: Progress | None = None,
) -> IngestReport:
    """Turn log files into the dataset folder `output`.

    engine  where files are read, `engine.workers` at a time; default: here, one after the other. Machines of
            a cluster must see files and `output` under the same paths

    The bytes written depend on the files' content and the options alone, not on the order of the files or
    on where they are read. Bad records beyond the budget raise BadRecordsError and leave `output` as it was;
    their places are then in NAME.quarantine.jsonl beside it.
    """
    import_numba_without_scipy()
    options = options or IngestOptions()
    paths = [str(file) for file in files]
    _check_paths(paths)
    if options.quarantine_raw:
        check_raw_lines(options.quarantine_raw, paths, output)
    hashing = options.hash_options(output)
    quarantine_path = output.parent / f"{output.name.removesuffix('.trace')}.quarantine.jsonl"
    with atomic_folder(output, mark=META_FILE, force=options.force) as folder, _returned_memory():
        spool = folder / "spool"
        spool.mkdir()
        reports, trie, texts = _read_all(paths, options, hashing, spool, engine or Serial(), progress)
        _check_twice(reports)
        if options.quarantine_raw:
            bad = [(path, report.quarantine) for path, report in zip(paths, reports, strict=True)]
            write_raw_lines(options.quarantine_raw, bad, options.json_document, force=options.force)
        _check_budget(reports, options, quarantine_path)
        _check_requests(reports)
        if progress:
            progress(0.8, "sessions and turns")
        assembled = assemble(reports, trie, texts, options)
        coverage = write_requests(folder / REQUESTS_FILE, assembled.rows, assembled.names, assembled.derived)
        write_nodes(folder / NODES_FILE, assembled.tree)
        _write_events(folder / EVENTS_FILE, assembled)
        document = document_of(assembled, options, hashing, coverage)
        (folder / META_FILE).write_bytes(canonical_json(document))
        del assembled
        shutil.rmtree(spool)
    if not any(report.quarantine.count for report in reports):
        quarantine_path.unlink(missing_ok=True)
    return IngestReport(open_trace(output), {**document, "schema": "agentctl/ingest/1"}, describe(document))


@contextmanager
def _returned_memory() -> Iterator[None]:
    """Arrow's own pool keeps what it once had, some 20 MB here; malloc gives it to whoever comes next."""
    before = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        yield
    finally:
        pa.set_memory_pool(before)


def _check_paths(paths: list[str]) -> None:
    if not paths:
        raise UsageError("no log file is given", expected="at least one, or - for standard input")
    unpacked = Counter(path.removesuffix(".gz").removesuffix(".zst") for path in paths)
    for path, count in unpacked.items():
        if count > 1:
            raise InputError(
                "is given twice, perhaps plain and compressed",
                place=safe_name(Path(path).name),
                hint="give one of them",
            )
    for path in paths:  # before the first of them is read for an hour
        if path != "-":
            check_readable(path)


def _check_twice(reports: list[FileReport]) -> None:
    by_content: dict[str, str] = {}
    for report in reports:
        if report.sha256 in by_content:
            raise InputError(
                f"has the same content as {by_content[report.sha256]}",
                place=report.name,
                hint="give one of them",
            )
        by_content[report.sha256] = report.name


def _read_all(
    paths: list[str],
    options: IngestOptions,
    hashing: HashOptions,
    spool: Path,
    engine: Engine,
    progress: Progress | None,
) -> tuple[list[FileReport], Trie, Texts]:
    read_options = ReadOptions(
        options.map,
        options.block_tokens,
        options.json_document,
        year=options.year,
        timezone=options.timezone,
        join=options.join,
        hashing=hashing,
    )
    trie, texts = Trie(), Texts(hashing)
    spools = {path: spool.resolve() / f"{k}.arrow" for k, path in enumerate(paths)}
    reports: dict[str, FileReport] = {}

    is_divided = engine.workers > 1 and len(paths) > 1
    for path in paths:
        if not is_divided or path == "-":  # standard input is this process's alone
            if progress:
                progress(0.8 * len(reports) / len(paths), f"reading {len(reports) + 1} of {len(paths)}")
            reports[path] = read_file(path, options.format, read_options, trie, spools[path], texts)
    elsewhere = [path for path in paths if path not in reports]
    read = partial(_read_alone, options.format, read_options)
    jobs = [(str(Path(path).absolute()), spools[path]) for path in elsewhere]
    for path, report in zip(elsewhere, in_order(read, jobs, engine), strict=True):
        nodes = report.spool.with_suffix(".parent.npy"), report.spool.with_suffix(".hash.npy")
        numbers = trie.merge(*(np.load(path, mmap_mode="r") for path in nodes))
        report.node_numbers = {"tip_node": numbers, **texts.merge(report.spool)}
        reports[path] = report
        if progress:
            progress(0.8 * len(reports) / len(paths), f"read {len(reports)} of {len(paths)}")
    return [reports[path] for path in paths], trie, texts


def _read_alone(format_name: str | None, options: ReadOptions, job: tuple[str, Path]) -> FileReport:
    """In a worker: trees of its own, left on disk for the parent to merge."""
    path, spool = job
    trie, texts = Trie(), Texts(options.hashing)
    report = read_file(path, format_name, options, trie, spool, texts)
    texts.save(spool)
    np.save(spool.with_suffix(".parent.npy"), trie.parent, allow_pickle=False)
    np.save(spool.with_suffix(".hash.npy"), trie.hash, allow_pickle=False)
    return report


def _check_requests(reports: list[FileReport]) -> None:
    """A log of gauges alone is no trace; beside a request log it is welcome."""
    if any(report.n_records for report in reports):
        return
    raise InputError(
        "holds gauges of engines and no request" if len(reports) == 1 else "they hold gauges and no request",
        place=" and ".join(sorted(report.name for report in reports)),
        expected="a log of requests",
        hint="give a log of the same engines' requests beside it; the gauges then become its events",
    )


def _write_events(path: Path, assembled: Assembled) -> None:
    """The gauges of all files, where there are any."""
    named = zip(assembled.names.of_files, assembled.rows.reports, strict=True)
    spools = [(name, report.events) for name, report in named if report.events]
    if spools:
        write_events(path, spools, assembled.time_origin_ns or 0)


def _check_budget(reports: list[FileReport], options: IngestOptions, path: Path) -> None:
    ordered = sorted(reports, key=lambda report: report.sha256)
    reasons = sum((report.quarantine.reasons for report in ordered), Counter[str]())
    if not reasons:
        return
    places = [
        place
        for report in ordered  # what fails late in a chunk is found late
        for place in sorted(report.quarantine.places, key=lambda place: place.line)
    ]
    write_places(path, places, reasons)
    n_records = sum(report.n_records for report in ordered)
    Budget(options.max_bad, options.max_bad_ratio).check(places, reasons, n_records, path)
