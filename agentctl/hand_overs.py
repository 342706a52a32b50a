"""What moved between pools in a run: how often, how much, how long, and what stayed on its decoder."""

from __future__ import annotations

from typing import Any

import numpy as np

from agentctl.analyzers.words import count, percent
from agentctl.cluster import Cluster
from agentctl.present import Section, Table
from agentctl.sim.outcome import Outcome


def hand_over_facts(cluster: Cluster, outcome: Outcome) -> dict[str, Any] | None:
    """Of requests that were served, in seconds, tokens and bytes; None where nothing is handed over."""
    if outcome.moved_tokens is None or outcome.decode_engine is None or cluster.network is None:
        return None
    done, is_moved = outcome.done, outcome.done & (outcome.decode_engine != outcome.engine)
    session = outcome.workload.requests.session
    began, ended = outcome.move_began_s, outcome.move_ended_s
    assert began is not None and ended is not None
    size, n_moved = cluster.pools[0].profile.kv_bytes_per_token, int(is_moved.sum())
    tokens = int(outcome.moved_tokens[done].sum())
    moves = np.bincount(session[is_moved], minlength=outcome.workload.n_sessions)[np.unique(session[done])]
    span = float(np.nanmax(outcome.finish_s) - np.nanmin(outcome.arrival_s)) if done.any() else 0.0
    took, waited = (ended - began)[is_moved], (began - outcome.first_token_s)[is_moved]
    return {
        "requests": n_moved,
        "share": n_moved / int(done.sum()) if done.any() else None,
        "per_session_mean": float(moves.mean()) if moves.size else None,
        "tokens": tokens,
        "bytes": tokens * size if size else None,
        "found_on_decoder_tokens": int(outcome.decode_hit_tokens[is_moved].sum()),  # type: ignore[index]
        "transfer_s": _spread(took),
        "wait_for_decoder_s": _spread(waited),
        "network_share": tokens * size / cluster.network.bytes_per_s / span if span > 0 and size else None,
    }


def _spread(values: np.ndarray) -> dict[str, float | None]:
    """p50, p95 and the most; null where there is none."""
    if values.size == 0:
        return {"p50": None, "p95": None, "max": None}
    p50, p95, most = np.quantile(values, [0.5, 0.95, 1.0], method="higher")
    return {"p50": float(p50), "p95": float(p95), "max": float(most)}


def hand_over_section(facts: dict[str, Any]) -> Section:
    each, moved = facts["per_session_mean"] or 0.0, count(facts["tokens"], "token")
    sentence = (
        f"{percent(facts['share'] or 0.0)} of the requests were handed over, {each:.2f} per session; {moved} "
        f"moved, and {count(facts['found_on_decoder_tokens'], 'token')} more were on the decoder before. A "
        "request waits for its decoder from its first token until its KV has room there."
    )
    names = {"transfer_s": "transfer", "wait_for_decoder_s": "wait for the decoder"}
    rows = tuple((name, *facts[key].values()) for key, name in names.items())
    table = Table((("time", ""), ("p50", "s"), ("p95", "s"), ("max", "s")), rows)
    return Section("hand-overs", "What moved between pools", sentence, tables=(table,))
