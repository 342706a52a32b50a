"""What a simulated run says of latency, of caches and balance, and of its course over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentctl.analyzers.words import count, percent
from agentctl.inside.engines import load_figure
from agentctl.inside.hits import hits_figure
from agentctl.inside.latency import tpot_figure, ttft_figure
from agentctl.inside.look import Look
from agentctl.metrics import Floats, Run, Samples, sessions_in_flight
from agentctl.present import Curve, Fact, Figure, Section, Table, Unit, Value

LATENCIES = {
    "ttft_s": "TTFT", "tpot_s": "TPOT", "itl_max_s": "longest token gap", "e2e_s": "end to end",
    "queue_s": "queue", "ttfet_s": "TTFET", "session_s": "session",
}  # fmt: skip
LOADS = {
    "pending_prefill": "prefill owed", "running": "batch size", "tokens_per_s": "output tokens/s",
    "kv": "KV in use",
}  # fmt: skip
MOST_CURVES = 8  # more engines than this are told apart by nobody
MOST_POINTS = 1000


def latency(document: dict[str, Any], look: Look) -> Section:
    columns = ("mean", "p50", "p90", "p95", "p99")
    rows: list[tuple[Value, ...]] = []
    for key, label in LATENCIES.items():
        found = document["metrics"][key]
        rows.append((label, found["n"], *(found[column] for column in columns)))
    head = (("time", ""), ("values", "count"), *((column, "s") for column in columns))
    sentence = (
        "Latencies of the requests that were served; a session includes its gaps, and its TTFET is the first "
        "token of its last turn."
    )
    return Section(
        "latency",
        "Latency",
        sentence,
        tables=(Table(head, tuple(rows)),),  # type: ignore[arg-type]
        figures=(ttft_figure([look]), tpot_figure([look])) if document["metrics"]["ttft_s"]["n"] else (),
    )


def balance(document: dict[str, Any], look: Look) -> Section:
    metrics = document["metrics"]
    hit, uneven = metrics["hit_ratio"]["value"], metrics["imbalance_prefill"]["value"]
    sentence = "No request was served."
    source = "the engines' caches and KV tiers" if document["tiers"] else "the engines' caches"
    if hit is not None and uneven is not None:
        sentence = (
            f"{percent(hit)} of prompt tokens came from {source}; the busiest engine computed "
            f"{uneven:.2f} times the mean prefill{' of its role' if document['hand_overs'] else ''}."
        )
    facts = tuple(
        Fact(label, metrics[key]["value"], metrics[key]["unit"], meaning)
        for key, label, meaning in (
            ("hit_ratio", "hit ratio", "share of prompt tokens found in a cache when first admitted"),
            ("hit_intra_session_ratio", "of the same session", "content that an earlier turn had"),
            ("hit_inter_session_ratio", "of other sessions only", "shared prompts and contexts"),
            ("session_miss_ratio", "computed again", "an earlier turn had it: evicted, or elsewhere"),
            ("migration_ratio", "turns that changed engine", "of those after a session's first"),
            ("replication", "engines per block of content", "1 is no copy"),
            ("imbalance_prefill", "prefill, busiest over mean", "1 is even"),
            ("imbalance_batch", "batch size, busiest over mean", "1 is even"),
            ("output_tokens_per_s", "output tokens", "all that was served"),
            ("output_tokens_per_s_within_slo", "output tokens within the objectives", "what counts"),
            ("requests_per_s_within_slo", "requests within the objectives", "what counts"),
            ("sessions_per_min", "sessions", "that finished a turn"),
        )
    )
    columns: dict[str, tuple[str, Unit]] = {
        "engine": ("engine", "count"), "requests": ("requests", "count"),
        "decoded_requests": ("decoded", "count"), "sessions": ("sessions", "count"),
        "computed_prefill_tokens": ("computed prefill", "tokens"), "output_tokens": ("output", "tokens"),
        "hit_ratio": ("hit", "ratio"), "preemptions": ("preemptions", "count"),
    }  # fmt: skip
    if document["hand_overs"] is None:
        del columns["decoded_requests"]  # all of the engine's own
    rows = tuple(tuple(engine[key] for key in columns) for engine in document["engines"])
    table = Table(tuple(columns.values()), rows)
    figures = (hits_figure([look]), load_figure([look])) if hit is not None else ()
    return Section("balance", "Hits and balance", sentence, facts, (table,), figures)


def course(document: dict[str, Any], run: Run) -> Section:
    """How the run went over time."""
    metrics, samples = document["metrics"], run.samples
    mean, most = metrics["sessions_in_flight_mean"]["value"], metrics["sessions_in_flight_max"]["value"]
    sentence = "No request was served."
    if mean is not None and most is not None:
        sentence = f"{mean:.1f} sessions were under way on average, {count(most, 'session')} at most."
    rows: list[tuple[Value, ...]] = []
    for load, label in LOADS.items():
        over, cv = metrics[f"imbalance_{load}_over_time"], metrics[f"cv_{load}_over_time"]
        rows.append((label, over["n"], over["mean"], over["p95"], cv["mean"], cv["p95"]))
    head = (
        ("load of engines", ""), ("samples", "count"), ("max/mean, mean", ""), ("max/mean, p95", ""),
        ("CV, mean", ""), ("CV, p95", ""),
    )  # fmt: skip
    figures = () if samples is None or mean is None else (_pending(samples), _in_flight(run))
    return Section("course", "Over time", sentence, tables=(Table(head, tuple(rows)),), figures=figures)  # type: ignore[arg-type]


def _pending(samples: Samples) -> Figure:
    owed = samples.pending_prefill_tokens.astype(np.float64)
    if owed.shape[1] <= MOST_CURVES:
        lines = {f"engine {e}": owed[:, e] for e in range(owed.shape[1])}
    else:
        lines = {"busiest": owed.max(axis=1), "mean": owed.mean(axis=1), "calmest": owed.min(axis=1)}
    return Figure(
        name="simulate-pending",
        question="Is prefill spread over the engines at every time?",
        x_label="time (s)",
        y_label="prefill tokens owed",
        curves=tuple(_curve(name, samples.time_s, values) for name, values in lines.items()),
        conclusion="Lines that rise together are load; one that rises alone is a hot spot, where requests "
        "wait while others have nothing to do. What happens between two samples is not seen.",
    )


def _in_flight(run: Run) -> Figure:
    times, n = sessions_in_flight(run)
    return Figure(
        name="simulate-sessions",
        question="How many sessions are under way?",
        x_label="time (s)",
        y_label="sessions",
        curves=(_curve("sessions", times, n.astype(np.float64)),),
        conclusion="A number that keeps growing while arrivals stay as they are means that the cluster does "
        "not keep up: sessions pile up before latencies tell.",
    )


def _curve(name: str, x: Floats, y: Floats) -> Curve:
    """As steps: a value holds until the next; at most MOST_POINTS of them, evenly chosen."""
    places = np.unique(np.linspace(0, x.size - 1, min(x.size, MOST_POINTS)).astype(np.int64))
    return Curve(name, tuple(x[places].tolist()), tuple(y[places].tolist()), shape="step")
