"""The statistics of a trace, as a model to draw a shareable workload from.

Kept: how many turns sessions have; lengths of first prompts, answers and growth, gaps and their kinds, all by
class of session (by number of turns, then tokens); how often and how far contexts are cut; prefixes that many
sessions share, and how many; rate and burstiness of starts. Each number is over at least GROUP sessions:
samples are known by the means of such groups only, and what fewer sessions have falls away. Ids, hashes,
texts, names, times of day and single values never enter the model.

Not kept: the order of turns of a session, links between lengths beyond the class, prefixes of few sessions,
daily cycles, sub-agents as such. This is grouping and no differential privacy: who knows all other sessions
of a group knows the last one's part of its mean.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numba import njit
from numpy.typing import NDArray

from agentctl.analyzers.columns import floats, numbered
from agentctl.analyzers.counted import REACHED_AN_ENGINE
from agentctl.analyzers.prefill import shared_in_session
from agentctl.errors import InputError
from agentctl.schema import GAP_KINDS
from agentctl.synth.model import Gap, Model, Prefix, SessionClass, Table, shared_tokens
from agentctl.trace import Trace

I64 = NDArray[np.int64]
F64 = NDArray[np.float64]
Mask = NDArray[np.bool_]

GROUP = 5  # sessions behind every number: the usual least group of statistical offices is 3 to 5
MIN_SESSIONS = 50  # ten groups
MAX_CLASSES, CLASS_SESSIONS = 8, 5 * GROUP
MAX_GROUPS = 64  # of a table: more would not be seen in a distribution
MAX_SAMPLE = 20_000  # values of a table; more are thinned evenly by rank
MAX_SCV = 25.0  # beyond it starts come in a handful of bursts, which this model cannot say

COLUMNS = [
    *("session_id", "arrival_s", "gap_s", "gap_kind", "prompt_tokens", "output_tokens"),
    *("tip_node", "status"),
]


class Turns(NamedTuple):
    """One value per request, session by session in order of arrival; NaN: unknown."""

    session: I64  # numbered by first arrival
    is_first: Mask
    prompt: I64
    output: F64
    step: F64  # s since the arrival before it in the session
    gap: F64  # s
    kind: NDArray[np.str_]  # schema.GAP_KINDS, "" unknown
    held: I64  # tokens that the session's own earlier prompts had
    longest: I64  # the session's longest prompt before this one
    answer: F64  # output tokens of that one
    is_cut: Mask  # a later turn that does not extend that one
    shared: I64  # tokens of the session's shared prefix
    size: I64  # of the whole session: its turns
    gain: I64  # of the whole session: tokens of its longest prompt less those of its first


def statistics_of(trace: Trace) -> Model:
    """The model of a trace. Raises InputError when it has fewer than MIN_SESSIONS sessions."""
    rows = trace.requests(COLUMNS)
    rows = rows.filter(
        pl.col("status").cast(pl.String).is_in(REACHED_AN_ENGINE) & (pl.col("prompt_tokens") > 0)
    )
    n_sessions = rows["session_id"].n_unique()
    if n_sessions < MIN_SESSIONS:
        raise InputError(
            f"has {n_sessions} sessions with prompt lengths: among so few, single ones can be recognised",
            place=trace.name,
            expected=f"at least {MIN_SESSIONS} sessions",
            hint="take a longer log; agentctl export --anonymize shares a trace as it is, without names",
        )
    number = numbered(rows["session_id"])
    starts = rows["arrival_s"].to_numpy()[np.unique(number, return_index=True)[1]]
    is_synthesised = trace.meta["time"]["origin"] == "synthesised"
    prefixes, prefix_of = _prefixes(trace, rows, number)
    turns = _turns(trace, rows, number, shared_tokens(prefixes, trace.block_tokens)[prefix_of])
    prompts = table(turns.prompt, turns.session)
    assert prompts, "there are MIN_SESSIONS sessions"
    return Model(
        name="statistics of a trace",
        block_tokens=trace.block_tokens,
        classes=_classes(turns),
        prefixes=prefixes,
        longest_prompt=int(prompts.means[-1]),
        sessions=n_sessions,
        sessions_per_min=trace.meta["time"]["session_rate_per_min"] or _rate_per_min(starts),
        start_scv=1.0 if is_synthesised else _scv(starts),
        hash_scope=_scope(trace),
        min_sessions=GROUP,
    )


def table(values: NDArray[Any], session: I64) -> Table | None:
    """The distribution of a sample by means over at least GROUP sessions; None when it has fewer.

    Groups are cut from the sorted values as soon as they are large enough; the rest joins the last one.
    """
    known = np.flatnonzero(~np.isnan(np.asarray(values, np.float64)))
    order = known[np.lexsort((session[known], values[known]))]
    if order.size > MAX_SAMPLE:
        order = order[np.linspace(0, order.size - 1, MAX_SAMPLE).astype(np.int64)]
    value, owner = np.asarray(values[order], np.float64), session[order].tolist()
    least = max(GROUP, -(-len(owner) // MAX_GROUPS))
    ends: list[int] = []
    begin, owners = 0, set[int]()
    for place, one in enumerate(owner, 1):
        owners.add(one)
        if place - begin >= least and len(owners) >= GROUP:
            ends.append(place)
            begin, owners = place, set()
    if not ends:
        return None
    ends[-1] = len(owner)
    starts = np.array([0, *ends[:-1]])
    sizes = np.diff([0, *ends])
    return Table(np.add.reduceat(value, starts) / sizes, np.cumsum(sizes) / len(owner))


def _turns(trace: Trace, rows: pl.DataFrame, number: I64, shared: I64) -> Turns:
    order = np.argsort(number, kind="stable")
    session = number[order]
    is_first = np.diff(session, prepend=-1) != 0
    begin = np.flatnonzero(is_first)
    prompt = rows["prompt_tokens"].to_numpy()
    arrival = rows["arrival_s"].to_numpy()[order]
    held = np.full(prompt.size, -1)  # unknown
    if trace.block_tokens and rows["tip_node"].count():
        tip = rows["tip_node"].fill_null(0).to_numpy()
        held = np.minimum(shared_in_session(trace.tree, tip, number) * trace.block_tokens, prompt)
        held = np.where(rows["tip_node"].is_null().to_numpy(), -1, held)
    prompt, output, held = prompt[order], floats(rows["output_tokens"])[order], held[order]
    longest, answer = _longest_before(is_first, prompt, output)
    held = np.where(held < 0, np.where(prompt > longest, longest, 0), held)
    # The last block of the longest prompt may differ where its end merges with the answer.
    block_tokens = trace.block_tokens or 1
    is_cut = ~is_first & (held < (longest // block_tokens - 1) * block_tokens)
    return Turns(
        session=session,
        is_first=is_first,
        prompt=prompt,
        output=output,
        step=np.where(is_first, np.nan, np.diff(arrival, prepend=arrival[:1])),
        gap=floats(rows["gap_s"])[order],
        kind=rows["gap_kind"].cast(pl.String).fill_null("").to_numpy().astype(np.str_)[order],
        held=held,
        longest=longest,
        answer=answer,
        is_cut=is_cut,
        shared=shared[session],
        size=np.bincount(session)[session],
        gain=(np.maximum.reduceat(prompt, begin) - prompt[begin])[session],
    )


@njit(cache=True, nogil=True)
def _longest_before(is_first, prompt, output):
    longest, answer = np.zeros(prompt.size, np.int64), np.zeros(prompt.size)
    at = 0
    for row in range(prompt.size):
        if is_first[row]:
            at = row
            continue
        longest[row], answer[row] = prompt[at], output[at]
        if prompt[row] >= prompt[at]:
            at = row
    return longest, answer


def _classes(turns: Turns) -> tuple[SessionClass, ...]:
    """Sessions in order of their number of turns, then of their tokens, in parts of equal size."""
    n_turns = np.bincount(turns.session)
    ordered = np.lexsort((np.bincount(turns.session, turns.prompt), n_turns))
    n_classes = min(MAX_CLASSES, ordered.size // CLASS_SESSIONS)
    number = np.empty(ordered.size, np.int64)
    number[ordered] = np.arange(ordered.size) * n_classes // ordered.size
    of = number[turns.session]
    everybody = _class_of(turns, 1.0, None)
    return tuple(
        _class_of(
            Turns._make(column[of == each] for column in turns), float((number == each).mean()), everybody
        )
        for each in range(n_classes)
    )


def _class_of(turns: Turns, share: float, instead: SessionClass | None) -> SessionClass:
    """The class of these sessions; a table that too few of them can fill is taken from `instead`."""

    def of(name: str, values: NDArray[Any], rows: Mask) -> Table | None:
        found = table(values[rows], turns.session[rows])
        return found if found or instead is None else getattr(instead, name)

    every, later = np.ones(turns.session.size, np.bool_), ~turns.is_first
    own = np.maximum(turns.prompt - turns.shared, 1).astype(np.float64)
    sizes = np.bincount(np.unique(turns.session, return_inverse=True)[1])
    append = later & ~turns.is_cut
    few = np.unique(turns.session[turns.is_cut]).size < GROUP
    cut = turns.is_cut & (not few)
    n_turns, first = table(sizes, np.arange(sizes.size)), of("first_tokens", own, turns.is_first)
    assert n_turns and first, "every class has CLASS_SESSIONS sessions"
    cut_tables = (
        of("kept_share", turns.held / np.maximum(turns.longest, 1), cut),
        of("cut_tokens", (turns.prompt - turns.held).astype(np.float64), cut),
    )
    growth = turns.prompt - turns.longest - np.nan_to_num(turns.answer)
    known_gap = later & ~np.isnan(turns.gap) & (turns.kind != "overlap")
    return SessionClass(
        share=share,
        turns=n_turns,
        first_tokens=first,
        output_tokens=of("output_tokens", turns.output, every),
        growth_tokens=of("growth_tokens", growth, append),
        service_s=of("service_s", np.maximum(turns.step - turns.gap, 0.0), known_gap),
        gaps=_gaps(turns, later) or (instead.gaps if instead else ()),
        cut_share=float(cut.sum() / max(later.sum(), 1)) if all(cut_tables) else 0.0,
        kept_share=cut_tables[0],
        cut_tokens=cut_tables[1],
        gain_tokens=of("gain_tokens", turns.gain, turns.is_first & (turns.size > 1)),
    )


def _gaps(turns: Turns, later: Mask) -> tuple[Gap, ...]:
    """Kinds of gaps with at least GROUP sessions; the others are told by their step alone."""
    kind = np.where(np.isnan(turns.gap), "", turns.kind)
    found = []
    for name in (*GAP_KINDS, ""):
        rows = later & (kind == name)
        values = np.minimum(turns.gap, turns.step) if name not in ("", "overlap") else turns.step
        seconds = table(values[rows], turns.session[rows])
        if seconds:
            found.append(Gap(name or None, float(rows.sum()), seconds))
    total = sum(gap.share for gap in found)
    return tuple(gap._replace(share=gap.share / total) for gap in found)


def _prefixes(trace: Trace, rows: pl.DataFrame, number: I64) -> tuple[tuple[Prefix, ...], I64]:
    """Beginnings of first prompts that at least GROUP sessions have, and the one of each session (-1: none).

    Fewer sessions that part at one place are counted on the way that most of the others went on.
    """
    n_sessions = int(number.max()) + 1
    nothing: tuple[tuple[Prefix, ...], I64] = ((), np.full(n_sessions, -1))
    if not trace.block_tokens or _scope(trace) == "session":
        return nothing
    first = np.unique(number, return_index=True)[1]
    tip = rows["tip_node"].fill_null(0).to_numpy().astype(np.int64)[first]
    parent = trace.tree.parent.astype(np.int64)
    end, ends_at = _shared_ends(parent, tip, GROUP)
    nodes = np.flatnonzero(ends_at)
    nodes = nodes[nodes > 0]  # in order of numbers: parents come first
    if not nodes.size:
        return nothing
    place = np.full(parent.size, -1)
    place[nodes] = np.arange(nodes.size)
    above = _nearest_above(parent, place)
    depth = trace.tree.depth.astype(np.int64)
    below = np.where(above[nodes] >= 0, depth[nodes[above[nodes]]], 0)
    shares = ends_at[nodes] / n_sessions
    prefixes = [
        Prefix(int(above[node]), int(depth[node] - lower), float(share))
        for node, lower, share in zip(nodes, below, shares, strict=True)
    ]
    none = 1 - float(shares.sum())
    if none * n_sessions > 0.5:  # sessions that share nothing
        prefixes.append(Prefix(-1, 0, none))
    return tuple(prefixes), place[end]


@njit(cache=True, nogil=True)
def _shared_ends(parent, tip, least):
    """The node where what each session shares ends (0: none), and how many end at each node."""
    passing = np.zeros(parent.size, np.int64)
    for node in tip:
        passing[node] += 1
    for node in range(parent.size - 1, 0, -1):  # numbers fall towards the root
        passing[parent[node]] += passing[node]
    busiest = np.zeros(parent.size, np.int64)  # the shared child that most sessions have; 0: none
    for node in range(1, parent.size):
        child = busiest[parent[node]]
        if passing[node] >= least and (child == 0 or passing[node] > passing[child]):
            busiest[parent[node]] = node
    end = tip.copy()
    ends_at = np.zeros(parent.size, np.int64)
    for i in range(tip.size):
        while end[i] > 0 and passing[end[i]] < least:
            end[i] = parent[end[i]]
        ends_at[end[i]] += 1
    moved = np.arange(parent.size)
    for node in range(parent.size):
        if 0 < ends_at[node] < least and busiest[node] > 0:
            ends_at[busiest[node]] += ends_at[node]
            ends_at[node] = 0
            moved[node] = busiest[node]
    for i in range(tip.size):
        while moved[end[i]] != end[i]:
            end[i] = moved[end[i]]
    return end, ends_at


@njit(cache=True, nogil=True)
def _nearest_above(parent, place):
    """For every node the place of its nearest ancestor that has one, -1."""
    above = np.full(parent.size, -1, np.int64)
    for node in range(1, parent.size):
        up = parent[node]
        above[node] = place[up] if place[up] >= 0 else above[up]
    return above


def _scope(trace: Trace) -> str:
    return "session" if (trace.meta["hash"] or {}).get("scope") == "session" else "global"


def _rate_per_min(starts: F64) -> float:
    lasts = float(starts.max() - starts.min())
    return 60 * (starts.size - 1) / lasts if lasts > 0 else 60.0 * starts.size


def _scv(starts: F64) -> float:
    """Squared coefficient of variation of the time between starts."""
    between = np.diff(np.sort(starts))
    mean = between.mean()
    return float(min(between.var() / mean**2, MAX_SCV)) if mean > 0 else MAX_SCV
