"""What a validation says, for the terminal and the HTML report."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentctl.analyzers.distribution import cdf_curve
from agentctl.analyzers.words import count, percent
from agentctl.coverage import coverage, section_of
from agentctl.present import Curve, Figure, Section, Table, Value
from agentctl.simulate import assumptions
from agentctl.validate import words
from agentctl.validate.back_test import BackTest, Compared
from agentctl.validate.intervals import Estimate

MOST_POINTS = 1500
SHOWN = ("ttft_s", "e2e_s", "tpot_s", "queue_s")
GAUGE = {"kv_usage": "KV in use", "running": "running requests", "waiting": "waiting requests"}


def sections_of(test: BackTest, document: dict[str, Any]) -> tuple[Section, ...]:
    found = test.compared
    if found is None or test.error is None:
        return (Section("verdict", "Verdict", words.statement(test)),)
    return (
        _verdict(test, found),
        _requests(found),
        _loads(found),
        *([_state(found)] if found.gauges else []),
        *_coverage(found),
        _assumed(found),
    )


def _verdict(test: BackTest, found: Compared) -> Section:
    rows: list[tuple[Value, ...]] = []
    for name in SHOWN:
        one = found.errors[name]
        for part in ("mean", "p50", "p90", "p95", "p99"):
            if not one.n or (name == "queue_s" and part == "p50"):
                continue
            error = one.error[part]
            logged, simulated = getattr(one.logged, part), getattr(one.simulated, part)
            rows.append((f"{words.LATENCY[name]} {part}", logged, simulated, *error))
    head = (
        ("", ""), ("logged", "s"), ("simulated", "s"), ("error", "ratio"), ("low", "ratio"),
        ("high", "ratio"),
    )  # fmt: skip
    tables = [Table(head, tuple(rows))]  # type: ignore[arg-type]
    if found.hits is not None:
        hits = found.hits
        row = ("hit ratio", hits.n, hits.logged, hits.simulated, *hits.gap)
        columns = (
            ("", ""), ("requests", "count"), ("logged", "ratio"), ("simulated", "ratio"), ("gap", "ratio"),
            ("low", "ratio"), ("high", "ratio"),
        )  # fmt: skip
        tables.append(Table(columns, (row,)))  # type: ignore[arg-type]
    return Section(
        "verdict", "Verdict", words.statement(test), tables=tuple(tables), warnings=words.warnings(test)
    )


def _requests(found: Compared) -> Section:
    """Request by request: what errors add up to, and what averages out."""
    rows: list[tuple[Value, ...]] = []
    for name in SHOWN:
        one = found.errors[name]
        if one.n:
            rows.append((words.LATENCY[name], one.n, *one.bias, *one.mape, one.median_ape, one.gap_s.value))
    head = (
        ("time", ""), ("requests", "count"), ("bias", "ratio"), ("low", "ratio"), ("high", "ratio"),
        ("MAPE", "ratio"), ("low", "ratio"), ("high", "ratio"), ("median", "ratio"), ("mean gap", "s"),
    )  # fmt: skip
    main = found.errors["e2e_s"] if found.errors["e2e_s"].n else found.errors["ttft_s"]
    what = "end-to-end times" if found.errors["e2e_s"].n else "TTFTs"
    assert main.mape.value is not None and main.median_ape is not None
    sentence = (
        f"Request by request, {what} err by {percent(main.mape.value)} on average (median "
        f"{percent(main.median_ape)}), of which {_signed(main.bias)} is bias: an error of all alike."
    )
    figures = tuple(
        figure
        for name, label in (("ttft_s", "TTFT"), ("e2e_s", "end-to-end time"))
        if found.errors[name].n
        for figure in (_cdf(found, name, label), _scatter(found, name, label))
    )
    return Section(
        "requests", "Request by request", sentence, tables=(Table(head, tuple(rows)),), figures=figures  # type: ignore[arg-type]
    )  # fmt: skip


def _signed(value: Estimate) -> str:
    return f"{100 * (value.value or 0.0):+.1f} %"


def _loads(found: Compared) -> Section:
    rows: list[tuple[Value, ...]] = []
    for one in found.bins:
        ttft, e2e = one.errors["ttft_s"], one.errors["e2e_s"]
        load = f"{one.least:,}" if one.least == one.most else f"{one.least:,} to {one.most:,}"
        rows.append(
            (
                load, one.requests, ttft.logged.p50, ttft.simulated.p50, ttft.bias.value, ttft.mape.value,
                e2e.bias.value, e2e.mape.value, one.hits.gap.value if one.hits else None,
            )
        )  # fmt: skip
    head = (
        ("requests on the engine", ""), ("requests", "count"), ("TTFT p50 logged", "s"),
        ("TTFT p50 simulated", "s"),
        ("TTFT bias", "ratio"), ("TTFT MAPE", "ratio"), ("end-to-end bias", "ratio"),
        ("end-to-end MAPE", "ratio"), ("hit gap", "ratio"),
    )  # fmt: skip
    sentence = (
        "By the number of requests that were on the engine when one arrived, itself included: an error that "
        "grows with the load is one of capacity, an error that is alike everywhere one of speed."
    )
    return Section("load", "By load", sentence, tables=(Table(head, tuple(rows)),))  # type: ignore[arg-type]


def _state(found: Compared) -> Section:
    rows = tuple(
        (GAUGE[name], g.n, _plain(name, g.logged), _plain(name, g.simulated), _plain(name, g.mean_gap))
        for name, g in found.gauges.items()
    )
    head = (("engines say", ""), ("times", "count"), ("logged", ""), ("simulated", ""), ("mean gap", ""))
    sentence = (
        "What the log's engines said of themselves, against the simulated ones at the same instants (means)."
    )
    return Section("state", "Queue and KV in use", sentence, tables=(Table(head, rows),))  # type: ignore[arg-type]


def _coverage(found: Compared) -> tuple[Section, ...]:
    """None where the profile does not say what it was calibrated on."""
    covered = coverage(found.outcome, found.cluster.pools[0].profile.fit)
    return (section_of(covered),) if covered else ()


def _plain(name: str, value: float) -> str:
    return percent(value) if name == "kv_usage" else f"{value:.1f}"


def _cdf(found: Compared, name: str, label: str) -> Figure:
    known = found.pairs.known(name)
    return Figure(
        name=f"validate-{name.removesuffix('_s')}",
        question=f"Is {label} distributed as in the log?",
        x_label=f"{label} (s)",
        y_label="share of requests",
        curves=(
            cdf_curve("logged", found.pairs.logged[name][known]),
            cdf_curve("simulated", found.pairs.simulated[name][known]),
        ),
        conclusion="Curves on top of each other: percentiles can be trusted. A simulated curve that lies to "
        "the right is too pessimistic; one that only parts at the top misses what happens under load.",
        x_log=True,
        y_unit="ratio",
    )


def _scatter(found: Compared, name: str, label: str) -> Figure:
    known = np.flatnonzero(found.pairs.known(name))
    drawn = known[:: max(1, -(-known.size // MOST_POINTS))]
    x, y = found.pairs.logged[name][drawn], found.pairs.simulated[name][drawn]
    ends = (float(min(x.min(), y.min())), float(max(x.max(), y.max())))
    return Figure(
        name=f"validate-{name.removesuffix('_s')}-pairs",
        question=f"Which requests have another {label} than in the log?",
        x_label=f"logged {label} (s)",
        y_label=f"simulated {label} (s)",
        curves=(
            Curve("requests", tuple(map(float, x)), tuple(map(float, y)), "points"),
            Curve("equal", ends, ends),
        ),
        conclusion="A cloud along the line is noise; one beside it a bias; a second cloud is a kind of "
        f"request that is simulated wrongly. At most {MOST_POINTS:,} are drawn.",
    )


def _assumed(found: Compared) -> Section:
    workload, blocks = found.outcome.workload, found.blocks
    if found.policy is not None:
        router = f"{found.policy} placed the requests"
    elif found.engines:
        router = f"requests are placed on the {count(len(found.engines), 'engine')} that the log names"
    else:
        router = "one engine served every request"
    told = [*assumptions(workload, found.cluster, router)]
    if len(blocks.drawn):
        told.append(
            f"intervals: {len(blocks.drawn):,} draws of {blocks.n} blocks of {blocks.length_s:.3g} s, whole"
        )
    told.append(
        "a logged time that is missing is compared with nothing; percentiles are of the same requests"
    )
    return Section(
        "assumptions",
        "What was assumed",
        "The comparison holds under these assumptions.",
        assumptions=tuple(told),
    )
