"""The same conversations in the simulator of clusters: every wait is in a latency, and the engines are whole.

One prefill engine and three decoders of the paper's machine, or four that do both; engines with blocks,
chunked prompts and preemption, a network that transfers share, requests that wait at the router. Policies are
those of agentctl.policies; a session is sent when it comes, not when a prefill engine would have begun.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from agentctl.cluster import Cluster, Network, Pool, Router
from agentctl.conserve.conversations import Tokens, draw, order_of
from agentctl.conserve.costs import A40, BLOCK_TOKENS, Machine
from agentctl.conserve.state import F64
from agentctl.errors import InputError
from agentctl.estimators.batch_time import BatchTime
from agentctl.isolated import isolated
from agentctl.metrics import (
    SLO_TIMES_ISOLATED,
    Isolated,
    geometric_mean,
    measure_of,
    share_above,
    summary,
    times_isolated,
    ttfet_s,
    ttft_s,
)
from agentctl.metrics.turns import tbt_last_turn_s, ttft_first_turn_s
from agentctl.policies.base import load_policy
from agentctl.profile import Profile
from agentctl.sim.driver import simulate
from agentctl.sim.outcome import Outcome
from agentctl.trace import PrefixTree
from agentctl.workload import Requests, Workload
from agentctl.workload.arrays import AFTER_END, AT_ARRIVAL, first_children

KV_BYTES = 28 * 2 * 8 * 128 * 2  # of a token: Qwen3-0.6B's layers, K and V, heads of KV, their size, bf16
# Lines through the authors' transfer times (costs.transfer_s), and their engines' limits
LATENCY_S, S_PER_TOKEN = 5.27e-3, 0.985e-6
PREFILL_BATCH_TOKENS, SEQUENCES = 8192, 1024


class HonestSystem(NamedTuple):
    name: str  # as the same system in paper mode, where it is there
    label: str
    policy: str
    params: dict[str, float]
    decoders: int  # and a prefill engine, where there are three


class Told(NamedTuple):
    """Of one run. `x`: times the session alone on one engine. From when a session was sent but for the third.

    own_clock  as the paper's: from when the session's first prompt begins to be computed
    """

    ttfet_x_p95: float
    ttfet_x_gmean: float
    own_clock_ttfet_x_p95: float
    ttfet_above_5: float
    ttft_first_p95_s: float
    ttft_later_p95_s: float
    tbt_x_p95: float  # of sessions: the mean of their last turn
    waited_p95_s: float  # before the first prompt began
    span_s: float
    moves_per_session: float
    tokens_per_j: float


class HonestRow(NamedTuple):
    """Values by draw, [draw, metric]."""

    system: HonestSystem
    rate: float
    values: F64

    def by_seed(self, metric: str) -> F64:
        return self.values[:, Told._fields.index(metric)]

    def mean(self, metric: str) -> float:
        return float(self.by_seed(metric).mean())


def honest_systems(errors: Sequence[float]) -> tuple[HonestSystem, ...]:
    wrong = [
        HonestSystem(f"errors-{p:g}", f"{100 * p:g} % errors", "conserve-pd", {"error_share": p}, 3)
        for p in errors
    ]
    return (
        HonestSystem("conserve", "ConServe", "oracle-conserve-pd", {}, 3),
        HonestSystem("conserve-per-turn", "ConServe, KV per turn", "conserve-pd", {}, 3),
        HonestSystem("conserve-quantile", "ConServe, KV by quantile", "conserve-pd", {"quantile": 0.9}, 3),
        *wrong,
        HonestSystem("ampd", "AMPD (reconstructed)", "ampd", {}, 3),
        HonestSystem("collocated", "collocated", "oracle-conserve-pd", {}, 4),
        HonestSystem("disaggregated", "full disaggregation", "full-disaggregation", {}, 3),
    )


def honest(
    tokens: Tokens,
    rates: Sequence[float],
    errors: Sequence[float],
    seeds: int,
    machine: Machine = A40,
    progress: Callable[[float, str], None] | None = None,
) -> tuple[HonestRow, ...]:
    """Every system at every rate, on the draws of paper mode. Raises InputError for a session that no engine
    holds."""
    whole = tokens.fresh.sum(axis=1) + tokens.output.sum(axis=1)
    if whole.max() > machine.kv_tokens:
        raise InputError(f"{int((whole > machine.kv_tokens).sum())} sessions need more KV than an engine has")
    alone = isolated(workload_of(tokens, 1.0, 0), paper_cluster(4, machine))
    cells = [(system, rate) for system in honest_systems(errors) for rate in rates]
    rows = []
    for place, (system, rate) in enumerate(cells):
        values = []
        for seed in range(seeds):
            order = order_of(tokens.fresh.shape[0], seed)
            outcome = run_once(workload_of(tokens, rate, seed), system, seed, machine)
            values.append(told(outcome, Isolated(*(of_session[order] for of_session in alone))))
        rows.append(HonestRow(system, rate, np.array(values)))
        if progress:
            progress((place + 1) / len(cells), "simulating clusters")
    return tuple(rows)


def run_once(workload: Workload, system: HonestSystem, seed: int, machine: Machine = A40) -> Outcome:
    cluster = paper_cluster(system.decoders, machine)
    batch_time = cluster.pools[-1].profile.batch_time
    policy = load_policy(system.policy, system.params, batch_time=batch_time)
    return simulate(workload, cluster, policy, seed=seed)


def paper_cluster(decoders: int, machine: Machine = A40) -> Cluster:
    """Three decoders and a prefill engine, or so many engines that do both."""
    profile = Profile(
        BatchTime(
            "hinge", b0=machine.b0, b_prefill=machine.b_prefill, b_decode=machine.b_decode,
            b_context=machine.b_context, b_context_mixed=machine.b_context, h0=machine.h0,
        ),
        name="a40-qwen3-0.6b", model="Qwen/Qwen3-0.6B", gpu="A40", kv_bytes_per_token=KV_BYTES,
    )  # fmt: skip

    def pool(name: str, role: str, engines: int, kv_tokens: int, batch_tokens: int) -> Pool:
        return Pool(
            name, profile, kv_tokens // BLOCK_TOKENS + 1, BLOCK_TOKENS, role=role, engines=engines,  # type: ignore[arg-type]
            max_num_batched_tokens=batch_tokens, max_num_seqs=SEQUENCES,
        )  # fmt: skip

    if decoders > 3:
        return Cluster((pool("main", "both", decoders, machine.kv_tokens, machine.batch_tokens),), Router())
    prefill = pool("prefill", "prefill", 1, machine.prefill_kv_tokens, PREFILL_BATCH_TOKENS)
    decode = pool("decode", "decode", decoders, machine.kv_tokens, machine.batch_tokens)
    return Cluster((prefill, decode), Router(), network=Network(KV_BYTES / S_PER_TOKEN, LATENCY_S))


def workload_of(tokens: Tokens, rate: float, seed: int) -> Workload:
    """The draw of paper mode as a workload: a turn comes its gap after the one before has ended."""
    sessions = draw(tokens, rate, seed)
    n, turns = sessions.fresh.shape
    prompt = np.cumsum(sessions.fresh, axis=1) + np.cumsum(sessions.output, axis=1) - sessions.output
    numbers = np.arange(n * turns, dtype=np.int32).reshape(n, turns)
    before = np.where(np.arange(turns) > 0, numbers - 1, -1).astype(np.int32).ravel()
    blocks = prompt // BLOCK_TOKENS
    first = 1 + np.cumsum(blocks[:, -1]) - blocks[:, -1]  # a session's own chain; node 0 is the root
    gap = np.zeros((n, turns)) if tokens.gap is None else tokens.gap[order_of(n, seed)]
    requests = Requests(
        arrival=np.repeat(sessions.at, turns),
        prompt_tokens=prompt.ravel(),
        output_tokens=sessions.output.ravel(),
        session=np.repeat(np.arange(n, dtype=np.int32), turns),
        turn=np.tile(np.arange(turns, dtype=np.int32), n),
        parent=before,
        release=np.where(before < 0, AT_ARRIVAL, AFTER_END).astype(np.int8),
        gap=gap.ravel(),
        deps_start=np.concatenate([[0], np.cumsum(before >= 0)]).astype(np.int64),
        deps=before[before >= 0],
        tip=np.where(blocks > 0, first[:, None] + blocks - 1, 0).astype(np.uint32).ravel(),
        confirmed_child=first_children(before),
        priority=np.zeros(n * turns, np.int32),
    )
    return Workload(
        requests=requests,
        tree=_chains(blocks),
        block_tokens=BLOCK_TOKENS,
        request_ids=[f"{s}.{k}" for s in range(n) for k in range(turns)],
        session_ids=[str(s) for s in range(n)],
        replay="thinktime",
        counts={},
        trace_name=tokens.name,
    )


def _chains(blocks: np.ndarray) -> PrefixTree:
    """One chain of blocks per session, as long as its last prompt; a block's first use is the turn that first
    holds it."""
    longest, turns = blocks[:, -1], blocks.shape[1]
    size = 1 + int(longest.sum())
    depth = np.zeros(size, np.int32)
    depth[1:] = np.concatenate([np.arange(1, m + 1) for m in longest])
    parent = np.where(depth > 1, np.arange(size) - 1, 0).astype(np.uint32)
    owner = np.repeat(np.arange(longest.size), longest)
    used = (depth[1:, None] > blocks[owner]).sum(axis=1)  # turns that do not hold it yet
    first_row = np.concatenate([[0], owner * turns + used]).astype(np.int64)
    return PrefixTree(parent, depth, np.arange(size, dtype=np.uint64), first_row)


def told(outcome: Outcome, alone: Isolated) -> Told:
    run = outcome.run()
    ttfet = times_isolated(ttfet_s(run), alone.ttfet_s)
    first = outcome.workload.requests.turn == 0
    began = np.where(first, outcome.scheduled_s, run.arrival_s)
    return Told(
        ttfet_x_p95=_p95(ttfet),
        ttfet_x_gmean=_known(geometric_mean(ttfet)),
        own_clock_ttfet_x_p95=_p95(times_isolated(ttfet_s(run._replace(arrival_s=began)), alone.ttfet_s)),
        ttfet_above_5=_known(share_above(ttfet, SLO_TIMES_ISOLATED)),
        ttft_first_p95_s=_p95(ttft_first_turn_s(run)),
        ttft_later_p95_s=_p95(ttft_s(run)[~first]),
        tbt_x_p95=_p95(times_isolated(tbt_last_turn_s(run), alone.tbt_last_turn_s)),
        waited_p95_s=_p95((outcome.scheduled_s - outcome.arrival_s)[first]),
        span_s=float(np.nanmax(run.finish_s) - run.arrival_s.min()),
        moves_per_session=_moves(outcome),
        tokens_per_j=_known(measure_of("tokens_per_j", run)),
    )


def _moves(outcome: Outcome) -> float:
    if outcome.decode_engine is None:
        return 0.0
    moved = outcome.done & (outcome.decode_engine != outcome.engine)
    return float(moved.sum()) / outcome.workload.n_sessions


def _p95(values: F64) -> float:
    return _known(summary(values).p95)


def _known(value: float | None) -> float:
    return float("nan") if value is None else value
