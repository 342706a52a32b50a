"""What every session of a workload takes alone: one engine, nothing in its cache, the gaps as they are.

One run more, not one per session: sessions follow each other on one engine, each with content of its own, so
that none finds what another left. What others left is evicted before anything of the session's own, as blocks
that were never used would be: the engine is as good as empty. It has no KV tiers and no router to wait for,
and no prefill_schedule_interval, whose beat would depend on who came before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numba import njit

from agentctl.analyzers.words import percent
from agentctl.cluster import Cluster
from agentctl.metrics import Isolated, isolated_of
from agentctl.policies.base import load_policy
from agentctl.present import Section, Table, Value
from agentctl.sim.driver import simulate
from agentctl.trace import PrefixTree
from agentctl.workload import Workload
from agentctl.workload.arrays import first_children


def isolated(workload: Workload, cluster: Cluster) -> Isolated:
    """TTFET, completion time and last-turn TBT of every session, alone on an engine of the first pool that
    decodes."""
    pool = next(pool for pool in cluster.pools if pool.role != "prefill")
    one = Cluster((replace(pool, engines=1, role="both", prefill_schedule_interval=1),))
    alone = replace(strangers(workload), replay="closed-loop")
    return isolated_of(simulate(alone, one, load_policy("round-robin"), concurrency=1).run())


def strangers(workload: Workload) -> Workload:
    """The same workload, but no session has content of another: nodes that several use are copied."""
    tree, old = workload.tree, workload.requests
    is_own = old.session[old.parent] == old.session
    own_parent = np.where((old.parent >= 0) & is_own, old.parent, -1).astype(np.int32)
    requests = old._replace(parent=own_parent, confirmed_child=first_children(own_parent))
    if tree.parent.size == 1:
        return replace(workload, requests=requests, as_logged=None)
    by_session = np.argsort(old.session, kind="stable")
    above, tip, nothing = tree.parent.astype(np.int64), old.tip.astype(np.int64), np.empty(0, np.int64)
    size = _copy(above, tip, old.session, by_session, nothing, nothing, tip.copy())
    parent, source, own_tip = np.zeros(size, np.int64), np.zeros(size, np.int64), tip.copy()
    _copy(above, tip, old.session, by_session, parent, source, own_tip)
    copied = PrefixTree(
        parent=parent.astype(np.uint32),
        depth=tree.depth[source],
        hash=np.arange(size, dtype=np.uint64),
        first_row=tree.first_row[source],
    )
    requests = requests._replace(tip=own_tip.astype(np.uint32))
    return replace(workload, tree=copied, requests=requests, as_logged=None)


@njit(cache=True)
def _copy(above, tip, session, by_session, parent, source, own_tip):  # type: ignore[no-untyped-def]
    """Fill the copied tree (`parent`; `source`: which node each copies) and the tips; returns its size.

    Empty arrays: it only counts. Parents get smaller numbers than their children, as in every tree.
    """
    n, counts = 1, parent.size == 0
    place = np.zeros(above.size, np.int64)  # of a node's copy, and whose it is
    owner = np.full(above.size, -1, np.int64)
    path = np.empty(above.size, np.int64)
    for r in by_session:
        node, length = tip[r], 0
        while node != 0 and owner[node] != session[r]:
            path[length] = node
            length += 1
            node = above[node]
        for k in range(length - 1, -1, -1):
            node = path[k]
            owner[node], place[node] = session[r], n
            if not counts:
                parent[n], source[n] = place[above[node]], node
            n += 1
        own_tip[r] = place[tip[r]] if tip[r] != 0 else 0
    return n


def isolated_section(metrics: dict[str, Any]) -> Section:
    """Of the metrics of a run with `isolated`."""
    times = {"ttfet": "TTFET", "session": "session", "tbt_last_turn": "token gap, last turn"}
    keys = {label: f"{key}_x_isolated" for key, label in times.items()}
    rows: list[tuple[Value, ...]] = [
        (label, metrics[key]["n"], metrics[f"{key}_gmean"]["value"], metrics[key]["p50"], metrics[key]["p95"],
         metrics[f"{key}_above_5"]["value"])
        for label, key in keys.items()
    ]  # fmt: skip
    turns = [
        (label, *(metrics[key][column] for column in ("n", "mean", "p50", "p95")))
        for key, label in (
            ("ttft_first_turn_s", "first turn"),
            ("ttft_first_turn_unqueued_s", "first turn, without its queue"),
            ("ttft_last_turn_s", "last turn"),
            ("ttft_last_turn_unqueued_s", "last turn, without its queue"),
        )
    ]
    found, above = metrics["ttfet_x_isolated"], metrics["ttfet_x_isolated_above_5"]["value"]
    sentence = "No session was served."
    if found["n"]:
        sentence = (
            f"The first token of a session's last turn comes {found['p50']:.3g} times as late as for the "
            f"session alone (median; p95 {found['p95']:.3g} times); {percent(above)} of the sessions are "
            "above 5 times, ConServe's objective."
        )
    head = (("times alone", ""), ("sessions", "count"), ("geometric mean", ""), ("p50", ""), ("p95", ""),
            ("above 5", "ratio"))  # fmt: skip
    of_turns = (("TTFT", ""), ("sessions", "count"), ("mean", "s"), ("p50", "s"), ("p95", "s"))
    tables = (Table(head, tuple(rows)), Table(of_turns, tuple(turns)))  # type: ignore[arg-type]
    return Section("isolated", "Against every session alone", sentence, tables=tables)
