"""From spooled rows to the final table: order, duplicates, sessions, turns, and the numbered prefix tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from agentctl.errors import InputError, UsageError
from agentctl.ingest.blocks import BlockSizes
from agentctl.ingest.clocks import early_quotes
from agentctl.ingest.duplicates import count_equal, drop_duplicates
from agentctl.ingest.grouping import Grouping, group
from agentctl.ingest.growth import shrinking_prompts
from agentctl.ingest.hashing import DEFAULT_BLOCK_TOKENS
from agentctl.ingest.join import Joined, counted_twice, join_files
from agentctl.ingest.options import IngestOptions
from agentctl.ingest.placing import numbered_hashes
from agentctl.ingest.read import FileReport
from agentctl.ingest.rows import Rows
from agentctl.ingest.text_blocks import blocks_of_texts
from agentctl.ingest.texts import Texts
from agentctl.ingest.trie import UNKNOWN_TIP, NumberedTree, Trie, count_conflicts, number_by_first_use
from agentctl.ingest.turn_indicator import compare_turns
from agentctl.ingest.turns import TOOL, USER, Log, Turns, order_turns, stop_kind
from agentctl.ingest.write import Names
from agentctl.schema import GAP_KINDS, ORIGINS, STATUSES

_NS = 1_000_000_000


@dataclass
class Assembled:
    """Everything that is written; `derived` holds columns in sorted order (see write_requests)."""

    rows: Rows
    names: Names
    tree: NumberedTree
    derived: dict[str, Any]
    block_tokens: int | None
    time_origin_ns: int | None
    sessions: dict[str, Any]
    chain_conflicts: int
    dropped: dict[str, int]
    warnings: list[str]
    joined: Joined | None = None


def assemble(reports: list[FileReport], trie: Trie, texts: Texts, options: IngestOptions) -> Assembled:
    """Sort the rows, drop duplicates, group and order them, number the trees. Clears them.

    trie   block chains of logs that have ids
    texts  chains of messages and of text, of logs that have prompts
    """
    joined = join_files(reports, options.join, options.unmatched == "keep") if options.join else None
    rows = Rows(reports)
    if not len(rows):
        raise InputError(
            "no usable record is left: all were bad or dropped",
            place=", ".join(report.name for report in reports[:3]) + (", ..." if len(reports) > 3 else ""),
            hint="is it the right format? --format NAME decides",
        )
    if rows.time_origin == "session":
        rows.start_sessions(options.session_rate_per_min, options.seed)
    rows.sort()
    dropped, suffix = drop_duplicates(rows, options)
    block_tokens = _block_tokens(rows, options)
    conflicts = count_conflicts(trie.hash)
    trie.drop_table()
    texts.stop()
    warnings: list[str] = []
    messages = number_by_first_use(texts.messages, rows.tips("message_node")) if rows.has_texts else None
    blocks = None
    if rows.has_texts and not rows.has_ids:
        blocks = blocks_of_texts(rows, texts, block_tokens or DEFAULT_BLOCK_TOKENS, warnings)
    tips, n_unknown = _settle_empty_chains(rows, blocks.tips if blocks else rows.tips(), block_tokens)
    tree = number_by_first_use(blocks or trie, tips)
    del tips
    trie.clear()
    texts.clear()
    if texts.options.is_ephemeral and any(report.hash_kind != "engine" for report in reports):
        tree = tree._replace(hash=numbered_hashes(tree.parent.size))
    names = Names(rows, suffix)
    time_origin_ns = int(rows.arrival_ns.min()) if rows.time_origin == "absolute" else None
    arrival, end = _times(rows, time_origin_ns or 0)
    grouping = group(rows, arrival, end, tree, block_tokens, options, messages)
    turns = _turns(rows, grouping, arrival, end, tree, block_tokens)
    grouping.document["turn_indicator"] = _turn_indicator(rows, grouping.message, turns, messages)
    warnings += [*grouping.warnings, *(joined.warnings if joined else counted_twice(rows))]
    resolution = max(report.resolution_s for report in rows.reports)
    lengths = rows.ints("prompt_tokens"), rows.ints("output_tokens")
    warnings += early_quotes(turns, arrival, end, *lengths, resolution)
    warnings += shrinking_prompts(turns.line, turns.turn_index, lengths[0])
    del lengths
    if n_unknown:
        has = "request has" if n_unknown == 1 else "requests have"
        warnings.append(f"{n_unknown:,} {has} no block ids: reuse is unknown there, not 0")
    if n_equal := count_equal(rows, tree.tips):
        say = "record equals" if n_equal == 1 else "records equal"
        warnings.append(
            f"{n_equal:,} {say} an earlier one in arrival, lengths and blocks; without request ids in the "
            "log they may be repeated lines or requests like each other: they are kept"
        )
    derived = _derived(rows, names, grouping, turns, time_origin_ns or 0, end, tree, block_tokens)
    if blocks:
        derived["token_source"] = lambda positions: blocks.token_sources(rows, positions)
    return Assembled(
        rows,
        names,
        tree,
        derived,
        block_tokens,
        time_origin_ns,
        grouping.document,
        conflicts,
        dropped | (joined.dropped if joined else {}),
        warnings,
        joined,
    )


def _times(rows: Rows, origin_ns: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Arrivals and ends in seconds after the origin, NaN unknown.

    Added in whole nanoseconds: a request that arrives at the very instant at which another ends has the same
    float there, and overlaps nothing.
    """
    arrival_ns, e2e_s = rows.arrival_ns - origin_ns, rows.floats("e2e_s")
    end = np.full(len(rows), np.nan)
    known = np.flatnonzero(~np.isnan(e2e_s))
    end[known] = (arrival_ns[known] + np.rint(e2e_s[known] * _NS).astype(np.int64)) / _NS
    return arrival_ns / _NS, end


