"""What a simulated cluster keeps where pools have different models (agentctl.workload.Fleet).

Without a fleet one record of each stands there, and nothing looks at them.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import ConfigError
from agentctl.sim.sight import Sight
from agentctl.workload import Fleet, Remaining


def _record(**fields: str) -> np.dtype:
    return np.dtype(list(fields.items()), align=True)


SFS, THROUGHPUT, SCORE_PROXY, LPS, LPS_PAPER = range(5)
ESTIMATORS = ("sfs", "throughput", "score-proxy", "lps", "lps-paper")  # agentctl.estimators.ttft has them
NO_ESTIMATOR = -1

FLEET = _record(
    is_on="?",
    estimator="i8",  # what the router believes; NO_ESTIMATOR
    audits="?",  # every estimator is asked about the engine that a request is sent to
    miss_share="f8",  # of requests whose first token may come later than `ttft_high_s`; NaN: not asked
    lam="f8",  # of the utility, per millionth of a dollar
    lost="i8",  # requests on one engine for which there was no room (then the run is void)
)  # fmt: skip
# A request on a pool; cost in millionths of a dollar.
OFFER = _record(prompt="i4", output="i4", predicted="i4", accuracy="f8", cost="f8")
# What its router believed when it was sent, and what is left of that.
FORECAST = _record(
    tau="f8", ttft="f8",  # s
    predicted="i8",  # tokens of the answer, on the pool that it was sent to
    next_sent="i4",  # the gateway's next request to the same engine
)  # fmt: skip
# What the gateway believes of the request at hand on an engine.
BELIEF = _record(accuracy="f8", cost="f8", ttft="f8", ttft_high="f8")
# An engine on average, the replay's scratch state, and how far first tokens come behind what was believed.
MEAN = _record(
    prefill_tokens_per_s="f8", decode_tokens_per_s="f8", decode_step_s="f8",
    scratch="i8",  # its address, 0: none
    margin="f8",  # log(actual / believed) that all but a share of requests stay below
)  # fmt: skip
PULSE = _record(per_s="f8", begin="f8", count="i8")  # events: agentctl.estimators.ttft.EventRate
# A request on an engine as agentctl.estimators.sfs_replay reads it, and the engine; tokens, blocks, seconds.
SEEN = _record(
    prompt="i8", output="i8", emitted="i8", computed="i8", in_flight="i8", own_blocks="i8", hit="i8",
    priority="i8",
    arrival="f8",  # of one that is not in the snapshot yet: when it joins the queue
)  # fmt: skip
HEAD = _record(
    n_running="i8", n_waiting="i8", free_blocks="i8", executed="i8",
    taken="f8",
    batch_started="f8",  # NaN: none is in flight
)  # fmt: skip
MOST_SEEN = 1 << 16  # requests on one engine; with more, a replay takes long
ARRIVED, ENDED = 0, 1  # pulses


class FleetState(NamedTuple):
    """Fields of State."""

    fleet: NDArray  # FLEET, one record
    offers: NDArray  # OFFER [request, pool]
    forecasts: NDArray  # FORECAST [request]
    beliefs: NDArray  # BELIEF [gateway, engine]
    means: NDArray  # MEAN [engine]
    waits: NDArray[np.float64]  # [engine, rates or waits, point] of agentctl.workload.PoolMeans
    pulses: NDArray  # PULSE [engine, arrived or ended]
    audits: NDArray[np.float64]  # [request, estimator] s
    # agentctl.workload.Remaining; without it no point
    left_predicted: NDArray[np.float64]
    left_emitted: NDArray[np.float64]
    left_tokens: NDArray[np.float64]
    heads: NDArray  # HEAD, one record: scratch
    seen: NDArray  # SEEN: scratch
    numbers: NDArray[np.int64]  # of those: scratch
    late_seen: NDArray  # SEEN: scratch, those sent since
    # with metrics that are not always fresh: what engines published, and what was sent since
    shot_heads: NDArray  # HEAD [publish mod their number, engine]
    shots: NDArray  # SEEN [publish mod their number, engine, place]
    shot_sent: NDArray[np.int64]  # [publish mod their number, gateway, engine] the last request sent, NONE
    sent_ends: NDArray[np.int64]  # [gateway, engine, first or last] request sent, NONE


def make_fleet(
    fleet: Fleet | None,
    pool_of_engine: NDArray[np.int64],
    sight: Sight,
    n_published: int,
    free_blocks: NDArray[np.int64],
) -> FleetState:
    """An idle fleet. `n_published` rows of what engines publish, as the rest of the state has them."""
    k, is_on, n_gateways, interval = (
        pool_of_engine.size,
        fleet is not None,
        sight.gateways,
        sight.metrics_interval_s,
    )
    n, n_pools = fleet.prompt_tokens.shape if fleet is not None else (1, 1)
    n_seen = min(n, MOST_SEEN) if is_on else 1
    n_rows = n_published if is_on and interval > 0 else 1
    head = np.zeros(1, FLEET)
    head["is_on"], head["estimator"] = is_on, NO_ESTIMATOR
    head["miss_share"] = math.nan
    offers, forecasts, means = np.zeros((n, n_pools), OFFER), np.zeros(n, FORECAST), np.zeros(k, MEAN)
    forecasts["tau"] = forecasts["ttft"] = math.nan
    forecasts["next_sent"] = -1
    waits, pulses = np.full((k, 2, 1), math.inf), np.zeros((k, 2), PULSE)
    none = np.zeros(0)
    left = Remaining(none, none, np.zeros((0, 0)))
    if fleet is not None:
        head["estimator"] = NO_ESTIMATOR if sight.estimator is None else ESTIMATORS.index(sight.estimator)
        head["lam"] = fleet.lam_per_microdollar
        head["audits"], head["miss_share"] = sight.audits, sight.miss_share
        offers["prompt"], offers["output"] = fleet.prompt_tokens, fleet.output_tokens
        offers["predicted"], offers["accuracy"] = fleet.predicted_output, fleet.accuracy
        offers["cost"], forecasts["tau"] = fleet.predicted_cost, fleet.tau_s
        left = left if fleet.remaining is None else fleet.remaining
        if fleet.means is not None:
            waits = np.stack([fleet.means.rates, fleet.means.waits], axis=1)[pool_of_engine]
            for name in ("prefill_tokens_per_s", "decode_tokens_per_s", "decode_step_s"):
                means[name] = getattr(fleet.means, name)[pool_of_engine]
            pulses["per_s"][:, ARRIVED] = fleet.means.arrivals_per_s[pool_of_engine]
            pulses["per_s"][:, ENDED] = fleet.means.completions_per_s[pool_of_engine]
        elif sight.audits or head["estimator"][0] > SFS:
            raise ConfigError(
                "what its engines do on average is not known",
                place="the fleet",
                hint="agentctl.fleet.measured makes it",
            )
    shot_heads = np.zeros((n_rows, k), HEAD)
    shot_heads["free_blocks"], shot_heads["batch_started"] = free_blocks, math.nan
    asks = is_on and (sight.audits or sight.estimator is not None)
    audits = np.full((n if is_on and sight.audits else 1, len(ESTIMATORS)), math.nan)
    shots = np.empty((n_rows, k, n_seen if asks and interval > 0 else 1), SEEN)
    arrays: tuple[NDArray, ...] = (
        head, offers, forecasts, np.full((n_gateways, k), math.nan, BELIEF), means, waits, pulses, audits,
        *(np.ascontiguousarray(one, np.float64) for one in left), np.zeros(1, HEAD), np.empty(n_seen, SEEN),
        np.empty(n_seen, np.int64), np.empty(n_seen + 1, SEEN), shot_heads, shots,
        np.full((n_rows, n_gateways, k), -1), np.full((n_gateways, k, 2), -1),
    )  # fmt: skip
    return FleetState(*(array.view(np.recarray) if array.dtype.fields else array for array in arrays))
