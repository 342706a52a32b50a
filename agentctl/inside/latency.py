"""How long first tokens take, and those after them: distributions of runs over each other."""

from __future__ import annotations

from collections.abc import Sequence

from agentctl.analyzers.distribution import cdf_curve
from agentctl.analyzers.words import seconds
from agentctl.inside.look import Look
from agentctl.metrics import Floats, summary, tpot_s, ttft_s
from agentctl.present import Curve, Figure, Section, Table, Unit, Value


def latencies(looks: Sequence[Look], at: str) -> Section:
    head: list[tuple[str, Unit]] = [("policy", "")]
    head += [(f"{name} {which}", "s") for name in ("TTFT", "TPOT") for which in ("p50", "p95", "p99")]
    rows: list[tuple[Value, ...]] = []
    for look in looks:
        ttft, tpot = summary(ttft_s(look.counted)), summary(tpot_s(look.counted))
        rows.append((look.name, ttft.p50, ttft.p95, ttft.p99, tpot.p50, tpot.p95, tpot.p99))
    first = summary(ttft_s(looks[0].counted))
    sentence = "No request was served."
    if first.p50 is not None and first.p95 is not None:
        sentence = (
            f"Under {looks[0].name} half of the requests wait at most {seconds(first.p50)} for their first "
            f"token, and one in 20 longer than {seconds(first.p95)}; one run at {at}."
        )
    figures = (ttft_figure(looks), tpot_figure(looks)) if first.n else ()
    return Section("latency", "Latency", sentence, tables=(Table(tuple(head), tuple(rows)),), figures=figures)


def ttft_figure(looks: Sequence[Look]) -> Figure:
    return Figure(
        name="ttft",
        question="How long do requests wait for their first token?",
        x_label="TTFT (s)",
        y_label="share of requests",
        curves=tuple(_cdf(look, ttft_s(look.counted)) for look in looks),
        conclusion="The height at a time is the share of requests that had their first token by then: the "
        "line further to the left is faster. A long tail to the right is queueing or cold prompts. Rejected "
        "requests are not in it.",
        x_log=True,
        y_unit="ratio",
    )


def tpot_figure(looks: Sequence[Look]) -> Figure:
    return Figure(
        name="tpot",
        question="How fast do tokens follow each other?",
        x_label="TPOT (s)",
        y_label="share of requests",
        curves=tuple(_cdf(look, tpot_s(look.counted)) for look in looks),
        conclusion="Mean time between the tokens of an answer: it grows with the batch and with the prefill "
        "that is computed in between. Answers of one token have none and are not in it.",
        x_log=True,
        y_unit="ratio",
    )


def _cdf(look: Look, values: Floats) -> Curve:
    """On a log axis: what took no time at all stands at the least time there is."""
    drawn = cdf_curve(look.name, values)
    least = min((x for x in drawn.x if x > 0), default=1e-3)
    x = tuple(max(value, least) for value in drawn.x)
    return Curve(look.name, x, drawn.y, colour=look.colour, is_strong=look.is_strong)
