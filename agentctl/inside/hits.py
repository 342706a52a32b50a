"""Where prompt tokens come from: a cache, or a computation that another engine may have made before."""

from __future__ import annotations

from collections.abc import Sequence

from agentctl.analyzers.words import percent
from agentctl.inside.look import COLOURS, SOURCES, Look
from agentctl.present import Curve, Figure, Section, Table, Unit

Column = tuple[str, Unit]


def hits(looks: Sequence[Look]) -> Section:
    shown = [key for key in SOURCES if any(look.sources[key] is not None for look in looks)]
    head: tuple[Column, ...] = (("policy", ""), *((SOURCES[key], "ratio") for key in shown))  # type: ignore[misc]
    rows = tuple((look.name, *(look.sources[key] for key in shown)) for look in looks)
    own, sentence = looks[0].sources, "No request was served."
    if own["local"] is not None and own["new"] is not None:
        computed = own["new"] + (own["again"] or 0.0)
        sentence = f"Under {looks[0].name} {percent(1 - computed)} of the prompt tokens were in a cache"
        if own["again"] is not None:
            sentence += f"; {percent(own['again'])} had been computed in their session before, and were again"
        sentence += "."
    figures = (hits_figure(looks),) if shown else ()
    return Section(
        "hits", "Where prompt tokens come from", sentence, tables=(Table(head, rows),), figures=figures
    )


def hits_figure(looks: Sequence[Look]) -> Figure:
    places = tuple(float(place) for place in range(len(looks)))
    curves = tuple(
        Curve(said, tuple(look.sources[key] or 0.0 for look in looks), places, "stack", colour=COLOURS[key])
        for key, said in SOURCES.items()
        if any(look.sources[key] for look in looks)
    )
    return Figure(
        name="hits",
        question="Where do prompt tokens come from?",
        x_label="share of prompt tokens",
        y_label="",
        curves=curves,
        conclusion="What is computed again was in a cache once: it was evicted since, or is on another "
        "engine. What is new to its session is computed under every policy, unless another session left it "
        "where the request goes.",
        x_unit="ratio",
        categories=tuple(look.name for look in looks),
    )
