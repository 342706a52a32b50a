"""What every engine does, written down now and then: the source of figures and metrics over time.

A sample shows the state after what ended at its instant and before anything arrives, as a publish does
(agentctl.sim.router). How long a run will last is unknown: when there is no room for more samples, every
second one is dropped and they are taken half as often. What is simulated does not depend on any of this.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from agentctl.metrics import Samples
from agentctl.sim.jit import kernel
from agentctl.sim.router import catch_up
from agentctl.sim.state import SAMPLE, State

FIRST_SAMPLES = 256  # over the logged arrivals
SHORTEST_S = 1 / 1024  # where these say nothing of the run's length


def first_samples(logged: NDArray[np.float64], concurrency: int | None) -> tuple[float, float]:
    """(instant of the first sample, s between samples at first)."""
    if concurrency is not None or not logged.size:
        return 0.0, SHORTEST_S  # a closed loop starts at 0
    return float(logged.min()), float(np.ptp(logged)) / FIRST_SAMPLES or SHORTEST_S


def sample_from(s: State, begin: float, width: float) -> None:
    """Take samples from `begin` on, `width` apart at first."""
    s.sampling["begin"], s.sampling["width"], s.sampling["due"] = begin, width, begin


def samples_of(s: State) -> Samples:
    sampling, n = s.sampling[0], int(s.sampling["n"][0])
    time: NDArray[np.float64] = sampling["begin"] + np.arange(n) * sampling["width"]
    assert SAMPLE.names is not None
    columns = {name: s.samples[name][:n].copy() for name in SAMPLE.names}
    return Samples(time_s=time, **columns, kv_total_blocks=s.limits["usable_blocks"].copy())


@kernel
def sample(s, now, at_now, settle):
    """Take the samples due before `now` (`at_now`: and the one due now)."""
    sampling = s.sampling[0]
    while sampling.due < now or (at_now and sampling.due == now):
        if sampling.n == s.samples.shape[0]:
            _thin(s)
            continue
        for e in range(s.engines.size):
            catch_up(s, e, sampling.due, settle)
            engine, one = s.engines[e], s.samples[sampling.n, e]
            one.waiting_requests = engine.waiting_requests
            one.running_requests = engine.running_requests
            one.pending_prefill_tokens = engine.pending_prefill_tokens
            one.context_tokens = engine.context_tokens
            one.kv_used_blocks = engine.kv_total_blocks - engine.n_free
            one.emitted_tokens = engine.emitted_tokens
        sampling.n += 1
        sampling.due = sampling.begin + sampling.n * sampling.width


@kernel
def _thin(s):
    """Drop every second sample and take them half as often from now on."""
    sampling = s.sampling[0]
    sampling.n = (sampling.n + 1) // 2
    for k in range(sampling.n):
        for e in range(s.engines.size):
            kept, one = s.samples[2 * k, e], s.samples[k, e]
            one.waiting_requests = kept.waiting_requests
            one.running_requests = kept.running_requests
            one.pending_prefill_tokens = kept.pending_prefill_tokens
            one.context_tokens = kept.context_tokens
            one.kv_used_blocks = kept.kv_used_blocks
            one.emitted_tokens = kept.emitted_tokens
    sampling.width *= 2
    sampling.due = sampling.begin + sampling.n * sampling.width
