"""Estimators of the time to the first token side by side: SFS, and the averages that it is compared with.

All have one signature, so that a router or an evaluation takes any of them by name from ESTIMATORS:
(snapshot, probe, now, averages) -> seconds. Formulas: SFS paper (arXiv 2607.18253) and its code, section by
section at the functions. Tokens found in the cache count as done in every one of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from agentctl.errors import InputError, UsageError
from agentctl.estimators.lps import Lps, estimate
from agentctl.estimators.sfs import Probe, estimate_ttft
from agentctl.estimators.sfs_snapshot import SeenRequest, Snapshot
from agentctl.estimators.steps import DECODE_ONLY, Steps

LONGEST_S = 60.0  # the paper's code answers this where its queue is unstable
WINDOW_S, WEIGHT = 1.0, 0.2  # of its moving averages


@dataclass(frozen=True)
class Averages:
    """What an engine does on average, from a calibration; the last three are of lps and lps-paper alone.

    prefill_tokens_per_s   prompt tokens over seconds from admission to the first token
    decode_tokens_per_s    tokens over seconds of batches of decodes only; decode_step_s: their mean seconds
    arrivals_per_s, completions_per_s   as of now (`EventRate`)
    queue                  limited processor sharing with load-dependent speed (agentctl.estimators.lps_batch)
    """

    prefill_tokens_per_s: float
    decode_tokens_per_s: float
    decode_step_s: float
    arrivals_per_s: float = 0.0
    completions_per_s: float = 0.0
    queue: Lps | None = None


def measure_averages(computed_tokens: np.ndarray, prefill_s: np.ndarray, steps: Steps) -> Averages:
    """From a calibration run: prompt tokens computed and seconds from admission to the first token of its
    requests, and its steps. Raises InputError without prefill or without batches of decodes only."""
    decodes = steps.at(steps.kind == DECODE_ONLY)
    if not (computed_tokens.sum() > 0 and prefill_s.sum() > 0 and len(decodes)):
        raise InputError("no prefill, or no batch of decodes only, in the calibration run")
    return Averages(
        float(computed_tokens.sum() / prefill_s.sum()),
        float(decodes.n_decode.sum() / decodes.seconds.sum()),
        float(decodes.seconds.mean()),
    )


class EventRate:
    """Events per second: the moving average (weight 0.2) of the counts in windows of one second.

    first   before a window has passed
    """

    def __init__(self, first: float, start_s: float = 0.0) -> None:
        self.per_s, self._begin, self._count = first, start_s, 0

    def at(self, now: float) -> float:
        """The average over the windows that have ended by `now`."""
        ended = int((now - self._begin) // WINDOW_S)
        if ended > 0:
            self.per_s += WEIGHT * (self._count / WINDOW_S - self.per_s)
            self.per_s *= (1 - WEIGHT) ** (ended - 1)  # windows without any
            self._begin += ended * WINDOW_S
            self._count = 0
        return self.per_s

    def add(self, now: float) -> None:
        """An event; times never go back."""
        self.at(now)
        self._count += 1


def sfs(snapshot: Snapshot, probe: Probe, now: float, averages: Averages) -> float:
    """The scheduler played until the first token; it needs no averages."""
    return estimate_ttft(snapshot, probe, now)


def throughput(snapshot: Snapshot, probe: Probe, now: float, averages: Averages) -> float:
    """Prefill that is left and one's own, at the mean prefill rate; one mean batch of decodes."""
    return _prefill_seconds(snapshot, probe, averages) + averages.decode_step_s


def score_proxy(snapshot: Snapshot, probe: Probe, now: float, averages: Averages) -> float:
    """The same, and all tokens that the residents have yet to decode at the mean decode rate. (The SCORE
    baseline of the paper's code; that the backlog includes one's own prefill is our reading.)"""
    left = sum(max(q.output_tokens - max(q.emitted_tokens, 1), 0) for q in snapshot.requests)
    decode = left / averages.decode_tokens_per_s
    return _prefill_seconds(snapshot, probe, averages) + decode + averages.decode_step_s


def lps(snapshot: Snapshot, probe: Probe, now: float, averages: Averages) -> float:
    """The mean wait of limited processor sharing with load-dependent speed at the present rate of arrivals,
    and one's own prefill at the mean rate. Where the queue is unstable: as long as the paper's code says."""
    if averages.queue is None:
        raise UsageError("lps needs the engine as a queue", place="averages.queue")
    wait: float | None = 0.0
    if averages.arrivals_per_s > 0:
        wait = estimate(averages.queue, averages.arrivals_per_s).wait
    return (LONGEST_S if wait is None else min(wait, LONGEST_S)) + _own_seconds(probe, averages)


def lps_paper(snapshot: Snapshot, probe: Probe, now: float, averages: Averages) -> float:
    """Limited processor sharing as the paper's code has it (`pk_mg1` there): wait = (a/m)^k / (m - a) with a
    arrivals and m completions per second as of now and k requests running now; 60 s where a >= m.

    m is what the engine happened to complete, not what it could: whenever arrivals run ahead of completions
    the answer is 60 s. Kept for comparison; `lps` is the same idea with the capacity of the engine.
    """
    a, m, k = averages.arrivals_per_s, averages.completions_per_s, len(snapshot.running)
    wait = LONGEST_S if a >= m else min((a / m) ** k / (m - a), LONGEST_S)
    return wait + _own_seconds(probe, averages)


def _own_seconds(probe: Probe, averages: Averages) -> float:
    return (probe.prompt_tokens - probe.hit_tokens) / averages.prefill_tokens_per_s


def _prefill_seconds(snapshot: Snapshot, probe: Probe, averages: Averages) -> float:
    left = sum(map(_prefill_left, snapshot.requests))
    return left / averages.prefill_tokens_per_s + _own_seconds(probe, averages)


def _prefill_left(q: SeenRequest) -> int:
    return q.prompt_tokens - max(q.processed_prompt_tokens, min(q.hit_tokens, q.prompt_tokens))


Estimator = Callable[[Snapshot, Probe, float, Averages], float]
ESTIMATORS: dict[str, Estimator] = {
    "sfs": sfs,
    "throughput": throughput,
    "score-proxy": score_proxy,
    "lps": lps,
    "lps-paper": lps_paper,
}
