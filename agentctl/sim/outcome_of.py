"""What happened to every request, read from the state of a cluster in which everything has ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from agentctl.cluster import Cluster
from agentctl.sim.energy_state import energy_of_engines
from agentctl.sim.fleet_outcome import served_of
from agentctl.sim.make_state import common_block
from agentctl.sim.outcome import Outcome, TierUse
from agentctl.sim.samples import samples_of
from agentctl.sim.sharing import copies, session_tokens
from agentctl.sim.state import State
from agentctl.workload import Workload

if TYPE_CHECKING:
    from agentctl.sim.driver import Replay


def outcome_of(workload: Workload, cluster: Cluster, replay: Replay, observed: bool) -> Outcome:
    """What happened, once everything has ended."""
    s, content = replay.s, replay.content
    jobs = s.jobs[: workload.n_requests]
    done = ~np.isnan(jobs["finish"])
    outcome = Outcome(
        workload=workload,
        pool_names=tuple(pool.name for pool in cluster.pools),
        pool_of_engine=np.repeat(np.arange(len(cluster.pools)), [pool.engines for pool in cluster.pools]),
        done=done,
        engine=jobs["engine"].astype(np.int64),
        arrival_s=jobs["arrival"].copy(),
        scheduled_s=jobs["scheduled"].copy(),
        first_token_s=jobs["first_token"].copy(),
        finish_s=jobs["finish"].copy(),
        hit_tokens=jobs["hit"].astype(np.int64),
        computed_prefill_tokens=jobs["prefilled"].copy(),
        preemptions=jobs["preemptions"].astype(np.int64),
        itl_max_s=np.where(done & (jobs["output"] > 1), jobs["itl_max"], np.nan),
    )
    if s.router["has_roles"][0]:
        _set_hand_overs(outcome, s)
    if workload.fleet is not None:
        outcome.served = served_of(s, workload.fleet, done)
    if cluster.kv_tiers:
        _set_tier_hits(outcome, cluster, s)
    if s.power["is_known"].any():
        outcome.energy_j, outcome.energy = s.energy[: workload.n_requests].copy(), energy_of_engines(s)
        if s.router["has_roles"][0]:
            outcome.energy_j += s.energy[workload.n_requests :]
    if observed:
        session, prompt = workload.requests.session, workload.requests.prompt_tokens
        outcome.samples = samples_of(s)
        outcome.session_tokens = session_tokens(
            content, session, outcome.arrival_s, prompt, common_block(cluster)
        )
        outcome.copies = copies(content, outcome.done, outcome.engine, outcome.decode_engine)
    return outcome


def _set_hand_overs(outcome: Outcome, s: State) -> None:
    """Both halves together; what a request that was turned away had come to is void."""
    n, done = outcome.done.size, outcome.done
    pairs, first = s.pairs, s.jobs[n:]
    is_moved = done & (pairs["decode"] >= 0)
    outcome.role_of_engine = s.limits["role"].astype(np.int64)
    outcome.sent_s = np.where(done, np.where(is_moved, first["arrival"], outcome.arrival_s), np.nan)
    outcome.arrival_s = np.where(np.isnan(pairs["arrived"]), outcome.arrival_s, pairs["arrived"])
    outcome.decode_engine = outcome.engine
    outcome.engine = np.where(done, pairs["prefill"], -1).astype(np.int64)
    outcome.scheduled_s = np.where(is_moved, first["scheduled"], outcome.scheduled_s)
    outcome.hit_tokens = np.where(is_moved, first["hit"], outcome.hit_tokens)
    outcome.decode_hit_tokens = np.where(is_moved, s.jobs["hit"][:n], 0).astype(np.int64)
    outcome.decode_computed_tokens = np.where(is_moved, outcome.computed_prefill_tokens, 0)
    outcome.decode_preemptions = np.where(is_moved, outcome.preemptions, 0)
    outcome.computed_prefill_tokens = np.where(done, outcome.computed_prefill_tokens + first["prefilled"], 0)
    outcome.preemptions = np.where(done, outcome.preemptions + first["preemptions"], 0)
    outcome.moved_tokens = np.where(is_moved, pairs["moved"], 0).astype(np.int64)
    outcome.move_began_s = np.where(is_moved, pairs["began"], np.nan)
    outcome.move_ended_s = np.where(is_moved, pairs["ended"], np.nan)
    outcome.transfer_s = np.where(is_moved, pairs["ended"] - pairs["began"], 0.0)


def _set_tier_hits(outcome: Outcome, cluster: Cluster, s: State) -> None:
    """Tokens of tiers of one scope together; null where there is no such tier."""
    n = outcome.done.size
    hits, loads = np.maximum(s.tier_hits[:n], 0).astype(np.int64), s.loads["load_s"][:n].copy()
    if outcome.moved_tokens is not None:  # the halves that compute prompts
        hits += np.maximum(s.tier_hits[n:], 0)
        loads += s.loads["load_s"][n:] + outcome.transfer_s
        hits[~outcome.done], loads[~outcome.done] = 0, 0.0  # turned away after its first token
    for scope, field in (("engine", "hit_host_tokens"), ("cluster", "hit_global_tokens")):
        tiers = [t for t, tier in enumerate(cluster.kv_tiers) if tier.scope == scope]
        if tiers:
            setattr(outcome, field, hits[:, tiers].sum(axis=1))
    outcome.transfer_s = loads
    used = []
    for t, tier in enumerate(cluster.kv_tiers):
        of = s.stores[s.stores["tier"] == t]
        tokens = tier.unit_tokens
        used.append(
            TierUse(
                stores=of.size,
                hit_tokens=int(hits[outcome.done, t].sum()),
                loaded_bytes=float(of["bytes_loaded"].sum()),
                stored_bytes=float(of["bytes_stored"].sum()),
                most_tokens=int(of["most_units"].max()) * tokens,
                replaced_tokens=int(of["units_lost"].sum()) * tokens,
            )
        )
    outcome.tiers = tuple(used)
