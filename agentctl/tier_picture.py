"""How much KV tier: policies by what tiers they have, from none to plenty, and the least that is enough."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from agentctl.analyzers.words import count, number, percent
from agentctl.cluster import Cluster
from agentctl.present import Curve, Figure, Section, Table, Value


class TierPoint(NamedTuple):
    """One policy with certain tiers. Ratios are shares of prompt tokens; None: not known.

    tokens      capacity of all tiers of the cluster together; bandwidth_bytes_per_s: their reading
    peak        load carried within the objectives, multiples of the trace's; None in a single run
    ttft_p95_s  None where there are peaks
    """

    policy: str
    tokens: int
    bandwidth_bytes_per_s: float
    hit_ratio: float | None
    host_ratio: float | None
    global_ratio: float | None
    peak: float | None = None
    ttft_p95_s: float | None = None


def tiers_of(cluster: Cluster) -> tuple[int, float]:
    """(tokens, bytes/s of reading) of all tiers; one per engine counts once for each."""
    tokens, speed = 0, 0.0
    for tier in cluster.kv_tiers:
        n = cluster.n_engines if tier.scope == "engine" else 1
        tokens += n * tier.capacity_tokens
        speed += n * tier.read_bytes_per_s
    return tokens, speed


def enough(points: Sequence[TierPoint], policy: str, hit_ratio: float) -> TierPoint | None:
    """The least of the tiers tried, by capacity and then bandwidth, with which the policy finds that share of
    prompt tokens; None: none of them is enough."""
    reached = [
        point
        for point in points
        if point.policy == policy and point.hit_ratio is not None and point.hit_ratio >= hit_ratio
    ]
    return min(reached, key=lambda point: point[1:3], default=None)


def tier_picture(points: Sequence[TierPoint], wanted_hit: float | None = None) -> tuple[Section, ...]:
    """A section where points differ in their tiers, else none. `wanted_hit`: a share of prompt tokens to
    reach; by default what the best policy finds with the largest tier, less two points."""
    if len({point[1:3] for point in points}) < 2:
        return ()
    points = sorted(points, key=lambda point: (point.policy, point.tokens, point.bandwidth_bytes_per_s))
    known = [point.hit_ratio for point in points if point.hit_ratio is not None]
    goal = wanted_hit if wanted_hit is not None else max(known, default=0.0) - 0.02
    has_peak = any(point.peak is not None for point in points)
    last = ("load carried, of the trace's", "") if has_peak else ("TTFT p95", "s")
    columns: dict[tuple[str, str], list[Value]] = {
        ("policy", ""): [point.policy for point in points],
        ("tiers", "tokens"): [point.tokens for point in points],
        ("read bandwidth, GB/s", ""): [point.bandwidth_bytes_per_s / 1e9 for point in points],
        ("hit", "ratio"): [point.hit_ratio for point in points],
        ("of it in engines' tiers", "ratio"): [point.host_ratio for point in points],
        ("in the cluster's", "ratio"): [point.global_ratio for point in points],
        last: [point.peak if has_peak else point.ttft_p95_s for point in points],
    }
    shown = {head: values for head, values in columns.items() if any(value is not None for value in values)}
    table = Table(tuple(shown), tuple(zip(*shown.values(), strict=True)))  # type: ignore[arg-type]
    section = Section(
        "tier-sizes",
        "How much KV tier",
        " ".join(_told(points, name, goal) for name in dict.fromkeys(point.policy for point in points)),
        tables=(table,),
        figures=(_figure(points, "hit_ratio", "hits-by-tier", "share of prompt tokens found", "ratio"),)
        + (
            (_figure(points, "peak", "peak-by-tier", "load carried, of the trace's", ""),) if has_peak else ()
        ),
        assumptions=(
            "the least tier has the smallest capacity, then the least bandwidth, of those tried; prices of "
            "memory are not known",
        ),
    )
    return (section,)


def _told(points: Sequence[TierPoint], policy: str, goal: float) -> str:
    least = enough(points, policy, goal)
    if least is None:
        return f"{policy} finds {percent(goal)} of the prompt tokens with none of these tiers."
    if least.tokens == 0:
        return f"{policy} finds {percent(goal)} of the prompt tokens without a tier."
    return (
        f"{policy} needs {count(least.tokens, 'token')} of tier at "
        f"{number(least.bandwidth_bytes_per_s / 1e9)} GB/s to find {percent(goal)} of the prompt tokens."
    )


def _figure(points: Sequence[TierPoint], field: str, name: str, label: str, unit: Any) -> Figure:
    curves = []
    for policy in dict.fromkeys(point.policy for point in points):
        mine = [p for p in points if p.policy == policy and getattr(p, field) is not None]
        xs = tuple(p.tokens / 1e6 for p in mine)
        curves.append(Curve(policy, xs, tuple(float(getattr(p, field)) for p in mine)))
    return Figure(
        name=name,
        question=(
            "How much does a tier find, and for whom?" if field == "hit_ratio" else "What does a tier carry?"
        ),
        x_label="capacity of all tiers (million tokens)",
        y_label=label,
        curves=tuple(curves),
        conclusion="Where a line is flat more capacity finds nothing more. Where lines meet the policy does "
        "not matter any more: what one engine has not is loaded instead of computed again.",
        y_unit=unit,
    )
