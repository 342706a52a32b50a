"""Rows of one request from several logs become one: which of them gives each column, and where they differ.

Per column an order of the layers decides, and the first that knows a value gives it:

    arrival, e2e, status, model and the rest  from the outside in: what the caller saw
    ttft, queue, prefill, decode              the engine, then outwards
    token counts                              the gateway, the engine, the client, the router
    instance                                  the router, the engine, the gateway, the client
    block chains, links                       whole, from the outermost layer that has them
    session                                   the same, but layers whose ids hardly ever come twice stand
                                              behind: proxies make up an id for each request

Values that differ all the same are counted as conflicts. Times are not compared: layers see different ends
of one request.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from agentctl.ingest.matching import I64, Matches

ROLES = ("client", "gateway", "router", "engine")  # from the outside in

_TIMINGS = ("ttft_s", "queue_s", "prefill_s", "decode_s")
_TOKENS = (
    "prompt_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "cached_external_tokens",
    "reasoning_tokens", "max_tokens",
)  # fmt: skip
_ORDER = {
    **dict.fromkeys(_TIMINGS, ("engine", "gateway", "router", "client")),
    **dict.fromkeys(_TOKENS, ("gateway", "engine", "client", "router")),
    "instance": ("router", "engine", "gateway", "client"),
}
# Columns that only mean something together: of one layer, the first that has any of them.
_SESSION = ("session_id", "session_header", "agent_line", "parent_agent_line", "agent_path")
_BUNDLES = (
    ("tip_node", "n_blocks", "block_tokens", "message_node", "unit_node", "reply_hash"),
    ("finish_reason", "hides_calls"),
    ("link", "parent_link", "previous_link", "spawn_link", "is_response_link"),
    _SESSION,
)  # fmt: skip
_COMPARED = (
    "prompt_tokens", "output_tokens", "cached_tokens", "model", "session_id", "tenant", "status",
    "finish_reason",
)  # fmt: skip
_OWN = ("source_row", "arrival_ns", "join_id")  # of the outermost row, always


class Layer(NamedTuple):
    role: str
    format: str


class Merging:
    """Makes the rows of requests from those of their layers, and counts where these differ."""

    def __init__(
        self, table: pa.Table, layers: list[Layer], session_layers: list[int], matches: Matches
    ) -> None:
        self._table, self._layers, self._session_layers = table, layers, session_layers
        self._rows, self._owner = matches.rows, matches.owner
        self._suffixes = _unique_ids(table, matches)
        self.schema = table.schema
        self.conflicts: Counter[str] = Counter()

    def batch(self, requests: I64) -> pa.RecordBatch:
        rows = self._rows[requests]
        columns: dict[str, pa.Array] = {}
        for bundle in _BUNDLES:
            order = self._session_layers if bundle is _SESSION else list(range(len(self._layers)))
            columns |= self._bundle(rows, [name for name in bundle if name in self.schema.names], order)
        owner = self._owner[requests]
        for name in self.schema.names:
            if name in _OWN:
                columns[name] = self._take(name, owner)
            elif name not in columns:
                columns[name] = self._first(name, rows)
        if "request_id" in columns and self._suffixes:
            suffixes = pa.array([self._suffixes.get(request, "") for request in requests.tolist()])
            columns["request_id"] = pc.binary_join_element_wise(columns["request_id"], suffixes, "")
        for name in _COMPARED:
            if name in columns:
                self.conflicts[name] += int(np.count_nonzero(self._differs(name, rows)))
        return pa.record_batch([columns[name] for name in self.schema.names], schema=self.schema)

    def _order(self, name: str) -> list[int]:
        """Layers by who decides about a column."""
        roles = _ORDER.get(name, ROLES)
        return sorted(range(len(self._layers)), key=lambda k: (roles.index(self._layers[k].role), k))

    def _first(self, name: str, rows: I64) -> pa.Array:
        return pc.coalesce(*(self._take(name, rows[:, layer]) for layer in self._order(name)))

    def _bundle(self, rows: I64, names: list[str], order: list[int]) -> dict[str, pa.Array]:
        """Columns of the first layer in `order` that knows one of them."""
        if not names:
            return {}
        chosen = np.full(len(rows), -1, dtype=np.int64)
        for layer in order:
            known = np.zeros(len(rows), dtype=np.bool_)
            for name in names:
                known |= self._take(name, rows[:, layer]).is_valid().to_numpy(zero_copy_only=False)
            chosen = np.where((chosen < 0) & known, rows[:, layer], chosen)
        return {name: self._take(name, chosen) for name in names}

    def _differs(self, name: str, rows: I64) -> NDArray[np.bool_]:
        """Two layers know the value, and it is not the same."""
        values = [_comparable(name, self._take(name, rows[:, layer])) for layer in range(rows.shape[1])]
        first = pc.coalesce(*values)
        differs = np.zeros(len(rows), dtype=np.bool_)
        for value in values:
            unequal = pc.fill_null(pc.not_equal(value, first), False)
            differs |= unequal.to_numpy(zero_copy_only=False)
        return differs

    def _take(self, name: str, rows: I64) -> pa.Array:
        taken = self._table[name].take(pa.array(rows, mask=rows < 0))
        return taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken


def _comparable(name: str, values: pa.Array) -> pa.Array:
    """Models without the provider or organisation that some logs put before them."""
    return pc.replace_substring_regex(values, "^.*/", "") if name == "model" else values


def _unique_ids(table: pa.Table, matches: Matches) -> dict[int, str]:
    """What to put behind the ids of further attempts (request -> #k); a record that is in a log twice is
    left for --duplicates."""
    if "request_id" not in table.schema.names:
        return {}
    later = np.flatnonzero(matches.attempt > 0)
    again = np.isin(matches.key, matches.key[later]) & (matches.key >= 0)
    requests = np.flatnonzero(again)
    owners = pa.array(matches.owner[requests])
    ids = table["request_id"].take(owners).to_pylist()
    arrivals = table["arrival_ns"].take(owners).to_pylist()
    seen: dict[str, set[int]] = {}
    suffixes: dict[int, str] = {}
    by_attempt = sorted(range(requests.size), key=lambda k: int(matches.attempt[requests[k]]))
    for k in by_attempt:
        if ids[k] is None:
            continue
        times = seen.setdefault(ids[k], set())
        if times and arrivals[k] not in times:
            suffixes[int(requests[k])] = f"#{int(matches.attempt[requests[k]]) + 1}"
        times.add(arrivals[k])
    return suffixes
