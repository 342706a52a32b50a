"""The state of hand-overs between pools: who is where, and the network between them.

A request that is handed over is two jobs: n + r computes its prompt and emits one token, r decodes
(agentctl.sim.pooled). Where all engines do both there are neither second jobs nor records of pairs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster
from agentctl.errors import ConfigError

NONE = -1
# Where the decode half of a request stands: its KV is on the way, or here and the request not yet running.
AWAY, QUEUED, MOVING, HERE = range(4)

PAIR = np.dtype(
    [
        ("answer", "i8"),  # the policy's, agentctl.sim.roles
        ("arrived", "f8"),  # when the request came; its jobs' arrivals are when they were sent
        ("prefill", "i4"), ("decode", "i4"),  # engines; NONE: not handed over, or not known yet
        ("standing", "i4"),
        ("moved", "i4"),  # tokens
        ("began", "f8"), ("ended", "f8"),  # the transfer
        ("top", "i8"), ("n_unnamed", "i8"),  # what the prefill engine holds of it until then
        ("is_over", "?"),  # its first token is out
    ],
    align=True,
)  # fmt: skip
DOCK = np.dtype([("n_moving", "i8"), ("n_here", "i8")], align=True)  # of an engine
NETWORK = np.dtype(
    [
        ("link", "i8"),  # its number among links
        ("s_per_token", "f8"), ("latency", "f8"),
        ("n_asks", "i8"),  # whose decoder is to be chosen now
        ("n_waiting", "i8"),  # at the router
        ("again", "?"),  # KV moved in no time: an engine that has had its turn may have room now
    ],
    align=True,
)  # fmt: skip


class PairState(NamedTuple):
    pairs: NDArray  # PAIR [request]
    docks: NDArray  # DOCK [engine]
    network: NDArray  # NETWORK, one record
    asks: NDArray[np.int64]  # requests, of which the first n_asks count
    waiting: NDArray[np.int64]  # and n_waiting
    over: NDArray[np.int64]  # requests in the order in which they ended
    sides: NDArray  # SIDES of agentctl.sim.splitting, one record


def has_roles(cluster: Cluster | None) -> bool:
    return cluster is not None and any(pool.role != "both" for pool in cluster.pools)


def make_pairs(
    cluster: Cluster | None, n_requests: int, n_engines: int, link: int, is_needed: bool, sides: NDArray
) -> PairState:
    """Nothing handed over. Raises ConfigError where a hand-over would take nobody knows how long."""
    n = n_requests if is_needed else 0
    network = np.zeros(1, NETWORK)
    network["link"] = link
    if cluster is not None and has_roles(cluster):
        network["s_per_token"], network["latency"] = _network_of(cluster)
    pairs = np.zeros(n, PAIR)
    for name in ("prefill", "decode"):
        pairs[name] = NONE
    for name in ("arrived", "began", "ended"):
        pairs[name] = np.nan
    arrays: tuple[Any, ...] = (
        pairs, np.zeros(n_engines if is_needed else 1, DOCK), network, np.zeros(n, np.int64),
        np.zeros(n, np.int64), np.zeros(n_requests, np.int64), sides,
    )  # fmt: skip
    return PairState(*(array.view(np.recarray) if array.dtype.fields else array for array in arrays))


def _network_of(cluster: Cluster) -> tuple[float, float]:
    """Seconds per token that moves, and the latency."""
    named = ((pool.model or pool.profile.model, pool.name) for pool in cluster.pools)
    models = {model: name for model, name in named if model is not None}
    if len(models) > 1:
        told = ", ".join(f"{name} has {model}" for model, name in models.items())
        raise ConfigError(
            f"KV moves between pools of different models: {told}",
            place="[[pool]] model",
            expected="one model in all pools: what one has computed another cannot read",
        )
    sizes = {pool.profile.kv_bytes_per_token for pool in cluster.pools}
    size = sizes.pop()
    if sizes or size is None:
        raise ConfigError(
            "pools have KV of different sizes" if sizes else "the size of a token's KV is not known",
            place="[network]",
            expected="kv_bytes_per_token in every profile, and the same",
        )
    if cluster.network is None:
        raise ConfigError(
            "missing, and KV moves between pools of different roles",
            place="[network]",
            expected="bytes_per_s, and latency_s if it has any",
            hint="write [network] and bytes_per_s = 25e9, or what yours is, into the cluster file",
        )
    return size / cluster.network.bytes_per_s, cluster.network.latency_s
