"""Joining logs with dictionaries: one row at a time, nothing vectorised."""

from collections import defaultdict
from typing import Any, NamedTuple

OUTSIDE_IN = ("client", "gateway", "router", "engine")
DECIDE = {
    "ttft_s": ("engine", "gateway", "router", "client"),
    "prompt_tokens": ("gateway", "engine", "client", "router"),
    "instance": ("router", "engine", "gateway", "client"),
}


class Log(NamedTuple):
    """Rows have the keys join_id, arrival_ns, and whatever columns they know."""

    name: str  # files are ordered by it, as by their digests
    role: str
    format: str
    rows: list[dict[str, Any]]


def join(logs: list[Log], columns: list[str]) -> tuple[list[dict[str, Any]], dict[str, int], dict[str, int]]:
    """(a dictionary a request, requests whose values differ by column, requests of one log alone by log)."""
    logs = sorted(logs)
    layers = sorted({(OUTSIDE_IN.index(log.role), log.format) for log in logs})
    requests: dict[Any, dict[Any, dict[str, Any]]] = defaultdict(dict)
    for layer in layers:
        by_key = defaultdict(list)
        for log in logs:
            for number, row in enumerate(log.rows):
                if (OUTSIDE_IN.index(log.role), log.format) != layer:
                    continue
                key = row["join_id"] if row["join_id"] is not None else (log.name, number)
                by_key[key].append((row["arrival_ns"], log.name, number, row | {"log": log.name}))
        for key, rows in by_key.items():
            for from_end, (*_, row) in enumerate(sorted(rows, key=lambda entry: entry[:3])[::-1]):
                requests[key, from_end][layer] = row

    joined = []
    differ: dict[str, int] = defaultdict(int)
    only_in: dict[str, int] = defaultdict(int)
    for found in requests.values():
        outermost = found[min(found)]
        merged = {"log": outermost["log"], "arrival_ns": outermost["arrival_ns"]}
        for column in columns:
            roles = DECIDE.get(column, OUTSIDE_IN)
            order = sorted(found, key=lambda layer: (roles.index(OUTSIDE_IN[layer[0]]), layer))
            known = [found[layer][column] for layer in order if found[layer].get(column) is not None]
            merged[column] = known[0] if known else None
            differ[column] += len(set(known)) > 1
        joined.append(merged)
        if len(found) == 1:
            only_in[outermost["log"]] += 1
    return joined, {name: n for name, n in differ.items() if n}, dict(only_in)
