"""Why requests went where they went: what the router saw, and what each other engine would have given."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.analyzers.words import count, seconds
from agentctl.cluster import Cluster
from agentctl.errors import UsageError
from agentctl.policies.base import Policy
from agentctl.present import Section, Table, Unit
from agentctl.sim.explain import NOT_SHOWN, Decision, decisions
from agentctl.sim.outcome import Outcome
from agentctl.sim.view import View
from agentctl.workload import Workload

Floats = NDArray[np.float64]
Column = tuple[str, Unit]

PUBLISHED = View._fields[View._fields.index("waiting_requests") : View._fields.index("kv_total_blocks")]
SUFFIX = {  # fields of the view whose name does not say the unit
    "now": "now_s", "published_at": "published_at_s", "step_ends_at": "step_ends_at_s",
    "expected_hit": "expected_hit_tokens", "last_chosen": "last_chosen_engine",
}  # fmt: skip
MOST_COMPARED = 20_000  # ids, to find near ones
MOST_ROWS = 10  # engines in a table; the document has all


def request_numbers(workload: Workload, request_ids: Sequence[str]) -> list[int]:
    """Numbers of the requests with these ids. Raises UsageError for an id that the workload lacks."""
    number = {name: r for r, name in enumerate(workload.request_ids)} if request_ids else {}
    for name in request_ids:
        if name not in number:
            n = count(workload.n_requests, "simulated request")
            raise UsageError(f"no {name!r} among {n}", place="--explain", hint=_near(name, workload))
    return [number[name] for name in dict.fromkeys(request_ids)]


def _near(name: str, workload: Workload) -> str:
    some = workload.request_ids[:MOST_COMPARED]
    near = difflib.get_close_matches(name, some, n=3, cutoff=0.6)
    return f"did you mean {' or '.join(f'`{one}`' for one in near)}?" if near else f"the first is `{some[0]}`"


# One decision


def explain_requests(
    outcome: Outcome,
    cluster: Cluster,
    policy: Policy,
    seed: int,
    concurrency: int | None,
    wanted: Sequence[int],
) -> list[dict[str, Any]]:
    """The documents of `explain`, in the order asked for."""
    workload = outcome.workload
    if not wanted:
        return []
    found = {
        one.request: _decision(outcome, cluster, policy, one)
        for one in decisions(workload, cluster, policy, outcome, wanted, seed=seed, concurrency=concurrency)
    }
    return [found.get(r) or _head(outcome, r) for r in wanted]


def _head(outcome: Outcome, r: int) -> dict[str, Any]:
    """Which request it is and how it went. One that no engine can ever serve was never placed."""
    workload, done = outcome.workload, bool(outcome.done[r])
    requests = workload.requests
    return {
        "request_id": workload.request_ids[r],
        "session_id": workload.session_ids[requests.session[r]],
        "turn": int(requests.turn[r]),
        "prompt_tokens": int(requests.prompt_tokens[r]),
        "output_tokens": int(requests.output_tokens[r]),
        "status": "done" if done else "rejected",
        "arrival_s": float(outcome.arrival_s[r]),
        "engine": None,
        "best_engine": None,
        "ttft_regret_s": None,
        "saw": None,
        "engines": [],
    }


def _decision(outcome: Outcome, cluster: Cluster, policy: Policy, one: Decision) -> dict[str, Any]:
    best = best_engine(one)
    first = one.branches.first_token_s
    regret = None if best is None else _known(first[one.chosen] - first[best])
    return {
        **_head(outcome, one.request),
        "engine": one.chosen,
        "best_engine": best,
        "ttft_regret_s": regret,
        "saw": _saw(cluster, policy, one.seen),
        "engines": [_branch(outcome, policy, one, e) for e in range(first.size)],
    }


def best_engine(one: Decision) -> int | None:
    """The engine with the earliest first token; the chosen one when it is as early. None: none serves it."""
    first = one.branches.first_token_s
    if np.isnan(first).all():
        return None
    best = int(np.nanargmin(first))
    return one.chosen if first[one.chosen] == first[best] else best


def _shown(policy: Policy) -> list[str]:
    """Fields of the view that the policy reads, in the view's order; all when it does not say."""
    sees: Iterable[str] | None = getattr(policy, "sees", None)
    return [name for name in View._fields if name not in NOT_SHOWN and (sees is None or name in sees)]


def _saw(cluster: Cluster, policy: Policy, seen: View) -> dict[str, Any]:
    """What is not per engine, and how old the rest is; null where the policy does not look at it."""
    shown, router = _shown(policy), cluster.router
    is_published = any(name in PUBLISHED for name in shown)
    single = {SUFFIX.get(name, name): _plain(getattr(seen, name)) for name in shown
              if not isinstance(getattr(seen, name), np.ndarray)}  # fmt: skip
    return {
        "metrics_age_s": _known(seen.now - seen.published_at) if is_published else None,
        "index_delay_s": router.index_delay_s if "hit_tokens" in shown else None,
        **single,
    }


