"""The back-test (V1): the log's own placement at the log's own load, simulated and compared with the log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl

from agentctl.cluster import Cluster
from agentctl.errors import ConfigError
from agentctl.logged import LEAST_PLACED, LoggedRun, engines_in
from agentctl.policies._settings import settled
from agentctl.policies.base import Policy
from agentctl.profile import Profile
from agentctl.sim.outcome import Outcome
from agentctl.trace import Trace
from agentctl.validate.compare import (
    LATENCIES,
    Bin,
    Errors,
    Gauge,
    Hits,
    Pairs,
    bins_of,
    errors_of,
    gauges_of,
    hits_of,
    load_at_arrival,
)
from agentctl.validate.intervals import Blocks, Estimate, time_blocks
from agentctl.workload.compile import SIMULATED

Status = Literal["OK", "WARN", "FAIL", "UNVALIDATED"]

WARN, FAIL = 0.10, 0.20  # largest relative error of JUDGED, beyond which V1 warns and fails
HIT_WARN, HIT_FAIL = 0.02, 0.05  # gap of the hit ratio
JUDGED = tuple((name, percent) for name in ("ttft_s", "e2e_s") for percent in ("p50", "p95"))
MOST_REJECTED = 0.01  # share of the requests that the log's engines served and the simulated ones cannot hold
LIMITS = ("block_tokens", "kv_blocks", "max_num_batched_tokens", "max_num_seqs", "max_model_len")


@dataclass(frozen=True)
class Compared:
    """What a back-test found. `policy`: None under the log's placement.

    rejected  requests that the log's engines served and the simulated ones can never hold
    in_sample the profile was fitted to this very log
    no_hits   why hits were not compared, in words
    """

    outcome: Outcome
    cluster: Cluster
    policy: str | None
    engines: tuple[str, ...]  # as the log names them
    n_guessed: int
    rejected: int
    served: int
    pairs: Pairs
    blocks: Blocks
    errors: Mapping[str, Errors]
    hits: Hits | None
    bins: tuple[Bin, ...]
    gauges: Mapping[str, Gauge]
    in_sample: bool
    no_hits: str | None


@dataclass(frozen=True)
class BackTest:
    """V1's verdict.

    worst    (latency, percentile) of the largest relative error, and that error with its interval
    why_not  why nothing was compared, with its cure; then everything else is None
    """

    status: Status
    why_not: str | None = None
    worst: tuple[str, str] | None = None
    error: Estimate | None = None
    compared: Compared | None = None
    of: str = "log"  # what was compared, in words

    @property
    def hit_gap(self) -> float | None:
        hits = self.compared.hits if self.compared else None
        return hits.gap.value if hits else None


def back_test(
    trace: Trace,
    cluster: Cluster,
    current: Policy | None = None,
    *,
    resize: bool = False,
    overhead_s: float = 0.0,
) -> BackTest:
    """Simulate the logged run on `cluster` and compare.

    The log's placement where it is known (one engine, or an engine on 99 % of the rows), else the policy
    `current`. resize: where the log names another number of engines, the cluster gets that many.
    overhead_s: of each logged TTFT and duration, spent outside the engine (a client's log). Status is
    UNVALIDATED, with the reason, for a log without latencies, with synthesised starts, without placement, or
    of other engines (`wrong_kind`).

    Raises InputError (token counts), ConfigError (other number of engines, what is not simulated).
    """
    names = engines_in(trace)
    placed = is_placed(trace, cluster.n_engines)
    if why := _why_not(trace, placed, current):
        return BackTest("UNVALIDATED", why)
    if wrong := wrong_kind(trace, cluster):
        return BackTest("UNVALIDATED", wrong.message)
    if placed and resize and names and len(names) != cluster.n_engines:
        if len(cluster.pools) > 1:
            why = f"the log names {len(names)} engines, the cluster has {cluster.n_engines} in several pools"
            return BackTest("UNVALIDATED", why)
        cluster = cluster.with_engines(len(names))
    policy = None if placed else current
    run = LoggedRun(trace, settled(cluster, policy) if policy else cluster, policy)
    outcome = run.simulate(observed=not trace.events().is_empty())
    return judged(_compare(trace, cluster, policy, run, outcome, overhead_s))


def is_placed(trace: Trace, n_engines: int) -> bool:
    """Whether the log says which engine served each request."""
    rows = trace.requests(["instance", "status"]).filter(pl.col("status").cast(pl.String).is_in(SIMULATED))
    missing = rows["instance"].null_count()
    return missing <= (1 - LEAST_PLACED) * rows.height or (missing == rows.height and n_engines == 1)


def wrong_model(trace: Trace, cluster: Cluster) -> ConfigError | None:
    """The log names models, and a profile's is none of them."""
    logged = {_short(name) for name in trace.requests(["model"])["model"].drop_nulls().cast(str).unique()}
    for pool in cluster.pools:
        profile = pool.profile
        if logged and profile.model and not _is_among(profile.model, logged):
            return ConfigError(
                f"is of {_short(profile.model)}, the log of {', '.join(sorted(logged)[:3])}",
                place=f"profile {profile.name}",
                expected="a profile of the model that was served",
                hint="where both are names of one model, leave `model` out of the profile",
            )
    return None


def wrong_kind(trace: Trace, cluster: Cluster) -> ConfigError | None:
    """Why these engines cannot be the log's: another model, or coefficients that only reproduce one log (of
    `calibrate log`) under limits that it did not have."""
    if wrong := wrong_model(trace, cluster):
        return wrong
    for pool in cluster.pools:
        profile = pool.profile
        for key in LIMITS if profile.predictive_only else ():
            own, used = getattr(profile, key), getattr(pool, key)
            if own is not None and used != own:
                return ConfigError(
                    f"is {used:,}, and the profile's coefficients reproduce a log of engines with {own:,}",
                    place=f"[pool] {pool.name} {key}",
                    expected=f"{own:,}: they are not known one by one (predictive_only)",
                    hint="calibrate from step logs, or from a log of engines with these limits",
                )
    return None


def _is_among(model: str, logged: set[str]) -> bool:
    """Whether one name holds the other: qwen3-8b and qwen3_8b-fp8 are taken for one model."""
    own, *names = ("".join(filter(str.isalnum, _short(name))) for name in (model, *sorted(logged)))
    return any(own in name or name in own for name in names if name)


def _short(name: str) -> str:
    return name.rpartition("/")[2].lower()


def _why_not(trace: Trace, placed: bool, current: Policy | None) -> str | None:
    if trace.meta.get("time", {}).get("origin") == "synthesised":
        return (
            "the log has no session starts (they are synthesised), so that the load of its run is not known"
        )
    measured = trace.requests(["ttft_s", "e2e_s"])
    if measured["ttft_s"].null_count() == measured["e2e_s"].null_count() == measured.height:
        return "the log has no measured latency (agentctl ingest --map ttft_s=FIELD or e2e_s=FIELD names one)"
    if not placed and current is None:
        return (
            "the log does not say which engine served a request; --current POLICY, on as many engines as "
            "there were, simulates its router, and agentctl ingest --map instance=FIELD names the engine"
        )
    return None


def _compare(
    trace: Trace,
    cluster: Cluster,
    policy: Policy | None,
    run: LoggedRun,
    outcome: Outcome,
    overhead_s: float,
) -> Compared:
    requests, logged = run.workload.requests, run.logged
    steps = np.where(requests.output_tokens > 1, requests.output_tokens - 1.0, np.nan)
    arrival = outcome.arrival_s
    ours = {
        "ttft_s": outcome.first_token_s - arrival + overhead_s,
        "e2e_s": outcome.finish_s - arrival + overhead_s,
        "queue_s": outcome.scheduled_s - arrival,
        "tpot_s": (outcome.finish_s - outcome.first_token_s) / steps,
    }
    theirs = {
        "ttft_s": logged.ttft_s,
        "e2e_s": logged.e2e_s,
        "queue_s": logged.queue_s,
        "tpot_s": (logged.e2e_s - logged.ttft_s) / steps,
    }
    done = outcome.done
    served = np.isfinite(theirs["ttft_s"]) | np.isfinite(theirs["e2e_s"])
    placement = run.placement
    engine = placement.engine if placement else np.zeros(arrival.size, np.int64)
    end = requests.arrival + theirs["e2e_s"]
    end = np.where(np.isfinite(end), end, outcome.finish_s)  # where the log has no end, the simulated one
    pairs = Pairs(
        arrival_s=requests.arrival,
        logged=theirs,
        simulated={name: np.where(done, values, np.nan) for name, values in ours.items()},
        prompt_tokens=requests.prompt_tokens.astype(np.float64),
        logged_hit=logged.cached_tokens.copy(),
        simulated_hit=np.where(done, outcome.found_tokens, np.nan),
        load=load_at_arrival(requests.arrival, np.where(np.isfinite(end), end, requests.arrival), engine),
    )
    no_hits = _why_no_hits(trace, run)
    if no_hits:
        pairs.logged_hit[:] = np.nan
    duration = theirs["e2e_s"] if np.isfinite(theirs["e2e_s"]).any() else pairs.simulated["e2e_s"]
    blocks = time_blocks(requests.arrival, duration)
    profiles = [pool.profile for pool in cluster.pools]
    return Compared(
        outcome=outcome,
        cluster=cluster,
        policy=policy.name if policy else None,
        engines=placement.names if placement else (),
        n_guessed=placement.n_guessed if placement else 0,
        rejected=int((served & ~done).sum()),
        served=int(served.sum()),
        pairs=pairs,
        blocks=blocks,
        errors={name: errors_of(name, pairs, blocks) for name in LATENCIES},
        hits=None if no_hits else hits_of(pairs, blocks),
        bins=bins_of(pairs, blocks),
        gauges=gauges_of(trace.events(), outcome.samples, placement.names if placement else ()),
        no_hits=no_hits,
        in_sample=any(_fitted_to(profile) == trace.digest for profile in profiles),
    )


def _why_no_hits(trace: Trace, run: LoggedRun) -> str | None:
    if np.isnan(run.logged.cached_tokens).all():
        return "the log does not say what was cached"
    if run.hits_as_logged and run.placement is not None:
        return "hits are simulated as the log counts them, for it has no block ids"
    return None if trace.block_tokens else "without block ids in the log hits are not simulated"


def _fitted_to(profile: Profile) -> str | None:
    """Digest of the trace that a profile of `calibrate log` was fitted to."""
    inputs = profile.provenance.get("inputs")
    return inputs.get("trace") if isinstance(inputs, dict) else None


def _why_nothing(found: Compared) -> str:
    if found.rejected == found.served > 0:
        return (
            f"none of the {found.served:,} requests that the log's engines served can ever fit a simulated "
            "one (are kv_blocks, block_tokens and max_model_len those of the log's engines?)"
        )
    return "no request has both a logged latency above 0 and a simulated one"


def judged(found: Compared) -> BackTest:
    """V1's statistic is the largest relative error over TTFT and E2E p50 and p95, and the hit gap."""
    known = {
        key: found.errors[key[0]].error[key[1]]
        for key in JUDGED
        if found.errors[key[0]].n and found.errors[key[0]].error[key[1]].value is not None
    }
    if not known:
        return BackTest("UNVALIDATED", _why_nothing(found), None, None, found)
    worst = max(known, key=lambda key: abs(known[key].value or 0.0))
    error = abs(known[worst].value or 0.0)
    gap = abs(found.hits.gap.value or 0.0) if found.hits else 0.0
    lost = found.rejected / found.served
    status: Status = "OK"
    if error > WARN or gap > HIT_WARN or lost > 0:
        status = "WARN"
    if error > FAIL or gap > HIT_FAIL or lost > MOST_REJECTED:
        status = "FAIL"
    return BackTest(status, None, worst, known[worst], found)