def _block_tokens(rows: Rows, options: IngestOptions) -> int | None:
    """The one block size of the dataset: as given, as the files say, or as the lengths show."""
    if not rows.has_ids:
        return options.block_tokens or DEFAULT_BLOCK_TOKENS if rows.has_texts else None
    said = np.unique(rows.ints("block_tokens"))
    said = said[said > 0]
    if options.block_tokens:
        if (said != options.block_tokens).any():
            raise UsageError(
                f"is {options.block_tokens}, but the log says that its blocks have {said[-1]} tokens",
                place="--block-tokens",
                hint="leave it out",
            )
        return options.block_tokens
    sizes = BlockSizes()
    for report in rows.reports:
        sizes.merge(report.sizes)
    inferred = sizes.choose()
    found = {*said.tolist(), *([inferred] if inferred else [])}
    if len(found) > 1:
        raise InputError(
            f"the files have blocks of {' and '.join(map(str, sorted(found)))} tokens",
            expected="one block size in a dataset",
            hint="ingest them into separate datasets",
        )
    return found.pop() if found else None


def _settle_empty_chains(
    rows: Rows, tips: NDArray[np.uint32], block_tokens: int | None
) -> tuple[NDArray[np.uint32], int]:
    """Tips in sorted order; an empty list is a chain of no blocks only where no block would be full."""
    prompt = rows.ints("prompt_tokens")
    if block_tokens is not None:
        is_partial_hashed = bool(np.any(rows.ints("n_blocks") * block_tokens > prompt))
        empty = tips == 0
        tips[empty & ((prompt < 0) | (prompt >= block_tokens) | is_partial_hashed)] = UNKNOWN_TIP
        return tips, int(np.count_nonzero(tips == UNKNOWN_TIP))
    tips[:] = UNKNOWN_TIP
    return tips, 0


def _turns(
    rows: Rows,
    grouping: Grouping,
    arrival: NDArray[np.float64],
    end: NDArray[np.float64],
    tree: NumberedTree,
    block_tokens: int | None,
) -> Turns:
    status, status_names = rows.codes("status")
    stop, stop_names = rows.codes("finish_reason")
    log = Log(
        session=grouping.session,
        agent=rows.codes("agent_path")[0],
        arrival=arrival,
        end=end,
        prompt=rows.ints("prompt_tokens"),
        status=_recode(status, [STATUSES.index(name) for name in status_names], unknown=0),
        stop=_stops(_recode(stop, [stop_kind(name) for name in stop_names], unknown=-1), stop, rows),
        tip=tree.tips,
        message=grouping.message,
        named_parent=grouping.named_parent,
        spawn=grouping.spawn,
        think=rows.floats("think_s"),
        named_turn=rows.ints("turn_number", np.int32),
        n_assistant=rows.ints("n_assistant", np.int32),
        resumed=rows.flags("is_resumed"),
    )
    resolution = max(report.resolution_s for report in rows.reports)
    return order_turns(log, tree.parent, tree.depth, block_tokens, resolution)


