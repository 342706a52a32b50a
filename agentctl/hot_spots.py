"""Which sessions and which prefixes load which engine, and when.

Load is prefill that was computed, in tokens and in the GPU time that the batch-time model gives them (as one
chunk, without what a batch costs anyway). All of a request's prefill counts on its engine in the window of
time in which it was first admitted. A window is hot on an engine whose prefill takes longer than the mean of
all engines there; where engines have roles, of all engines of its role.

A prefix is a node of the tree of contents. What lies behind a load are its hierarchical heavy hitters
(Cormode et al., VLDB 2003): from the leaves up, each prefix of two sessions or more that carries a tenth of
it without what longer prefixes already account for.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.words import percent, seconds
from agentctl.cluster import Cluster
from agentctl.estimators.batch_time import chunk_pairs
from agentctl.present import Section, Table, Unit
from agentctl.sim.content import Content, compile_content
from agentctl.sim.make_state import common_block
from agentctl.sim.outcome import Outcome

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Column = tuple[str, Unit]

MOST_WINDOWS = 30
WIDTHS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400)  # s
N_HOT = 5  # windows shown
N_BEHIND = 3  # sessions, and prefixes, shown behind each
HEAVY = 0.1  # share of a load that makes a prefix worth naming


class Prefix(NamedTuple):
    """The first `blocks` blocks of some requests; the last of them is block `length` of `line`."""

    line: int
    length: int
    blocks: int


def hot_spots(outcome: Outcome, cluster: Cluster) -> dict[str, Any]:
    """The document of `hot_spots`: computed prefill by (engine, window), and what is behind the hottest."""
    done = np.flatnonzero(outcome.done)
    tokens, work = outcome.computed_prefill_tokens, prefill_s(outcome, cluster)
    start, width, window = _windows(outcome.scheduled_s[done])
    n_windows = int(window.max(initial=0)) + 1
    cell = outcome.engine[done] * n_windows + window
    shape, n_cells = (outcome.n_engines, n_windows), outcome.n_engines * n_windows
    by_tokens = np.zeros(n_cells, np.int64)
    np.add.at(by_tokens, cell, tokens[done])
    load = np.bincount(cell, work[done], n_cells).astype(np.float64).reshape(shape)
    content = compile_content(outcome.workload, common_block(cluster))
    hot, means = [], _means(load, outcome.role_of_engine)
    for engine, at in _hottest(load, means):
        members = done[cell == engine * n_windows + at]
        mean = float(means[engine, at])
        hot.append({
            "engine": engine, "from_s": start + at * width, "to_s": start + (at + 1) * width,
            "requests": members.size, "computed_prefill_tokens": int(tokens[members].sum()),
            "prefill_s": float(load[engine, at]), "busy_ratio": float(load[engine, at] / width),
            "times_mean": float(load[engine, at] / mean),
            "sessions": _sessions(outcome, members, work),
            "prefixes": _prefixes(outcome, members, work, content, common_block(cluster)),
        })  # fmt: skip
    return {
        "window_s": width,
        "start_s": start,
        "computed_prefill_tokens": by_tokens.reshape(shape).tolist(),
        "prefill_s": load.tolist(),
        "mean_of": "all engines" if outcome.role_of_engine is None else "the engines of its role",
        "hot": hot,
    }


def prefill_s(outcome: Outcome, cluster: Cluster) -> Floats:
    """GPU seconds that each request adds to batches for its prefill; 0 for rejected ones. What is computed
    again after a preemption costs per token what the first pass did."""
    prompt, hit = outcome.workload.requests.prompt_tokens, outcome.found_tokens
    computed, first = outcome.computed_prefill_tokens, np.maximum(prompt - hit, 1)
    pairs = chunk_pairs(first, hit) * (computed / first)  # type: ignore[arg-type]
    pools = [pool.profile.batch_time for pool in cluster.pools for _ in range(pool.engines)]
    prefill, attention, past = (
        np.array([getattr(pool, name) for pool in pools])[outcome.engine]
        for name in ("b_prefill", "b_attention", "b_past")
    )
    work: Floats = np.where(outcome.done, prefill * computed + attention * pairs + past * hit, 0.0)
    return work


def _windows(at: Floats) -> tuple[float, float, Ints]:
    """(start of the first window, width, window of each instant): at most MOST_WINDOWS of a round width."""
    if not at.size:
        return 0.0, float(WIDTHS[0]), np.zeros(0, np.int64)
    low, high = float(at.min()), float(at.max())
    for width in (*WIDTHS, math.ceil((high - low) / (MOST_WINDOWS - 1))):
        start = math.floor(low / width) * width
        if math.floor((high - start) / width) < MOST_WINDOWS:
            break
    return float(start), float(width), ((at - start) // width).astype(np.int64)


def _means(load: Floats, role: Ints | None) -> Floats:
    """For each (engine, window) the mean of the engines that it is compared with."""
    means = np.empty_like(load)
    for one in [None] if role is None else np.unique(role):
        some = slice(None) if one is None else role == one
        means[some] = load[some].mean(axis=0)
    return means


def _hottest(load: Floats, means: Floats) -> list[tuple[int, int]]:
    """(engine, window) with the most above the mean of its engines in that window, that first."""
    excess = load - means
    order = np.lexsort((*np.indices(load.shape).reshape(2, -1), -excess.ravel()))[:N_HOT]
    n_windows = load.shape[1]
    return [(int(i // n_windows), int(i % n_windows)) for i in order if excess.ravel()[i] > 0]


def _sessions(outcome: Outcome, members: Ints, work: Floats) -> list[dict[str, Any]]:
    """The sessions that brought the most, heaviest first."""
    session = outcome.workload.requests.session[members]
    found, place = np.unique(session, return_inverse=True)
    load = np.bincount(place, work[members])
    order = np.lexsort((found, -load))[:N_BEHIND]
    return [
        {
            "session_id": outcome.workload.session_ids[found[i]],
            **_load(outcome, members[place == i], members, work),
        }
        for i in order
    ]


def _load(outcome: Outcome, some: Ints, members: Ints, work: Floats) -> dict[str, Any]:
    """What `some` of the requests of a window brought."""
    total = float(work[members].sum())
    return {
        "requests": int(some.size),
        "computed_prefill_tokens": int(outcome.computed_prefill_tokens[some].sum()),
        "prefill_s": float(work[some].sum()),
        "share": float(work[some].sum()) / total if total else None,
    }


def _prefixes(
    outcome: Outcome, members: Ints, work: Floats, content: Content, block_tokens: int
) -> list[dict[str, Any]]:
    """The prefixes that brought the most, heaviest first. Each is named by the request that had it first."""
    requests = outcome.workload.requests
    n_blocks = requests.prompt_tokens // block_tokens
    request, line, reached = _paths(content, members, n_blocks)
    result = []
    for prefix in heavy_prefixes(content, members, n_blocks, requests.session, work):
        some = np.unique(request[(line == prefix.line) & (reached >= prefix.length)])
        length = prefix.blocks * block_tokens
        lacked = np.maximum(length - outcome.found_tokens[some], 0)
        result.append({
            "request_id": outcome.workload.request_ids[_first_with(content, prefix)],
            "blocks": prefix.blocks, "tokens": length,
            "sessions": int(np.unique(requests.session[some]).size),
            **_load(outcome, some, members, work),
            "computed_prefix_tokens": int(lacked.sum()),  # of the prefix itself
        })  # fmt: skip
    return sorted(result, key=lambda one: (-one["prefill_s"], one["tokens"]))[:N_BEHIND]


def heavy_prefixes(
    content: Content, members: Ints, n_blocks: Ints, session: NDArray[np.int32], work: Floats
) -> list[Prefix]:
    """The hierarchical heavy hitters among the prefixes of these requests, longest first."""
    lengths: dict[int, set[int]] = {}  # of a line, where paths end or leave it
    above: dict[int, tuple[Prefix | None, int]] = {}  # what comes before a line, and how many blocks that is
    load: dict[Prefix, float] = {}
    ends_at: dict[int, Prefix] = {}  # by request
    sessions: dict[Prefix, set[int]] = {}
    request, line_of, reached = _paths(content, members, n_blocks)
    threshold = HEAVY * float(work[members].sum())
    # Where a line carries less than that, so does all behind it: it counts where paths leave for that line.
    may_be = np.bincount(line_of, work[request], content.n_lines)[line_of] >= threshold
    ranges = (values[may_be].tolist() for values in (request, line_of, reached))
    at, last, before = -1, None, 0
    for r, line, length in zip(*ranges, strict=True):
        if r != at:
            at, last, before = r, None, 0
        if line not in above:
            above[line], lengths[line] = (last, before), set()
        lengths[line].add(length)
        before += length
        last = Prefix(line, length, before)
        ends_at[r] = last
    for r, node in ends_at.items():
        load[node] = load.get(node, 0.0) + float(work[r])
        sessions.setdefault(node, set()).add(int(session[r]))
    nodes, parent = [], {}
    for line, ends in lengths.items():
        up, before = above[line]
        for length in sorted(ends):
            node = Prefix(line, length, before + length)
            nodes.append(node)
            parent[node], up = up, node
    heavy = []
    for node in sorted(nodes, key=lambda node: (-node.blocks, node.line)):
        mine, its_sessions, up = load.get(node, 0.0), sessions.get(node, set()), parent[node]
        if mine >= threshold and len(its_sessions) > 1:
            heavy.append(node)
        elif up is not None:
            load[up] = load.get(up, 0.0) + mine
            sessions.setdefault(up, set()).update(its_sessions)
    return heavy


def _paths(content: Content, members: Ints, n_blocks: Ints) -> tuple[Ints, Ints, Ints]:
    """(request, line, length) of the ranges of each member's first `n_blocks` blocks, member by member."""
    count = content.start[members + 1] - content.start[members]
    first = np.cumsum(count) - count  # of each member, among all that follow
    request = np.repeat(members, count)
    at = np.arange(request.size) + np.repeat(content.start[members] - first, count)
    length = content.length[at].astype(np.int64)
    before = np.cumsum(length) - length
    before -= np.repeat(before[np.minimum(first, max(at.size - 1, 0))], count) if at.size else 0
    length = np.minimum(length, n_blocks[request] - before)
    is_in = length > 0
    return request[is_in], content.line[at][is_in].astype(np.int64), length[is_in]


