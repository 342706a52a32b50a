"""`--hash-ids`: names in a log become keyed hashes right behind the reader, before anything is made of them.

The same name has the same hash in every column, file and, with one `--salt`, dataset: sessions, links between
requests and joined logs are found as before. Whoever has the salt can look a name up; nobody else can test a
guess. Every column of text is hidden but those whose values are of a kind (PLAIN).
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from agentctl.formats.base import TRANSPORT, Batch
from agentctl.ingest.hashing import HashOptions
from agentctl.schema import REQUESTS

PLAIN = {
    *("model", "status", "finish_reason", "token_source", "session_source", "source_format", "origin"),
    *("gap_kind", "hash_scope", "hash_kind"),
}
TEXT = (pa.string(), pa.dictionary(pa.int32(), pa.string()))
HIDDEN = {
    *(name for name, type_ in TRANSPORT.items() if type_ == "string"),
    *(field.name for field in REQUESTS if field.type in TEXT),
} - PLAIN


def hide_names(batch: Batch, hashing: HashOptions) -> Batch:
    """The batch with its names hidden, if they are to be."""
    if not hashing.names:
        return batch
    columns = {
        name: _hidden(values, hashing) if name in HIDDEN else values for name, values in batch.columns.items()
    }
    return batch._replace(columns=columns)


def _hidden(values: Any, hashing: HashOptions) -> list[str | None]:
    names = values.to_pylist() if isinstance(values, pa.Array | pa.ChunkedArray) else list(values)
    known = {name: hashing.name(str(name)) for name in dict.fromkeys(names) if name is not None}
    return [known.get(name) for name in names]
