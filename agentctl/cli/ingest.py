"""`agentctl ingest`: request logs -> a trace dataset."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Annotated, Literal

import typer

from agentctl.cli.options import Address, EngineName, Force, Seed


def ingest(
    ctx: typer.Context,
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILES", help="Log files, plain or compressed; - is standard input."),
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="NAME.trace", help="The dataset to write.")
    ],
    format: Annotated[
        str | None, typer.Option(metavar="F", help="Log format; default: recognised by content.")
    ] = None,
    map: Annotated[
        list[str], typer.Option(metavar="COLUMN=FIELD", help="Field that holds a column (repeatable).")
    ] = [],  # noqa: B006  (typer copies it)
    sessions: Annotated[
        Literal["auto", "explicit", "none"],
        typer.Option(
            metavar="auto|explicit|none",
            help="auto tests the log's ids and derives sessions where they fail.",
        ),
    ] = "auto",
    max_bad: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="Bad records to set aside before giving up.")
    ] = None,
    max_bad_ratio: Annotated[
        float | None, typer.Option(min=0, max=1, metavar="R", help="The same as a share of all records.")
    ] = None,
    quarantine_raw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write the bad lines themselves (private: mode 0600)."),
    ] = None,
    block_tokens: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Tokens per hashed block; default: inferred.")
    ] = None,
    json_document: Annotated[
        bool, typer.Option("--json-document", help="A file is one JSON array or object, not a line each.")
    ] = False,
    session_rate: Annotated[
        float,
        typer.Option(min=0, metavar="R", help="Session starts per minute, for logs without absolute times."),
    ] = 1.0,
    year: Annotated[
        int | None,
        typer.Option(metavar="N", help="Year in which logs without years begin, such as vLLM's text log."),
    ] = None,
    timezone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="Zone of times that name none: Europe/Berlin, +02:00; default UTC."
        ),
    ] = None,
    seed: Seed = 0,
    duplicates: Annotated[
        Literal["drop", "keep"],
        typer.Option(metavar="drop|keep", help="What to do with a request id that occurs twice."),
    ] = "drop",
    salt: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Secret for hashing prompt text, made if absent; default: forgotten at once."
        ),
    ] = None,
    hash_ids: Annotated[
        bool,
        typer.Option(
            "--hash-ids", help="Hash names too: requests, sessions, tenants, engines, files (see --salt)."
        ),
    ] = False,
    blocks: Annotated[
        Literal["auto", "token", "bytes", "message"],
        typer.Option(metavar="auto|token|bytes|message", help="How prompt text is cut into blocks."),
    ] = "auto",
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="tokenizer.json or .tiktoken file: blocks of real tokens."),
    ] = None,
    tools_order: Annotated[
        Literal["first", "after-system"],
        typer.Option(metavar="first|after-system", help="Where the chat template puts tool definitions."),
    ] = "first",
    join: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Id that the logs share (x-request-id): one row a request from all."
        ),
    ] = None,
    unmatched: Annotated[
        Literal["keep", "drop"],
        typer.Option(metavar="keep|drop", help="With --join: requests that only one log has."),
    ] = "keep",
    engine: EngineName = None,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Files read at the same time; default: 1.")
    ] = None,
    address: Address = None,
    force: Force = False,
    formats: Annotated[
        bool, typer.Option("--formats", help="List the formats and what each can carry, and stop.")
    ] = False,
) -> None:
    """Turn request logs into a trace dataset: private, checked, and the same bytes for the same logs.

    No prompt text is kept. Bad records are an error unless --max-bad or --max-bad-ratio allow for them; they
    are then set aside with file, line and reason, and counted.
    """
    if formats:
        _list_formats(ctx)
        return
    from agentctl.cli.inputs import reading_engine
    from agentctl.ingest.build import IngestOptions, ingest
    from agentctl.ingest.options import parse_map

    options = IngestOptions(
        format=format,
        map=parse_map(map),
        sessions=sessions,
        max_bad=max_bad,
        max_bad_ratio=max_bad_ratio,
        quarantine_raw=quarantine_raw,
        block_tokens=block_tokens,
        json_document=json_document,
        session_rate_per_min=session_rate,
        seed=seed,
        year=year,
        timezone=timezone,
        duplicates=duplicates,
        salt=salt,
        hash_ids=hash_ids,
        blocks=blocks,
        tokenizer=tokenizer,
        tools_order=tools_order,
        join=join,
        unmatched=unmatched,
        force=force,
    )
    with closing(reading_engine(engine, workers, address)) as reading, ctx.obj.progress() as progress:
        report = ingest(files, output, options, engine=reading, progress=progress)
    ctx.obj.result(report.document, report.sections)
    ctx.obj.note(f"next: agentctl analyze {output}")


def _list_formats(ctx: typer.Context) -> None:
    from agentctl.formats._describe import document, overview
    from agentctl.formats.base import readers

    known = readers().values()
    ctx.obj.result(document(known), overview(known))