def _stops(said: NDArray[np.int8], reason: NDArray[np.int32], rows: Rows) -> NDArray[np.int8]:
    """What comes after each answer: its finish reason says it, or, where that says nothing, the calls that it
    holds. Engines that only generate text stop at a tool call as at the end of a turn.
    """
    calls = rows.ints("n_tool_calls_out")
    by_calls = np.where(calls > 0, np.int8(TOOL), np.int8(USER))
    silent = (reason < 0) | (rows.flags("hides_calls") & (said == USER))
    return np.where(silent, np.where(calls >= 0, by_calls, np.int8(-1)), said)


def _turn_indicator(
    rows: Rows, message: NDArray[np.int32], turns: Turns, messages: NumberedTree | None
) -> dict[str, Any] | None:
    return compare_turns(
        turns.line,
        turns.turn_index,
        turns.attempt,
        turns.origin,
        turns.parent_row,
        rows.ints("n_assistant"),
        message,
        None if messages is None else messages.parent,
    )


def _recode(codes: NDArray[np.int32], values: list[int], unknown: int) -> NDArray[np.int8]:
    return np.array([*values, unknown], dtype=np.int8)[codes]


def _derived(
    rows: Rows,
    names: Names,
    grouping: Grouping,
    turns: Turns,
    origin_ns: int,
    end: NDArray[np.float64],
    tree: NumberedTree,
    block_tokens: int | None,
) -> dict[str, Any]:
    """Columns in sorted order; what can be made a row group at a time is made when that is written."""

    def tip(positions: NDArray[np.int64]) -> NDArray[np.int64]:
        tips = tree.tips[positions]
        return np.where(tips == UNKNOWN_TIP, -1, tips.astype(np.int64))

    def of_chain(positions: NDArray[np.int64], values: NDArray[Any] | int) -> pa.Array:
        return _nullable(np.where(tree.tips[positions] == UNKNOWN_TIP, -1, values))

    derived: dict[str, Any] = {
        "request_id": names.requests,
        "source_file": names.files,
        "source_format": names.formats,
        "session_id": lambda positions: grouping.names(names, positions),
        "session_source": lambda positions: grouping.source_names(positions),
        "session_conf": grouping.confidence,
        "parent_request_id": lambda positions: names.requests(turns.parent_row[positions]),
        "after_request_id": lambda positions: names.requests(turns.after_row[positions]),
        "turn_index": turns.turn_index,
        "attempt": turns.attempt,
        "origin": lambda positions: coded(turns.origin[positions], ORIGINS),
        "gap_s": turns.gap,
        "gap_kind": lambda positions: coded(turns.gap_kind[positions], GAP_KINDS),
        "arrival_s": lambda positions: pa.array((rows.arrival_ns[positions] - origin_ns) / _NS),
        "end_s": end,
        "token_source": _with_default(rows, "token_source", "reported"),
        "status": _with_default(rows, "status", "ok"),
        "tip_node": lambda positions: _nullable(tip(positions)),
        "n_blocks": lambda positions: of_chain(positions, tree.depth[np.maximum(tip(positions), 0)]),
    }
    if block_tokens is not None:
        prompt = rows.ints("prompt_tokens")
        derived["block_tokens"] = lambda positions: of_chain(positions, block_tokens)
        derived["tail_tokens"] = lambda positions: of_chain(
            positions, np.where(prompt[positions] < 0, -1, prompt[positions] % block_tokens)
        )
        derived["hash_scope"] = lambda positions: names.of_reports(positions, "hash_scope", tip(positions))
        derived["hash_kind"] = lambda positions: names.of_reports(positions, "hash_kind", tip(positions))
    return derived


def coded(codes: NDArray[Any], values: tuple[str, ...]) -> pa.Array:
    """Strings of small numbers; -1 is null."""
    indices = pa.array(codes.astype(np.int32), mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(values)).cast(pa.string())


def _nullable(values: NDArray[np.int64]) -> pa.Array:
    return pa.array(values, mask=values < 0)


def _with_default(rows: Rows, name: str, default: str) -> Any:
    return lambda positions: pc.fill_null(rows.take(name, positions), default)