def _first_with(content: Content, prefix: Prefix) -> int:
    """The first request, by logged arrival, that has this prefix in its prompt or output."""
    at = np.argmax((content.line == prefix.line) & (content.length >= prefix.length))
    return int(np.searchsorted(content.start, at, side="right")) - 1


def hot_spots_section(document: dict[str, Any]) -> Section:
    hot = document["hot"]
    sentence = "No engine computed more prefill than another at any time."
    if hot:
        first = hot[0]
        sentence = (
            f"Hottest was engine {first['engine']} from {first['from_s']:,.0f} to "
            f"{first['to_s']:,.0f} s: prefill took {percent(first['busy_ratio'])} of that time, "
            f"{first['times_mean']:.2f} times the mean of {document['mean_of']}."
        )
    place: tuple[Column, ...] = (("engine", ""), ("from", "s"), ("to", "s"))
    load: tuple[Column, ...] = (("requests", "count"), ("computed", "tokens"), ("prefill time", "s"))
    keys = ("requests", "computed_prefill_tokens", "prefill_s")
    tables = (
        Table(
            (*place, *load, ("of the window", "ratio"), ("times the mean", "")),
            tuple(
                (*_place(one), *(one[key] for key in keys), one["busy_ratio"], one["times_mean"])
                for one in hot
            ),
            title=f"Hot windows: most above the mean of {document['mean_of']}",
        ),
        Table(
            (*place, ("session", ""), *load, ("share", "ratio")),
            tuple(
                (*_place(one), some["session_id"], *(some[key] for key in keys), some["share"])
                for one in hot for some in one["sessions"]
            ),
            title="Sessions behind them",
        ),
        Table(
            (("engine", ""), ("from", "s"), ("first seen in request", ""), ("prefix", "tokens"),
             ("sessions", "count"), *load, ("share", "ratio")),
            tuple(
                (one["engine"], one["from_s"], some["request_id"], some["tokens"], some["sessions"],
                 *(some[key] for key in keys), some["share"])
                for one in hot for some in one["prefixes"]
            ),
            title="Prefixes behind them, shared by two sessions or more",
        ),
    )  # fmt: skip
    said = (
        f"hot spots: windows of {seconds(document['window_s'])}; all of a request's prefill counts where and "
        "when it was first admitted, in the batch-time model's GPU time"
    )
    shown = tuple(table for table in tables if table.rows)
    return Section("hot-spots", "Hot spots", sentence, tables=shown, assumptions=(said,) if hot else ())


def _place(one: dict[str, Any]) -> tuple[int, float, float]:
    return one["engine"], one["from_s"], one["to_s"]
