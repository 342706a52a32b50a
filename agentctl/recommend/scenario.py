"""How one run differs from the trace on the cluster as described, and what that makes of both."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from agentctl.cluster import Cluster
from agentctl.errors import ConfigError
from agentctl.estimators.batch_time import BatchTime
from agentctl.profile import Profile
from agentctl.workload import Workload, at_rate, resample, scale_load, take_sessions

MOST_TRIES = 1000  # draws until one has no negative coefficient


@dataclass(frozen=True)
class Scenario:
    """
    replicate   0: the trace itself, n: its n-th resample
    draw        0: the profile's coefficients, n: the n-th draw from their covariance
    slow        factor on every batch time
    staleness   factor on the age of metrics and of the prefix index
    gateways    None: as the cluster says
    ties        added to the seed of what is random in a policy
    think       factor on the gaps between turns
    variant     how a higher load is made of recorded starts (workload.load.VARIANTS)
    lost        engines that are gone
    """

    replicate: int = 0
    draw: int = 0
    slow: float = 1.0
    staleness: float = 1.0
    gateways: int | None = None
    ties: int = 0
    think: float = 1.0
    variant: str = "shift"
    lost: int = 0


def workload_in(scenario: Scenario, trace: Workload, load: float, seed: int) -> Workload:
    """The trace's workload, redrawn, at `load` times its rate of session starts.

    Where a process makes the starts, each replicate has its own.
    """
    drawn = trace if scenario.replicate == 0 else resample(trace, seed + scenario.replicate)
    if scenario.think != 1:
        drawn = replace(drawn, requests=drawn.requests._replace(gap=drawn.requests.gap * scenario.think))
    if drawn.arriving:
        own = seed + scenario.replicate
        return drawn if load == 1 and scenario.replicate == 0 else at_rate(drawn, load, own)
    return at_load(drawn, load, seed, scenario.variant)


def at_load(workload: Workload, load: float, seed: int, variant: str = "shift") -> Workload:
    """The workload at a multiple of its session start rate.

    Synthesised starts are spread out for a lower rate, which keeps all sessions; recorded ones are thinned.
    """
    if workload.starts_synthesised and load < 1:
        starts = workload.session_starts()
        spread = starts.min() + (starts - starts.min()) / load
        return take_sessions(workload, np.arange(workload.n_sessions), spread)
    return scale_load(workload, load, seed, variant)


def cluster_in(scenario: Scenario, cluster: Cluster, seed: int) -> Cluster:
    """The settled cluster as it truly is in this scenario; its policy was configured for the other one."""
    router, pools = cluster.router, cluster.pools
    if scenario.staleness != 1:
        ages = ("metrics_interval_s", "metrics_delay_s", "index_delay_s")
        router = replace(
            router, **{key: scenario.staleness * age for key in ages if (age := getattr(router, key))}
        )
    if scenario.gateways is not None:
        router = replace(router, gateways=scenario.gateways)
    if scenario.draw or scenario.slow != 1:
        pools = tuple(replace(pool, profile=_other(pool.profile, scenario, seed)) for pool in pools)
    if scenario.lost:
        pools = (replace(pools[0], engines=pools[0].engines - scenario.lost), *pools[1:])
    return replace(cluster, router=router, pools=pools)


def _other(profile: Profile, scenario: Scenario, seed: int) -> Profile:
    c = drawn_coefficients(profile, seed, scenario.draw) if scenario.draw else profile.batch_time
    slower = {key: scenario.slow * value for key, value in c._asdict().items() if key != "model"}
    return replace(profile, batch_time=c._replace(**slower))


def covariance_of(profile: Profile) -> tuple[tuple[str, ...], np.ndarray] | None:
    """Names and covariance matrix of the coefficients, None when the profile has none.

    Raises ConfigError when it is no covariance: of unknown names, not square, not finite, not symmetric or
    with a negative direction.
    """
    table = profile.fit.get("covariance")
    if table is None:
        return None
    place = f"profile {profile.name}: [batch_time.fit] covariance"
    if not isinstance(table, Mapping) or not {"names", "matrix"} <= set(table):
        raise ConfigError("is no covariance", place=place, expected="names = [...] and matrix = [[...], ...]")
    names = tuple(table["names"]) if isinstance(table["names"], list) else ()
    known = set(BatchTime._fields) - {"model"} | {"b_token"}
    if not names or len(set(names)) != len(names) or not set(map(str, names)) <= known:
        raise ConfigError(
            "names other coefficients", place=f"{place}.names", expected=", ".join(sorted(known))
        )
    matrix = _matrix(table["matrix"], len(names), f"{place}.matrix")
    scale = np.sqrt(np.abs(np.diag(matrix)))
    scale[scale == 0] = 1.0
    if np.abs(matrix - matrix.T).max() > 1e-6 * np.abs(matrix).max() or (
        np.linalg.eigvalsh(matrix / np.outer(scale, scale)).min() < -1e-6
    ):
        raise _no_covariance("is not the covariance of anything", f"{place}.matrix")
    return names, (matrix + matrix.T) / 2


def _matrix(rows: Any, n: int, place: str) -> np.ndarray:
    is_square = isinstance(rows, list) and len(rows) == n
    if not is_square or not all(isinstance(row, list) and len(row) == n for row in rows):
        raise _no_covariance("is not square", place)
    numbers = [value for row in rows for value in row]
    if not all(isinstance(x, int | float) and not isinstance(x, bool) and math.isfinite(x) for x in numbers):
        raise _no_covariance("holds what is no finite number", place)
    return np.array(rows, dtype=np.float64)


def _no_covariance(fact: str, place: str) -> ConfigError:
    return ConfigError(
        fact, place=place, expected="a symmetric matrix of finite numbers, no variance negative",
        hint="calibrate again (agentctl calibrate steps), or leave the covariance out: then it is not varied",
    )  # fmt: skip


def drawn_coefficients(profile: Profile, seed: int, draw: int) -> BatchTime:
    """The coefficients as they might be: normal about the estimate, none negative."""
    found = covariance_of(profile)
    if found is None:
        return profile.batch_time
    names, matrix = found
    c = profile.batch_time
    centre = np.array([c.b_prefill if name == "b_token" else getattr(c, name) for name in names])
    scale = np.sqrt(np.diag(matrix).clip(0))
    scale[scale == 0] = 1.0
    squares, axes = np.linalg.eigh(matrix / np.outer(scale, scale))
    roots = axes * np.sqrt(squares.clip(0))
    random = np.random.Generator(np.random.PCG64([seed, draw]))
    for _ in range(MOST_TRIES):
        values = centre + scale * (roots @ random.standard_normal(len(names)))
        drawn = _within_model(c, dict(zip(names, map(float, values), strict=True)))
        if (values >= 0).all() and drawn.b0 + drawn.h0 > 0:
            return drawn
    raise ConfigError(
        "draws from it are always negative somewhere",
        place=f"profile {profile.name}: [batch_time.fit] covariance",
        hint="a calibration this uncertain says nothing: calibrate from a longer log",
    )


def _within_model(c: BatchTime, drawn: dict[str, float]) -> BatchTime:
    """What a model does not tell apart stays equal."""
    if "b_token" in drawn:
        drawn["b_prefill"] = drawn["b_decode"] = drawn.pop("b_token")
    if "b_context_mixed" not in drawn and "b_context" in drawn and c.b_context_mixed == c.b_context:
        drawn["b_context_mixed"] = drawn["b_context"]
    return c._replace(**drawn)  # type: ignore[arg-type]
