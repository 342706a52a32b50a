"""More, less, or other traffic of the same kind: whole sessions are taken, repeated and moved.

A session moves as one piece: gaps between its turns are never compressed. A session that appears twice is
another user with the same kind of work: blocks that only this session used get a fresh identity, blocks
shared with others stay shared.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.errors import UsageError
from agentctl.trace import PrefixTree
from agentctl.workload.arrays import LazyTree, Requests, Workload, first_children

F64 = NDArray[np.float64]
I64 = NDArray[np.int64]

JITTER_S = 60.0  # near-simultaneous clones start within this of the original
VARIANTS = ("shift", "jitter", "compress")


def scale_load(workload: Workload, factor: float, seed: int = 0, variant: str = "shift") -> Workload:
    """The workload at `factor` times its rate of session starts, sessions whole and gaps as they are.

    shift     the same span with more sessions or fewer: below 1 they are thinned by a hash of their id, above
              cloned. All starts of one round of clones move in a circle by 25-75 % of the span (bursts
              average out: optimistic)
    jitter    the same, but a clone starts within 60 s of its original (pessimistic)
    compress  the same sessions in a span shorter or longer by the factor (bursts get shorter: optimistic)

    Synthesised starts of clones are drawn anew. A larger factor only adds sessions. Raises UsageError.
    """
    if not 0 < factor < np.inf:
        raise UsageError(f"load factor is {factor:g}", expected="a number above 0")
    if variant not in VARIANTS:
        raise UsageError(f"load variant is {variant!r}", expected=" or ".join(VARIANTS))
    if factor == 1:
        return workload
    if variant == "compress":
        return _compress_starts(workload, factor)
    starts = workload.session_starts()
    chosen, moved = [], []
    for copy in range(int(np.ceil(factor))):
        share = uniform_of(workload.session_ids, seed, f"copy {copy}")
        sessions = np.flatnonzero(share < factor - copy)
        chosen.append(sessions)
        clones = copy > 0
        moved.append(_clone_starts(workload, sessions, copy, seed, variant) if clones else starts[sessions])
    return take_sessions(workload, np.concatenate(chosen), np.concatenate(moved))


def resample(workload: Workload, seed: int) -> Workload:
    """Another day like this one: time blocks are drawn with replacement, then sessions inside each.

    A block is span/16 long, within 60-600 s; a session belongs to the block of its start and keeps its offset
    in it (design, section 5; statistics: covers 95-96 % at nominal 95 %).
    """
    starts = workload.session_starts()
    first, span = float(starts.min()), float(np.ptp(starts))
    length = block_length_s(span)
    block_of = ((starts - first) // length).astype(np.int64)
    n_blocks = int(block_of.max()) + 1
    by_block = np.argsort(block_of, kind="stable")
    edges = np.searchsorted(block_of[by_block], np.arange(n_blocks + 1))
    random = np.random.Generator(np.random.PCG64(seed))
    chosen, moved = [], []
    for slot, block in enumerate(random.integers(0, n_blocks, n_blocks).tolist()):
        members = by_block[edges[block] : edges[block + 1]]
        drawn = members[random.integers(0, members.size, members.size)] if members.size else members
        chosen.append(drawn)
        moved.append(starts[drawn] + (slot - block) * length)
    sessions, new_starts = np.concatenate(chosen), np.concatenate(moved)
    if not sessions.size:  # only empty blocks were drawn
        return resample(workload, seed + 1_000_003)
    return take_sessions(workload, sessions, new_starts)


def block_length_s(span_s: float) -> float:
    """Length of the time blocks that are resampled together."""
    return min(600.0, max(60.0, span_s / 16))


def take_sessions(workload: Workload, sessions: I64, starts: F64) -> Workload:
    """A workload of the given sessions, each moved to its start (s); a repeated one gets its own blocks."""
    old = workload.requests
    copy = _occurrence(sessions)
    by_session = np.argsort(old.session, kind="stable")  # requests of a session in order of arrival
    edges = np.searchsorted(old.session[by_session], np.arange(workload.n_sessions + 1))
    sizes = np.diff(edges)[sessions]
    taken = np.repeat(np.arange(sessions.size), sizes)  # which taken session every new request belongs to
    source = by_session[_ranges(edges[sessions], sizes)]
    arrival = old.arrival[source] + (starts - workload.session_starts()[sessions])[taken]
    order = np.lexsort((source, copy[taken], arrival))
    source, taken, arrival = source[order], taken[order], arrival[order]

    place = np.empty(order.size, dtype=np.int64)  # new number, in the order before sorting
    place[order] = np.arange(order.size)
    within = np.empty(old.session.size, dtype=np.int64)  # position of an old request in its session
    within[by_session] = _ranges(np.zeros(workload.n_sessions, dtype=np.int64), np.diff(edges))
    base = np.cumsum(sizes) - sizes

    def renumbered(numbers: NDArray[np.int32], owner: I64) -> NDArray[np.int32]:
        """New numbers of old requests, each taken with the session `owner`; -1 stays."""
        known = place[(base[owner] + within[numbers]).clip(0, max(order.size - 1, 0))]
        return np.where(numbers >= 0, known, -1).astype(np.int32)

    n_deps = np.diff(old.deps_start)[source]
    deps = old.deps[_ranges(old.deps_start[source], n_deps)]
    parent = renumbered(old.parent[source], taken)
    tree, tip = _with_own_blocks(workload, sessions, copy, source, taken)
    numbers, first_taken = np.unique(taken, return_index=True)
    in_order = numbers[np.argsort(first_taken)]  # sessions by first arrival
    session = np.empty(sessions.size, dtype=np.int32)
    session[in_order] = np.arange(in_order.size)
    requests = Requests(
        arrival=arrival,
        prompt_tokens=old.prompt_tokens[source],
        output_tokens=old.output_tokens[source],
        session=session[taken],
        turn=old.turn[source],
        parent=parent,
        release=old.release[source],
        gap=old.gap[source],
        deps_start=np.concatenate([[0], np.cumsum(n_deps)]).astype(np.int64),
        deps=renumbered(deps, np.repeat(taken, n_deps)),
        tip=tip,
        confirmed_child=first_children(parent),
        priority=old.priority[source],
    )

    def named(ids: list[str], numbers: I64, copies: I64) -> list[str]:
        return [
            f"{ids[n]}~{c}" if c else ids[n] for n, c in zip(numbers.tolist(), copies.tolist(), strict=True)
        ]

    return replace(
        workload,
        requests=requests,
        as_logged=None,
        fleet=workload.fleet.take(source) if workload.fleet else None,
        tree=tree,
        request_ids=named(workload.request_ids, source, copy[taken]),
        session_ids=named(workload.session_ids, sessions[in_order], copy[in_order]),
    )


def _compress_starts(workload: Workload, factor: float) -> Workload:
    starts = workload.session_starts()
    moved = starts.min() + (starts - starts.min()) / factor
    return take_sessions(workload, np.arange(workload.n_sessions), moved)


def _clone_starts(workload: Workload, sessions: I64, copy: int, seed: int, variant: str) -> F64:
    starts = workload.session_starts()
    first, span = float(starts.min()), float(np.ptp(starts))
    at_random = uniform_of(workload.session_ids, seed, f"start {copy}")[sessions]
    if workload.starts_synthesised:
        return first + at_random * span
    if variant == "jitter":
        return starts[sessions] + (2 * at_random - 1) * JITTER_S
    shift = (0.25 + 0.5 * uniform_of([""], seed, f"shift {copy}")[0]) * span
    return first + (starts[sessions] - first + shift) % span if span > 0 else starts[sessions]


def uniform_of(names: list[str], seed: int, purpose: str) -> F64:
    """A number in [0, 1) for each name, from its hash: the same session, the same number."""
    prefix = f"{seed}/{purpose}/".encode()
    digests = [hashlib.blake2b(prefix + name.encode(), digest_size=8).digest() for name in names]
    bits = np.frombuffer(b"".join(digests), dtype="<u8") >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def _occurrence(values: I64) -> I64:
    """How often each value has occurred before."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.searchsorted(ordered, ordered)
    count = np.empty(values.size, dtype=np.int64)
    count[order] = np.arange(values.size) - first
    return count


