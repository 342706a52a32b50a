"""What the simulator of clusters says of the same conversations, beside the paper's count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from agentctl.conserve.honest import KV_BYTES, LATENCY_S, S_PER_TOKEN, HonestRow, Told
from agentctl.conserve.study import Study, metric_facts
from agentctl.present import Section, Table, Unit, Value

MAIN = ("conserve", "collocated", "errors-0.1", "ampd", "disaggregated")
COLUMNS: dict[str, tuple[str, Unit]] = {
    "ttfet_x_p95": ("TTFET p95", ""),
    "ttfet_x_gmean": ("TTFET gmean", ""),
    "ttfet_above_5": ("above 5", "ratio"),
    "waited_p95_s": ("waited before, p95", "s"),
    "ttft_later_p95_s": ("later turns' TTFT p95", "s"),
    "tbt_x_p95": ("TBT p95", ""),
    "moves_per_session": ("KV moves", ""),
    "tokens_per_j": ("tokens/J", ""),
}


def honest_sections(paper: Study, rows: Sequence[HonestRow]) -> tuple[Section, ...]:
    top = max(row.rate for row in rows)
    at_top = [row for row in rows if row.rate == top]
    return _verdict(at_top, top), _clocks(paper, at_top, top), *_rates(rows, top), _assumed(paper)


def _verdict(rows: Sequence[HonestRow], rate: float) -> Section:
    by_name = {row.system.name: row for row in rows}
    said = [
        f"{by_name[name].system.label} {by_name[name].mean('ttfet_x_p95'):.3g}"
        for name in MAIN
        if name in by_name
    ]
    sentence = (
        f"In the simulator of clusters, fed at {rate:g} sessions/s and counted from when a session was sent, "
        "the first token of its last turn (TTFET) comes so many times as late as for the session alone "
        f"(p95): {', '.join(said)}."
    )
    return Section("honest", "With every wait counted", sentence, tables=(_table(rows),))


def _clocks(paper: Study, rows: Sequence[HonestRow], rate: float) -> Section:
    """The paper's clock on both, and the whole wait on both: what the clock changes, and what the engines."""
    known = {row.system.name: row for row in paper.rows if row.rate == rate}
    lines: list[tuple[Value, ...]] = []
    for row in rows:
        its = known.get(row.system.name)
        as_counted = its.mean("ttfet_x_p95") if its else None
        with_wait = its.mean("counted_ttfet_x_p95") if its else None
        ours = row.mean("own_clock_ttfet_x_p95"), row.mean("ttfet_x_p95")
        lines.append((row.system.label, as_counted, ours[0], with_wait, ours[1]))
    head: tuple[tuple[str, Unit], ...] = (
        ("TTFET p95", ""), ("paper's clock: paper mode", ""), ("simulator", ""),
        ("from sending: paper mode", ""), ("simulator", ""),
    )  # fmt: skip
    orders = [_order(rows, metric) for metric in ("own_clock_ttfet_x_p95", "ttfet_x_p95")]
    sentence = (
        "Counted from when a session's first prompt begins to be computed, as the paper's clock does, the "
        f"simulator's order is {orders[0]}; counted from when it was sent, {orders[1]}."
    )
    return Section("honest-clocks", "What the clock decides", sentence, tables=(Table(head, tuple(lines)),))


def _order(rows: Sequence[HonestRow], metric: str) -> str:
    main = [row for row in rows if row.system.name in MAIN]
    return ", ".join(row.system.label for row in sorted(main, key=lambda row: row.mean(metric)))


def _rates(rows: Sequence[HonestRow], top: float) -> tuple[Section, ...]:
    rates = sorted({row.rate for row in rows} - {top})
    if not rates:
        return ()
    tables = tuple(
        _table([row for row in rows if row.rate == rate], f"At {rate:g} sessions/s") for rate in rates
    )
    said = []
    for rate in rates:
        p95 = {row.system.name: row.mean("ttfet_x_p95") for row in rows if row.rate == rate}
        said.append(f"at {rate:g} a second {p95['conserve']:.3g} and {p95['collocated']:.3g}")
    sentence = f"TTFET p95 of ConServe and collocated: {', '.join(said)}."
    return (Section("honest-rates", "With every wait counted, below that", sentence, tables=tables),)


def _table(rows: Sequence[HonestRow], title: str = "") -> Table:
    lines: list[tuple[Value, ...]] = [
        (row.system.label, *(row.mean(name) for name in COLUMNS)) for row in rows
    ]
    return Table((("system", ""), *COLUMNS.values()), tuple(lines), title)


def _assumed(paper: Study) -> Section:
    gap, gigabytes = paper.tokens.gap, KV_BYTES / S_PER_TOKEN / 1e9
    gaps = "not known: none" if gap is None else f"{float(gap[:, 1:].mean()):.3g} s on average"
    said = (
        f"times of tools before later turns: {gaps}; turns that the paper cut are not simulated",
        "engines with blocks, chunked prompts, prefix caches and preemption; a prefill engine with 8,192 "
        "tokens a batch; batch times, KV and limits of the paper's machine, for prefill engines as well",
        f"transfers share {gigabytes:.0f} GB/s and take {1000 * LATENCY_S:.2f} ms more each: a line through "
        "the authors' transfer times",
        "a session is sent when it comes, to collocated engines too; who waits for room waits at the router, "
        "and the wait counts",
        "a misplaced turn finds on the prefill engine what its cache still has of the history, and the rest "
        "is computed again: KV does not go back",
    )
    sentence = "Of the simulated clusters."
    return Section("honest-assumptions", "What was assumed of the clusters", sentence, assumptions=said)


def honest_runs(rows: Sequence[HonestRow]) -> list[dict[str, Any]]:
    return [_run(row) for row in rows]


def _run(row: HonestRow) -> dict[str, Any]:
    metrics = {name: metric_facts(name, row.by_seed(name)) for name in Told._fields}
    system = row.system
    return {
        "system": system.name,
        "policy": system.policy,
        "params": system.params,
        "rate_per_s": row.rate,
        "decode_engines": system.decoders,
        "metrics": metrics,
    }
