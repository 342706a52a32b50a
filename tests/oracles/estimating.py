"""All estimators of the time to the first token on one run of the noisy engine, and how wrong they are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from oracles.served import Served

from agentctl.estimators.batch_errors import Errors, errors
from agentctl.estimators.batch_model import fit_batch_model
from agentctl.estimators.batch_terms import batch_time_of
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.lps_batch import from_profile
from agentctl.estimators.steps import checked
from agentctl.estimators.ttft import ESTIMATORS, Averages, EventRate, measure_averages
from agentctl.profile import Profile

BINS = 4  # of load: requests on the engine, in quartiles


def calibrate(run: Served) -> tuple[BatchTime, Averages]:
    """Coefficients and averages from a run's steps and its requests' times: nothing that is hidden."""
    model = fit_batch_model(checked(run.steps, "calibration"))
    c = batch_time_of(model.model, model.values)
    done = run.results
    computed = np.array([q.prompt - one.hit for q, one in zip(run.requests, done, strict=True)], float)
    averages = measure_averages(
        computed, np.array([one.first_token - one.scheduled for one in done]), run.steps
    )
    pool = run.seen[0][0].engine
    limits = ("kv_blocks", "block_tokens", "max_num_batched_tokens", "max_num_seqs")
    profile = Profile(c, **{name: getattr(pool, name) for name in limits})
    prompt, output = (np.array([getattr(q, name) for q in run.requests]) for name in ("prompt", "output"))
    hit = prompt.mean() - computed.mean()
    queue = from_profile(
        profile, prompt.mean(), output.mean(), hit, _scv(output), computed.var() / computed.mean() ** 2
    )
    return c, replace(averages, queue=queue)


def _scv(values: np.ndarray) -> float:
    return float(values.var() / values.mean() ** 2)


def estimates(
    run: Served, c: BatchTime, averages: Averages, output_factor: float = 1.0
) -> dict[str, np.ndarray]:
    """Seconds by estimator, for every request as it arrives."""
    rate = len(run.requests) / (run.requests[-1].arrival - run.requests[0].arrival)
    arrivals, completions = EventRate(rate), EventRate(rate)
    ends = sorted(one.finish for one in run.results)
    made: dict[str, list[float]] = {name: [] for name in ESTIMATORS}
    for snapshot, probe in run.calibrated(c, output_factor):
        now = snapshot.taken_s
        while ends and ends[0] <= now:
            completions.add(ends.pop(0))
        known = replace(averages, arrivals_per_s=arrivals.at(now), completions_per_s=completions.at(now))
        arrivals.add(now)
        for name, estimator in ESTIMATORS.items():
            made[name].append(estimator(snapshot, probe, now, known))
    return {name: np.array(values) for name, values in made.items()}


def judged(run: Served, made: dict[str, np.ndarray]) -> dict[str, Errors]:
    return {name: found for name, seconds in made.items() if (found := errors(seconds, run.ttft))}


def by_load(run: Served, seconds: np.ndarray) -> list[Errors]:
    """Errors of one estimator from the least loaded quarter of the requests to the most loaded."""
    load = np.array([len(snapshot.requests) for snapshot, _ in run.seen])
    parts = np.array_split(np.argsort(load, kind="stable"), BINS)
    return [found for part in parts if (found := errors(seconds[part], run.ttft[part]))]