def _ranges(starts: I64, sizes: I64) -> I64:
    """start, start + 1, ... of each size, one after the other."""
    offsets = np.cumsum(sizes) - sizes
    return np.arange(int(sizes.sum())) + np.repeat(starts - offsets, sizes)


def _with_own_blocks(
    workload: Workload, sessions: I64, copy: I64, source: I64, taken: I64
) -> tuple[PrefixTree | LazyTree, NDArray[np.uint32]]:
    """The tree with fresh nodes for repeated sessions, and the tips of the new requests."""
    tree, old = workload.tree, workload.requests
    tip = old.tip[source]
    repeated = np.flatnonzero(copy > 0)
    if not repeated.size or tree.parent.size == 1:
        return tree, tip
    owner = _only_session(tree.parent, old.tip, old.session)
    by_owner = np.argsort(owner, kind="stable")
    edges = np.searchsorted(owner[by_owner], np.arange(workload.n_sessions + 1))
    sizes = np.diff(edges)[sessions[repeated]]
    nodes = by_owner[_ranges(edges[sessions[repeated]], sizes)]  # ascending inside each session
    n = tree.parent.size
    new_base = np.zeros(sessions.size, dtype=np.int64)
    new_base[repeated] = n + np.cumsum(sizes) - sizes
    rank = np.empty(n, dtype=np.int64)  # of a node among those of its owner
    rank[by_owner] = np.arange(n) - edges[np.maximum(owner[by_owner], 0)]

    def fresh(numbers: I64, taken_session: I64) -> I64:
        """Numbers of the copies, where the session owns the node; others stay."""
        own = (owner[numbers] == sessions[taken_session]) & (copy[taken_session] > 0)
        return np.where(own, new_base[taken_session] + rank[numbers], numbers)

    of_session = np.repeat(repeated, sizes)
    above = fresh(tree.parent[nodes].astype(np.int64), of_session)
    salted = PrefixTree(
        parent=np.concatenate([tree.parent, above.astype(np.uint32)]),
        depth=np.concatenate([tree.depth, tree.depth[nodes]]),
        hash=np.concatenate([tree.hash, np.arange(nodes.size, dtype=np.uint64)]),
        first_row=np.concatenate([tree.first_row, tree.first_row[nodes]]),
    )
    return salted, fresh(tip.astype(np.int64), taken).astype(np.uint32)


@njit(cache=True, nogil=True)
def _only_session(parent, tip, session):
    """The only session whose chains hold each node, i64[m]; -1: none or several."""
    owner = np.full(parent.size, -2, np.int64)  # -2: no session yet
    for r in range(tip.size):
        node = tip[r]
        if owner[node] == -2:
            owner[node] = session[r]
        elif owner[node] != session[r]:
            owner[node] = -1
    for node in range(parent.size - 1, 0, -1):
        above = parent[node]
        if owner[above] == -2:
            owner[above] = owner[node]
        elif owner[node] != -2 and owner[above] != owner[node]:
            owner[above] = -1
    owner[0] = -1
    return np.maximum(owner, -1)