def _branch(outcome: Outcome, policy: Policy, one: Decision, e: int) -> dict[str, Any]:
    """What the policy saw of engine e, what it would cost in the policy's eyes, and what it would give."""
    branches, arrival = one.branches, float(outcome.arrival_s[one.request])
    fields = {name: getattr(one.seen, name) for name in _shown(policy)}
    hit = int(branches.hit_tokens[e])
    return {
        "engine": e,
        "chosen": e == one.chosen,
        "saw": {
            SUFFIX.get(name, name): _plain(values[e])
            for name, values in fields.items() if isinstance(values, np.ndarray)
        },
        "cost": None if one.costs is None else _known(one.costs[e]),
        "hit_tokens": None if hit < 0 else hit,
        "queue_s": _known(branches.scheduled_s[e] - arrival),
        "ttft_s": _known(branches.first_token_s[e] - arrival),
        "e2e_s": _known(branches.finish_s[e] - arrival),
    }  # fmt: skip


def _plain(value: Any) -> int | float | None:
    """A number for JSON."""
    value = value.item() if isinstance(value, np.generic) else value
    return _known(value) if isinstance(value, float) else value


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def explain_section(document: dict[str, Any], position: int) -> Section:
    name, title = f"explain-{position}", f"Request {document['request_id']}"
    if not document["engines"]:
        sentence = "No engine can ever serve it: it was rejected before the policy was asked."
        return Section(name, title, sentence)
    rows = sorted(
        document["engines"], key=lambda row: (not row["chosen"], _or_inf(row["ttft_s"]), row["engine"])
    )
    shown = sorted(rows[:MOST_ROWS], key=lambda row: row["engine"])
    some = f", {MOST_ROWS} of {len(rows)} engines" if len(rows) > MOST_ROWS else ""
    has_costs = any(row["cost"] is not None for row in rows)
    seen: tuple[Column, ...] = tuple(_column(field) for field in rows[0]["saw"])
    cost: tuple[Column, ...] = (("cost", ""),) if has_costs else ()
    saw = Table(
        (("engine", ""), *seen, *cost, ("chosen", "")),
        tuple(
            (row["engine"], *row["saw"].values(), *([row["cost"]] if has_costs else []), row["chosen"])
            for row in shown
        ),
        title="What the router saw" + (" (the least cost wins)" if has_costs else "") + some,
        best={len(seen) + 1: _least(shown, "cost")} if has_costs else {},
    )
    keys = ("hit_tokens", "queue_s", "ttft_s", "e2e_s")
    would = Table(
        (
            ("engine", ""),
            ("hit", "tokens"),
            ("queue", "s"),
            ("ttft", "s"),
            ("end to end", "s"),
            ("chosen", ""),
        ),
        tuple((row["engine"], *(row[key] for key in keys), row["chosen"]) for row in shown),
        title=f"What each engine would have given{some}",
        best={3: _least(shown, "ttft_s")} if any(row["ttft_s"] is not None for row in shown) else {},
    )
    return Section(name, title, _sentence(document), tables=(saw, would), assumptions=_said(document))


def _sentence(document: dict[str, Any]) -> str:
    chosen = document["engines"][document["engine"]]
    where = (
        f"Turn {document['turn']} of session {document['session_id']} went to engine {document['engine']}: "
    )
    if chosen["ttft_s"] is None:
        return f"{where}it can never be served there and was rejected."
    found = f"{chosen['hit_tokens']:,} of {document['prompt_tokens']:,}"
    what = f"TTFT {seconds(chosen['ttft_s'])} with {found} prompt tokens found; "
    best, lost = document["best_engine"], document["ttft_regret_s"]
    if best == document["engine"]:
        return f"{where}{what}no other engine would have been faster."
    return f"{where}{what}engine {best} would have been {seconds(lost)} faster."


def _said(document: dict[str, Any]) -> tuple[str, ...]:
    """How old the view was, single values of it, and what a counterfactual is."""
    said = []
    for key, value in document["saw"].items():
        if value is not None:
            said.append(f"{key.removesuffix('_s').replace('_', ' ')}: "
                        + (seconds(value) if key.endswith("_s") else f"{value:,}"))  # fmt: skip
    said.append(
        "another choice: the cluster as it stood goes on under the same policy, later arrivals included"
    )
    return tuple(said)


def _column(field: str) -> Column:
    """`waiting_requests` -> waiting, count."""
    units: dict[str, Unit] = {"requests": "count", "tokens": "tokens", "blocks": "blocks", "s": "s"}
    words = field.split("_")
    unit = units.get(words[-1], "")
    return (" ".join(words[:-1] if unit and len(words) > 1 else words), unit)


def _least(rows: list[dict[str, Any]], key: str) -> int:
    """Row with the least; where several have it the chosen one, then the first."""
    return min(range(len(rows)), key=lambda i: (_or_inf(rows[i][key]), not rows[i]["chosen"]))


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value
