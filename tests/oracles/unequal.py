"""Clusters whose engines differ: in speed, limits, power, cap and clock, one engine to a pool."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace

import pytest
from hypothesis import strategies as st
from oracles import (
    random_clusters,
    reference_pool_engine,
    reference_pools,
    reference_sglang,
    reference_simulator,
    reference_tiered_pools,
    reference_tiers,
)
from oracles.power import Power, lookup, smooth
from oracles.reference_energy import Metered, MeteredEngine

from agentctl.cluster import Cluster
from agentctl.estimators.power_model import Phases, PowerModel
from agentctl.sim import energy_state


class MeteredSglangEngine(Metered, reference_sglang.Engine):
    pass


class MeteredTieredEngine(Metered, reference_tiers.TieredEngine):
    pass


class MeteredTieredCluster(reference_tiers.TieredCluster):
    engine_type = MeteredTieredEngine


class MeteredPoolEngine(Metered, reference_pool_engine.PoolEngine):
    pass


class MeteredPoolCluster(reference_pools.PoolCluster):
    engine_type = MeteredPoolEngine


class MeteredTieredPoolEngine(Metered, reference_tiered_pools.TieredPoolEngine):
    pass


class MeteredTieredPoolCluster(reference_tiered_pools.TieredPoolCluster):
    engine_type = MeteredTieredPoolEngine


class MeteredCluster(reference_simulator.Cluster):
    engine_type = MeteredEngine


class MeteredSglangCluster(reference_sglang.Cluster):
    engine_type = MeteredSglangEngine


@st.composite
def unequal_cases(draw: st.DrawFn, exact_times: bool = True, sglang: bool = False) -> random_clusters.Case:
    """As random_clusters.cases, with 2 or 3 engines of limits of their own."""
    case = draw(random_clusters.cases(exact_times, sglang))
    block, longest = case.limits[0].block_tokens, max(r.prompt + r.output for r in case.requests)
    of_engine = random_clusters._sglang_limits if sglang else random_clusters._limits
    others = [draw(of_engine(block, longest, exact_times, False)) for _ in range(draw(st.integers(1, 2)))]
    limits = [case.limits[0], *others]
    return replace(case, limits=limits, cluster=cluster_of(limits, case.settings))


def cluster_of(limits: list, settings) -> Cluster:
    parts = [random_clusters.cluster_of([one], settings) for one in limits]
    pools = tuple(replace(part.pools[0], name=f"p{e}") for e, part in enumerate(parts))
    return replace(parts[0], pools=pools)


@st.composite
def powers(draw: st.DrawFn, b0: float) -> tuple[Power, PowerModel] | None:
    """A judge's power and the product's of one engine, under a cap and a lock or free; or unknown."""
    kind = draw(st.sampled_from(["smooth", "smooth", "table", "phases", "unknown"]))
    watts = st.floats(20, 700)
    cap = draw(st.one_of(st.just(math.inf), st.just(math.inf), st.floats(60, 500)))
    lock = draw(st.sampled_from([1.0, 1.0, 0.8, 0.4]))
    own = {"a": draw(st.sampled_from([2.0, 1.7, 3.0])), "s": draw(st.sampled_from([0.0, 0.6, 1.0])),
           "f_min": 0.12, "cap": cap, "lock": lock,
           "weights_s": b0 * draw(st.sampled_from([1.0, 0.37]))}  # fmt: skip
    idle = draw(st.floats(10, 120))
    nothing = {"sizes": ((math.inf, 0.0, 0.0),), "uses": ((math.inf, 0.0),), "pairs_w": 0.0}
    phases = None
    if kind == "unknown":
        return None
    if kind == "smooth":
        Pc, Pm = draw(watts), draw(watts)
        judged = smooth(idle, Pc, Pm, **own)
        parts = {"sizes": ((math.inf, Pm, Pc),), "uses": ((math.inf, Pm),), "pairs_w": Pc}
    elif kind == "table":
        gemm, read = [draw(watts) for _ in range(3)], [draw(watts) for _ in range(3)]
        sizes, uses = (1, 7, math.inf), (0.2371, 0.6113, math.inf)
        pairs = draw(watts)
        judged = lookup(
            idle, [(most, idle + w) for most, w in zip(sizes, gemm, strict=True)],
            [(most, idle + w) for most, w in zip(uses, read, strict=True)], idle + pairs, **own,
        )  # fmt: skip
        parts = {"sizes": tuple((most, w, w) for most, w in zip(sizes, gemm, strict=True)),
                 "uses": tuple(zip(uses, read, strict=True)), "pairs_w": pairs}  # fmt: skip
    else:
        above = [draw(watts) for _ in range(3)]
        kinds = dict(zip(("prefill", "decode", "mixed"), (idle + w for w in above), strict=True))
        judged, parts = smooth(idle, 0.0, 0.0, phases=kinds, **own), nothing
        phases = Phases(*above)
    model = PowerModel(
        "literature", "drawn", idle, own["weights_s"], **parts, phases=phases, clock_source="literature",
        clock_exponent=own["a"], memory_clock_share=own["s"], least_ratio=own["f_min"], cap_w=cap, lock=lock,
    )  # fmt: skip
    return judged, model


@contextmanager
def with_powers(cluster: Cluster, models: list):
    """The product's pools draw what `models` say; None: nobody knows."""
    of_pool = {pool.name: model for pool, model in zip(cluster.pools, models, strict=True)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(energy_state, "power_of", lambda pool: of_pool[pool.name] or "drawn to be unknown")
        yield
