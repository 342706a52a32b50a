"""What a log reader is, how readers are found, and how a file's format is recognised.

A reader is one file in this folder with:

    NAME                        the name for --format
    TITLE                       one line for people
    CARRIES                     columns of schema.REQUESTS that such a log can give, and "hash_ids" or
                                "prompts" where the block chains come from ids or from text
    LACKS                       one sentence for people: what it cannot say
    recognises(sample) -> bool  does this text look like mine? Readers must not overlap.
    read(reading) -> batches    yields Batch after Batch; bad records go to reading.reject
    ONE_RECORD_A_LINE = False   only where a line may give several records
    MAPPABLE = True             only where operators choose the fields: --map names those of other columns
    ROLE                        where the log is written, for --join: "client" (if it is not said), "gateway",
                                "router" or "engine", from the outside in

Nothing is registered by hand.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import InputError, UnknownFormatError, UsageError
from agentctl.formats._sample import Sample as Sample
from agentctl.formats._sample import document_lines, is_document
from agentctl.ingest.events import Events
from agentctl.ingest.hashing import HashOptions
from agentctl.ingest.ids import Ids
from agentctl.ingest.prefixes import Prefixes
from agentctl.ingest.prompts import Prompt
from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Chunk, Source
from agentctl.toml import suggestion

TimeOrigin = Literal["absolute", "relative", "session"]


class Batch(NamedTuple):
    """Some records of a file, column by column.

    lines    i64[n], where each record stands (line, or record of a Parquet file), from 1
    columns  by name in schema.REQUESTS, or in TRANSPORT below; integers -1, floats NaN, lists None = unknown
    ids      block chains, or None where the format has none
    prompts  what was sent, in formats that log text, to be hashed by ingest (None where a row has none)
    """

    lines: NDArray[np.int64]
    columns: dict[str, NDArray[Any] | list[Any]]
    ids: Ids | None = None
    prompts: list[Prompt | None] | None = None


# Columns that readers hand over beside those of schema.REQUESTS; ingest turns them into the schema's.
TRANSPORT = {
    "arrival_ns": "int64",  # required: since the epoch, the log's start or the session's start (time_origin)
    "think_s": "float64",  # the format's own gap between the previous turn's end and this arrival
    "turn_number": "int32",  # the format's own turn, from 0
    "link": "string",  # the format's own name of this request ...
    "parent_link": "string",  # ... and of the one that it continues
    "previous_link": "string",  # ... the same, where sessions have names of their own (session_id)
    "spawn_link": "string",  # ... and of the one that started this sub-agent
    "agent_line": "string",  # the format's own name of the agent that sent this, main or sub-agent ...
    "parent_agent_line": "string",  # ... and of the one that started it (see ingest/agent_lines.py)
    "is_resumed": "bool",  # the format says that the first prompt already holds a conversation
    "join_id": "string",  # what the logs of one request have in common (x-request-id), for --join
    "hides_calls": "bool",  # its finish_reason "stop" may have come with tool calls, too
    "session_header": "bool",  # session_id came in a header of the request
    "is_response_link": "bool",  # parent_link is a previous_response_id
    "reply_hash": "int64",  # of the node that its answer would be after its prompt, halved (made by ingest)
    "message_node": "int64",  # last message of its prompt in the tree of message chains (made by ingest)
    "unit_node": "int64",  # last piece of its text in the tree of pieces (made by ingest)
}


@dataclass
class ReadOptions:
    """What the user said about the files."""

    column_map: Mapping[str, str] = field(default_factory=dict)  # schema column -> field of the file
    block_tokens: int | None = None
    json_document: bool = False  # the file is one JSON document (array or object), not JSON lines
    year: int | None = None  # in which a log without years begins
    timezone: str | None = None  # of times without a zone, as ingest/zones.py reads it; None: UTC is assumed
    join: str | None = None  # field by which files are joined, where operators choose the fields
    hashing: HashOptions = field(default_factory=HashOptions)


@dataclass
class Reading:
    """One file being read: where readers find the text and leave what they learn about it."""

    source: Source
    quarantine: Quarantine
    options: ReadOptions
    time_origin: TimeOrigin = "relative"
    tz_assumed: str | None = None
    year_assumed: int | None = None
    hash_scope: str = "global"
    hash_kind: str = "engine"
    resolution_s: float = 0.0  # arrivals are rounded down to multiples of this
    n_blank_lines: int = 0
    n_header_lines: int = 0
    n_continuation_lines: int = 0  # further lines of records that span several (quoted CSV cells)
    n_other_lines: int = 0  # of a log that is about more than requests: gauges, health checks, messages
    n_dropped_lines: int = 0
    n_records: int = 0  # good ones
    dropped: dict[str, int] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    events: Events = field(default_factory=Events)  # gauges of engines
    prefixes: Prefixes | None = None  # prompts that were met before

    def chunks(self) -> Iterator[Chunk]:
        """The text of a file of JSON lines; a JSON document is cut into one object a line first."""
        if not self.options.json_document:
            if Sample(self.source.sample).is_document:
                raise is_document(self.source.name)
            yield from self.source.chunks()
            return
        data = document_lines(self.source.document(), self.source.name)
        self.source.n_lines = data.count(b"\n") + 1
        yield Chunk(data, 1, self.source.n_lines, 0)

    def folding(self, key: str) -> Callable[[bytes, int], bytes] | None:
        """For a LineDecoder: cuts what is known out of the lines' first array of messages called `key`.

        Only where the array is handed on as it is, in a Prompt of the same batch.
        """
        return partial(self.prefixes.fold, key=key.encode()) if self.prefixes is not None else None

    def reject(self, chunk: Chunk | None, line: int, reason: str, path: str | None = None) -> None:
        """Set one record aside."""
        offset, length = chunk.locate(line) if chunk and not self.quarantine.is_full else (0, 0)
        self.quarantine.add(line, offset, length, reason, path)

    def drop(self, reason: str, n: int = 1, n_lines: int | None = None) -> None:
        """Count records that are understood and left out on purpose.

        n_lines: lines that held nothing else, where that is not one a record
        """
        self.dropped[reason] = self.dropped.get(reason, 0) + n
        self.n_dropped_lines += n if n_lines is None else n_lines


def readers() -> dict[str, ModuleType]:
    """All readers by name."""
    import agentctl.formats as package

    found = {}
    for module_info in pkgutil.iter_modules(package.__path__):
        if module_info.name.startswith("_") or module_info.name == "base":
            continue
        module = importlib.import_module(f"{package.__name__}.{module_info.name}")
        found[module.NAME] = module
    return dict(sorted(found.items()))


def reader_named(name: str) -> ModuleType:
    known = readers()
    if name not in known:
        raise UsageError(f"no format is called {name!r}", place="--format", hint=suggestion(name, known))
    return known[name]


def choose_reader(source: Source, format_name: str | None, options: ReadOptions) -> ModuleType:
    """The reader that the user names, or the one that recognises the text."""
    if source.sample_is_all and not source.is_parquet and not source.sample.strip():
        raise InputError("is empty", place=source.name, expected="at least one record")
    if format_name is None:
        return recognise(source, options.column_map, options.json_document, bool(options.join))
    reader = reader_named(format_name)
    if options.column_map and format_name != "generic" and not is_mappable(reader):
        raise UsageError(
            f"the fields of {format_name} are known and cannot be mapped",
            place="--map",
            hint="--format generic reads a table by --map alone",
        )
    return reader


def is_mappable(reader: ModuleType) -> bool:
    """Operators choose the fields of this format."""
    return bool(getattr(reader, "MAPPABLE", False))


def recognise(
    source: Source, column_map: Mapping[str, str], json_document: bool = False, is_joined: bool = False
) -> ModuleType:
    """The one reader for this text. Raises UnknownFormatError for none and for several.

    A mapping is for a table whose fields it names; of several files that are joined it is for those whose
    format does not have fixed fields.
    """
    known = readers()
    sample = Sample(source.sample, whole=source.sample_is_all)
    matches = [name for name, reader in known.items() if not source.is_parquet and reader.recognises(sample)]
    if column_map and not (len(matches) == 1 and (is_joined or is_mappable(known[matches[0]]))):
        return known["generic"]
    if len(matches) == 1:
        return known[matches[0]]
    if matches:
        raise UnknownFormatError(
            f"could be {' or '.join(matches)}", place=source.name, hint=f"--format {matches[0]} decides"
        )
    if sample.is_document and not json_document:
        raise is_document(source.name)
    raise UnknownFormatError(
        "is in no format that agentctl recognises",
        place=source.name,
        expected="one of " + ", ".join(known),
        hint="--format NAME decides; --map prompt_tokens=FIELD ... reads any CSV, JSONL or Parquet table",
    )
