"""A trace dataset: the folder NAME.trace with requests.parquet, prefix_nodes.parquet and dataset.json."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from agentctl.errors import InputError
from agentctl.files import is_text
from agentctl.schema import TRACE_SCHEMA

if TYPE_CHECKING:
    import numpy as np
    import polars as pl
    from numpy.typing import NDArray

REQUESTS_FILE = "requests.parquet"
NODES_FILE = "prefix_nodes.parquet"
EVENTS_FILE = "events.parquet"  # only where the logs had any
META_FILE = "dataset.json"


class PrefixTree(NamedTuple):
    """The block chains of a trace. Index = node number; node 0 is the root (its own parent, depth 0).

    A parent's number is smaller than its children's, and nodes are numbered in the order of first use.
    """

    parent: NDArray[np.uint32]
    depth: NDArray[np.int32]
    hash: NDArray[np.uint64]
    first_row: NDArray[np.int64]


@dataclass(frozen=True)
class Trace:
    """An opened dataset. Rows are sorted by arrival; a request's number is its row."""

    path: Path
    meta: dict[str, Any]  # dataset.json

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(".trace")

    @property
    def block_tokens(self) -> int | None:
        """Tokens per block of the chains; null when the trace has no blocks."""
        return self.meta["block_tokens"]

    @property
    def n_requests(self) -> int:
        return int(self.meta["records"]["rows"])

    def requests(self, columns: list[str] | None = None) -> pl.DataFrame:
        """The request table, or some of its columns (schema.REQUESTS)."""
        import polars as pl

        return pl.read_parquet(self.path / REQUESTS_FILE, columns=columns, glob=False)

    def events(self) -> pl.DataFrame:
        """What engines said of themselves (schema.EVENTS); without rows where the logs had nothing."""
        import polars as pl

        from agentctl.schema import EVENTS

        path = self.path / EVENTS_FILE
        if path.is_file():
            return pl.read_parquet(path, glob=False)
        empty = pl.from_arrow(EVENTS.empty_table())
        assert isinstance(empty, pl.DataFrame)
        return empty

    @cached_property
    def tree(self) -> PrefixTree:
        import numpy as np
        import pyarrow.parquet as pq

        table = pq.read_table(self.path / NODES_FILE)

        def column(name: str, dtype: Any, root: int) -> Any:
            values = np.empty(table.num_rows + 1, dtype=dtype)
            values[0] = root
            values[1:] = table[name].to_numpy()
            return values

        return PrefixTree(
            parent=column("parent_id", np.uint32, 0),
            depth=column("depth", np.int32, 0),
            hash=column("hash", np.uint64, 0),
            first_row=column("first_row", np.int64, -1),
        )

    @cached_property
    def digest(self) -> str:
        """sha256 over the dataset's files: the identity of its content, wherever it lies."""
        total = hashlib.sha256()
        names = (REQUESTS_FILE, NODES_FILE, META_FILE, EVENTS_FILE)
        for name in filter(lambda name: (self.path / name).is_file(), names):
            with (self.path / name).open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        return total.hexdigest()


def open_trace(path: Path) -> Trace:
    """Open NAME.trace; raises InputError when it is not a complete dataset of this version."""
    place = str(path)
    if not is_text(place):  # the libraries that read Parquet take names of valid text only
        raise InputError("the name is not UTF-8", place=place, hint="rename the folder")
    if not path.is_dir():
        fact = "is a file, not a dataset" if path.exists() else "does not exist"
        raise InputError(fact, place=place, expected="a folder made by `agentctl ingest`")
    missing = [name for name in (META_FILE, REQUESTS_FILE, NODES_FILE) if not (path / name).is_file()]
    if missing:
        raise InputError(
            f"has no {missing[0]}",
            place=place,
            expected="a folder made by `agentctl ingest`",
            hint="ingest the logs again: agentctl ingest FILES -o NAME.trace",
        )
    try:
        meta = json.loads((path / META_FILE).read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError("is not JSON", place=str(path / META_FILE), hint="ingest the logs again") from error
    version = meta.get("schema") if isinstance(meta, dict) else None
    if version != TRACE_SCHEMA:
        raise InputError(
            f"has schema {version!r}",
            place=str(path / META_FILE),
            expected=TRACE_SCHEMA,
            hint="ingest the logs again with this version of agentctl",
        )
    return Trace(path, meta)
