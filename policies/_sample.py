"""A small made-up workload on which a policy can show what it does: agent sessions that share prompts."""

from __future__ import annotations

import numpy as np

from agentctl.cluster import Cluster, cluster_of
from agentctl.profile import load_profile
from agentctl.sim.hashing import tie_hash
from agentctl.trace import PrefixTree
from agentctl.workload import Requests, Workload
from agentctl.workload.arrays import AT_ARRIVAL, first_children

ENGINES = 4
TURNS = 5
BLOCK = 64
SYSTEM_PROMPTS, SYSTEM_BLOCKS = 3, 24  # and how long each is
SESSIONS_PER_S = 2.0
TURN_S = 4.0  # between the turns of a session


def sample_cluster() -> Cluster:
    return cluster_of(load_profile("h100-qwen3-8b"), ENGINES)


def sample_workload(n_sessions: int) -> Workload:
    """Sessions of TURNS turns: a first prompt extends a system prompt, a later one the previous prompt."""
    drawn = [_drawn(session) for session in range(n_sessions)]
    order = sorted(
        (session / SESSIONS_PER_S + turn * TURN_S, session, turn)
        for session in range(n_sessions)
        for turn in range(TURNS)
    )
    nodes, tips, rows = [0], dict[tuple[int, int], int](), dict[tuple[int, int], int]()
    parent, tip = [], []
    for row, (_, session, turn) in enumerate(order):
        system = (-1, drawn[session][0] % SYSTEM_PROMPTS)
        if system not in tips:
            tips[system] = _grow(nodes, 0, SYSTEM_BLOCKS)
        before = tips[session, turn - 1] if turn else tips[system]
        tips[session, turn] = _grow(nodes, before, 1 + drawn[session][turn] % 12)
        parent.append(rows[session, turn - 1] if turn else -1)
        tip.append(tips[session, turn])
        rows[session, turn] = row
    tree, n = _tree(nodes), len(order)
    parents = np.array(parent, dtype=np.int32)
    tips_of = np.array(tip, dtype=np.uint32)
    requests = Requests(
        arrival=np.array([arrival for arrival, _, _ in order]),
        prompt_tokens=tree.depth[tips_of].astype(np.int64) * BLOCK,
        output_tokens=np.array([16 + drawn[session][turn] % 200 for _, session, turn in order]),
        session=np.array([session for _, session, _ in order], dtype=np.int32),
        turn=np.array([turn for _, _, turn in order], dtype=np.int32),
        parent=parents,
        release=np.full(n, AT_ARRIVAL, dtype=np.int8),
        gap=np.zeros(n),
        deps_start=np.zeros(n + 1, dtype=np.int64),
        deps=np.zeros(0, dtype=np.int32),
        tip=tips_of,
        confirmed_child=first_children(parents),
        priority=np.zeros(n, dtype=np.int32),
    )
    names = [f"s{session}" for session in range(n_sessions)]
    return Workload(
        requests, tree, BLOCK, [str(r) for r in range(n)], names, "timestamps", {}, trace_name="sample"
    )


def _drawn(session: int) -> list[int]:
    """A number for each turn, the same in every process."""
    return [int(tie_hash(session, turn)) for turn in range(TURNS)]


def _grow(nodes: list[int], tip: int, n_blocks: int) -> int:
    """Append a chain of nodes below `tip`, each as its parent's number; returns the new tip."""
    for _ in range(n_blocks):
        nodes.append(tip)
        tip = len(nodes) - 1
    return tip


def _tree(nodes: list[int]) -> PrefixTree:
    depth = np.zeros(len(nodes), dtype=np.int32)
    for node in range(1, len(nodes)):
        depth[node] = depth[nodes[node]] + 1
    numbers = np.arange(len(nodes))
    return PrefixTree(np.array(nodes, dtype=np.uint32), depth, numbers.astype(np.uint64), numbers)
