"""How often another engine would have been better for a request, run beside run."""

from __future__ import annotations

from collections.abc import Sequence

from agentctl.analyzers.words import count, percent, seconds
from agentctl.inside.look import Look
from agentctl.present import Curve, Figure, Section, Table, Unit, Value

Column = tuple[str, Unit]


def regrets(looks: Sequence[Look]) -> Section:
    head: tuple[Column, ...] = (
        ("policy", ""), ("requests drawn", "count"), ("TTFT lost, mean", "s"), ("TTFT lost, p95", "s"),
        ("better by over 0.1 s elsewhere", "ratio"),
    )  # fmt: skip
    rows: list[tuple[Value, ...]] = []
    for look in looks:
        assert look.regret is not None
        lost, by = look.regret["ttft_regret_s"], _better(look, 0.1)
        rows.append((look.name, look.regret["requests"], lost["mean"], lost["p95"], by))
    n, share = rows[0][1], rows[0][4]
    assert isinstance(n, int) and isinstance(share, float)
    sentence = (
        f"Another engine would have given its first token more than 0.1 s earlier to {percent(share)} of "
        f"{count(n, 'request')} drawn under {looks[0].name}."
    )
    said = "regret: best for the request itself; what its choice does to others is not counted"
    table = Table(head, tuple(rows))
    return Section(
        "regret", "Regret", sentence, tables=(table,), figures=(regret_figure(looks),), assumptions=(said,)
    )


def regret_figure(looks: Sequence[Look]) -> Figure:
    steps = [row["than_s"] for row in looks[0].regret["better_by"]] if looks[0].regret else []
    places = tuple(float(place) for place in range(len(steps)))
    return Figure(
        name="regret",
        question="How often was another engine better for a request?",
        x_label="share of the requests drawn",
        y_label="first token earlier elsewhere, by more than",
        curves=tuple(
            Curve(look.name, tuple(_better(look, by) or 0.0 for by in steps), places, "points",
                  colour=look.colour, is_strong=look.is_strong)
            for look in looks
        ),
        conclusion="Points near zero: the policy chose as one would who knew the future of each request. A "
        "few tens of requests are drawn, so that a few percent mean nothing.",
        x_unit="ratio",
        categories=tuple("at all" if by == 0 else seconds(by) for by in steps),
    )  # fmt: skip


def _better(look: Look, than_s: float) -> float | None:
    assert look.regret is not None
    return next((row["share"] for row in look.regret["better_by"] if row["than_s"] == than_s), None)
