"""What the study says, in sentences and tables."""

from __future__ import annotations

from agentctl.analyzers.words import count, percent
from agentctl.conserve.study import Row, Study, gain, interval
from agentctl.present import Curve, Figure, Section, Table, Value

COLUMNS = {
    "ttfet_x_p95": "TTFET p95",
    "ttfet_x_gmean": "TTFET gmean",
    "ttfet_above_5": "above 5",
    "tbt_x_p95": "TBT p95",
    "in_flight_max": "in flight",
    "moves_per_session": "KV moves",
    "tokens_per_j": "tokens/J",
}
COUNTED = {
    "waited_p95_s": "waited before, p95",
    "ttfet_x_p95": "TTFET p95",
    "counted_ttfet_x_p95": "with that",
    "ttfet_above_5": "above 5",
    "counted_ttfet_above_5": "with that, above 5",
}
UNITS = {"above_5": "ratio", "_s": "s"}
MAIN = ("conserve", "collocated", "errors-0.1", "disaggregated")


def sections(found: Study) -> tuple[Section, ...]:
    top = max(found.rates)
    return (_verdict(found, top), _clocks(found, top), _rates(found), _assumed(found))


def _verdict(found: Study, rate: float) -> Section:
    p95 = {row.system.name: row for row in found.rows if row.rate == rate}
    said = [f"{p95[name].system.label} {p95[name].mean('ttfet_x_p95'):.3g}" for name in MAIN if name in p95]
    sentence = (
        f"As the paper ran it, fed at {rate:g} sessions/s, the first token of a session's last turn (TTFET) "
        f"comes so many times as late as for the session alone (p95): {', '.join(said)}."
    )
    if "errors-0.1" in p95:
        by_draw = gain(found, rate, "errors-0.1")
        low, high = interval(by_draw)
        between = (
            "" if low is None or high is None else f" (95 % interval {100 * low:.0f} to {100 * high:.0f} %)"
        )
        sentence += f" ConServe's is {100 * by_draw.mean():.0f} % lower than with 10 % errors{between}."
    return Section("verdict", "As the paper ran it", sentence, tables=(_table(found, rate, COLUMNS),))


def _clocks(found: Study, rate: float) -> Section:
    rows = {row.system.name: row for row in found.rows if row.rate == rate}
    said = [
        f"{rows[name].system.label} {rows[name].mean('counted_ttfet_x_p95'):.3g}"
        for name in MAIN
        if name in rows
    ]
    sentence = (
        "The wait for the prefill engine and for room on a decoder is in no latency above. Counted from when "
        f"a session was sent, the same runs give a p95 of {', '.join(said)} times; {_order(rows)}."
    )
    return Section("clocks", "What these clocks leave out", sentence, tables=(_table(found, rate, COUNTED),))


def _order(rows: dict[str, Row]) -> str:
    ours, others = (rows[name].mean("counted_ttfet_x_p95") for name in ("conserve", "collocated"))
    better = "ConServe stays ahead of" if ours < others else "ConServe then comes after"
    return f"{better} collocated engines"


def _rates(found: Study) -> Section:
    low = min(found.rates)
    mean = {row.system.name: row.mean("ttfet_x_gmean") for row in found.rows if row.rate == low}
    apart = max(mean[name] for name in mean if name != "disaggregated") / min(mean.values()) - 1
    sentence = (
        f"At {low:g} a second all but full disaggregation are within {percent(apart)} of each other in the "
        "geometric mean; what sets them apart is a prefill engine that is fed faster than it serves."
    )
    tables = tuple(
        _table(found, rate, COLUMNS, f"At {rate:g} sessions/s") for rate in sorted(found.rates)[:-1]
    )
    return Section(
        "rates", "Below saturation", sentence, tables=tables, figures=(_figure(found),), is_detail=True
    )


def _table(found: Study, rate: float, columns: dict[str, str], title: str = "") -> Table:
    rows: list[tuple[Value, ...]] = [
        (row.system.label, *(row.mean(name) for name in columns)) for row in found.rows if row.rate == rate
    ]
    units = [next((unit for end, unit in UNITS.items() if name.endswith(end)), "") for name in columns]
    head = (("system", ""), *zip(columns.values(), units, strict=True))
    return Table(head, tuple(rows), title)  # type: ignore[arg-type]


def _figure(found: Study) -> Figure:
    names = dict.fromkeys(row.system for row in found.rows)
    rates = tuple(sorted(found.rates))
    curves = tuple(
        Curve(system.label, rates, tuple(found.row(system.name, rate).mean("ttfet_x_p95") for rate in rates))
        for system in names
        if system.name != "disaggregated"
    )
    return Figure(
        "study-conserve-ttfet",
        "At which rate do the systems part?",
        "sessions/s fed",
        "TTFET p95, times alone",
        curves,
        "Lines part where the prefill engine is fed more than it serves (1.63 sessions/s): wrong turns then "
        "wait in its queue, and first turns outside of the clock. Full disaggregation lies far above.",
    )


def _assumed(found: Study) -> Section:
    tokens = found.tokens
    n, turns = tokens.fresh.shape
    left_out = ", ".join(f"{reason}: {many:,}" for reason, many in tokens.left_out.items())
    said = (
        f"{tokens.name}: {count(n, 'session')}, the first {turns} turns of each, no time for tools, outputs "
        f"as long as logged{'; left out: ' + left_out if left_out else ''}",
        f"{count(found.seeds, 'draw')} of arrivals (Poisson), order and wrong turns, the first one the "
        "authors' own; means over draws",
        "one prefill engine and three decoders, or four collocated; Qwen3-0.6B on A40: batch times fitted to "
        "the authors' decode grid (mean error 3.3 %), 25,000 prefill tokens/s, transfers as measured by them",
        "TTFET counts from the start of the first turn's own prefill; a wait before that does not count",
        "a wrong turn waits for all that was sent to the prefill engine before it, and holds up what follows",
        "engines never run out of blocks: what is short is the tokens that clients reserve",
        "watts of an A40 are fitted to the paper's tokens/J, so that ConServe's own figure is no prediction; "
        "tokens are the full context of every turn, cached or not",
    )
    sentence = "The numbers hold under these assumptions."
    return Section("assumptions", "What was assumed", sentence, assumptions=said)
