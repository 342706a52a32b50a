"""One run, with what its figures need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from agentctl.cluster import Cluster
from agentctl.hot_spots import hot_spots
from agentctl.metrics import METRICS, Run, Unknown, e2e_s, summary, tpot_s, ttft_s
from agentctl.policies.base import Policy
from agentctl.regret import sample_regret
from agentctl.sim.compiled import is_compiled
from agentctl.sim.outcome import Outcome

N_REGRET = 30  # requests whose engines are compared
SOURCES = {
    "local": "engine's own cache", "host": "its host's memory", "cluster": "store of the cluster",
    "again": "computed again", "new": "computed, new to its session",
}  # fmt: skip
# Places in the palette: what is lost stands out.
COLOURS = {"local": 0, "host": 7, "cluster": 2, "again": 1, "new": 6}


class Look(NamedTuple):
    """One run.

    name     of what was run, as in other figures; `colour` its place in the palette
    run      the whole of it; `counted`: what latencies and sources are of, perhaps without a warm-up
    sources  share of the prompt tokens from each of SOURCES, None: not known
    spots    document of hot_spots; `regret`: of sample_regret, None: not looked at
    """

    name: str
    run: Run
    counted: Run
    sources: dict[str, float | None]
    spots: dict[str, Any]
    regret: dict[str, Any] | None = None
    colour: int = 0
    is_strong: bool = False


def look_at(
    name: str,
    outcome: Outcome,
    cluster: Cluster,
    policy: Policy,
    *,
    seed: int = 0,
    regret: int = N_REGRET,
    colour: int = 0,
    is_strong: bool = False,
    count: Callable[[Run], Run] = lambda run: run,
) -> Look:
    """`outcome` is of an observed run of `policy` on `cluster` with `seed`.

    count   what of the run latencies and sources are of
    regret  requests whose engines are compared; 0: none. A policy in plain Python would take too long;
            of an engine for the prompt and another to decode there is no such comparison
    """
    run = outcome.run()
    counted = count(run)
    is_one_engine = outcome.decode_engine is None
    compared = regret if is_compiled(policy.choose) and is_one_engine else 0
    lost = sample_regret(outcome, cluster, policy, seed, None, compared) if compared else None
    spots = hot_spots(outcome, cluster)
    return Look(name, run, counted, sources(counted), spots, lost, colour, is_strong)


def document(look: Look) -> dict[str, Any]:
    """The numbers behind the figures of one run, beside its name."""
    times = {of.__name__: summary(of(look.counted))._asdict() for of in (ttft_s, tpot_s, e2e_s)}
    return {**times, "prompt_tokens_from": look.sources, "regret": look.regret, "hot_spots": look.spots}


def sources(run: Run) -> dict[str, float | None]:
    """Where the prompt tokens of finished requests came from, as shares of 1; of those that were computed,
    "again" are those that an earlier request of the session had: evicted since, or on another engine."""
    found, host, cluster, again = (
        share(run, name) for name in ("hit_ratio", "hit_host_ratio", "hit_global_ratio", "session_miss_ratio")
    )
    if found is None:
        return dict.fromkeys(SOURCES)
    return {
        "local": found - (host or 0.0) - (cluster or 0.0), "host": host, "cluster": cluster,
        "again": again, "new": 1 - found - (again or 0.0),
    }  # fmt: skip


def share(run: Run, metric: str) -> float | None:
    """A metric of the whole run; None: not known."""
    value = METRICS[metric].compute(run)
    return None if value is None or isinstance(value, Unknown) else float(value)
