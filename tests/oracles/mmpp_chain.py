"""A queue with two-state arrivals as one big Markov chain, cut off at a number in the system."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def mmpp_chain(
    rates: Sequence[float], to_high: float, to_low: float, service: Sequence[float], most: int
) -> np.ndarray:
    """Probabilities [number in the system, phase]; service[n - 1] ends per second with n, the last beyond."""
    n_states = 2 * (most + 1)
    q = np.zeros((n_states, n_states))
    for n in range(most + 1):
        for phase in (0, 1):
            here = 2 * n + phase
            q[here, 2 * n + 1 - phase] = (to_high, to_low)[phase]
            if n < most:
                q[here, here + 2] = rates[phase]
            if n > 0:
                q[here, here - 2] = service[min(n, len(service)) - 1]
            q[here, here] = -q[here].sum()
    balance = q.T
    balance[-1] = 1  # one balance equation follows from the others: all together are 1 instead
    right = np.zeros(n_states)
    right[-1] = 1
    return np.linalg.solve(balance, right).reshape(-1, 2)


def mmpp_arrivals(
    rates: Sequence[float], to_high: float, to_low: float, n: int, random: np.random.Generator
) -> np.ndarray:
    """Times of n arrivals: every stay in a state gets a Poisson number of arrivals, spread evenly."""
    times: list[np.ndarray] = []
    start, phase, count = 0.0, 0, 0
    while count < n:
        stay = random.exponential(1 / (to_high, to_low)[phase])
        some = start + stay * np.sort(random.random(random.poisson(rates[phase] * stay)))
        times.append(some)
        start, phase, count = start + stay, 1 - phase, count + some.size
    return np.concatenate(times)[:n]
