"""Who was in service when, from arrivals and ends alone."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

import numpy as np

from agentctl.errors import InputError

MOST_CONTRADICTIONS = 0.01  # share of requests that may end before the limit would have let them start
FEWEST_WINDOWS = 20


@dataclass(frozen=True)
class Shared:
    """One engine's requests in order of arrival, and the number in service between two changes of it.

    start, end      seconds, per request
    times, n        the number in service is n[i] from times[i] to times[i + 1]
    starts          prefill work started before times[i], in mean prefills
    """

    start: np.ndarray
    end: np.ndarray
    times: np.ndarray
    n: np.ndarray
    starts: np.ndarray

    def mean_over_steps(self, fixed: float, each: float) -> np.ndarray:
        """Mean number in service over the steps of each request; one with n takes fixed + each*n seconds."""
        spans = np.diff(self.times)
        steps = spans / (fixed + each * self.n[:-1])
        total, weighted = (np.concatenate(([0.0], np.cumsum(x))) for x in (steps, steps * self.n[:-1]))
        first, last = np.searchsorted(self.times, self.start), np.searchsorted(self.times, self.end)
        return (weighted[last] - weighted[first]) / (total[last] - total[first])

    def prefills(self) -> np.ndarray:
        """Prefill work in mean prefills that started while each request was in service, its own included."""
        first, last = np.searchsorted(self.times, self.start), np.searchsorted(self.times, self.end)
        return self.starts[last] - self.starts[first]


@dataclass(frozen=True)
class History:
    """All usable requests of a log, engine by engine."""

    engines: tuple[Shared, ...]
    arrival: np.ndarray
    output: np.ndarray
    service: np.ndarray  # seconds in service
    dropped: int

    def columns(self, fixed: float, each: float) -> np.ndarray:
        """Per request: steps, steps times mean number in service, prefills started meanwhile."""
        n = np.concatenate([engine.mean_over_steps(fixed, each) for engine in self.engines])
        prefills = np.concatenate([engine.prefills() for engine in self.engines])
        return np.column_stack((self.output, self.output * n, prefills))

    @property
    def peak(self) -> int:
        return max(int(engine.n.max()) for engine in self.engines)

    @property
    def rate_per_s(self) -> float:
        """Arrivals per second and engine."""
        return float((self.arrival.size - 1) / np.ptp(self.arrival) / len(self.engines))

    @property
    def dispersion(self) -> float | None:
        """Variance over mean of arrivals in windows of one mean service time; None with too few windows."""
        windows = int(np.ptp(self.arrival) / self.service.mean())
        if windows < FEWEST_WINDOWS:
            return None
        counts, _ = np.histogram(self.arrival, windows)
        return float(counts.var(ddof=1) / counts.mean())


def histories(
    arrival_s: np.ndarray,
    e2e_s: np.ndarray,
    output_tokens: np.ndarray,
    prefill_tokens: np.ndarray | None,
    engine: np.ndarray | None,
    limit: int | None,
) -> History:
    """The usable requests of a log and who shared what; see `fit_lps` for the arguments and errors."""
    table = _columns(arrival_s, e2e_s, output_tokens, prefill_tokens)
    usable = np.isfinite(table).all(axis=0) & (table[2] > 0)
    labels = np.zeros(usable.size, dtype=np.int64) if engine is None else np.asarray(engine)
    if labels.shape != usable.shape:
        raise InputError(f"{labels.size} engines for {usable.size} requests", expected="one for each")
    parts, rows = [], []
    for label in np.unique(labels[usable]):
        members = np.flatnonzero(usable & (labels == label))
        members = members[np.argsort(table[0, members], kind="stable")]
        rows.append(members)
        arrival, e2e, _, prefill = table[:, members]
        parts.append(_shared(arrival, e2e, prefill, limit))
    if not parts:
        raise InputError("no request has an arrival, an end-to-end time and an output")
    order = np.concatenate(rows)
    service = np.concatenate([part.end - part.start for part in parts])
    return History(
        tuple(parts), table[0, order], table[2, order], service, dropped=int(usable.size - order.size)
    )


def _columns(
    arrival: np.ndarray, e2e: np.ndarray, output: np.ndarray, prefill: np.ndarray | None
) -> np.ndarray:
    """Rows arrival, e2e, output, prefill (1 when unknown) of the same length, checked."""
    named = {"arrival_s": arrival, "e2e_s": e2e, "output_tokens": output}
    if prefill is not None:
        named["prefill_tokens"] = prefill
    arrays = {name: np.asarray(values, dtype=np.float64) for name, values in named.items()}
    for name, values in arrays.items():
        if values.shape != arrays["arrival_s"].shape or values.ndim != 1:
            raise InputError(
                f"has the shape {values.shape}", place=name, expected="one value for each request"
            )
        if name != "arrival_s" and (wrong := int((values < 0).sum())):
            raise InputError(f"is negative {wrong} times", place=name, expected="0 or more")
    if zero := int((arrays["e2e_s"] == 0).sum()):
        raise InputError(f"is 0 {zero} times", place="e2e_s", expected="seconds above 0")
    rows = [*arrays.values()]
    return np.stack(rows if prefill is not None else [*rows, np.ones_like(rows[0])])


def _shared(arrival: np.ndarray, e2e: np.ndarray, prefill: np.ndarray, limit: int | None) -> Shared:
    end = arrival + e2e
    start = arrival if limit is None else _starts(arrival, end, limit)
    changes = np.concatenate((start, end))
    order = np.argsort(changes, kind="stable")
    times, first = np.unique(changes[order], return_index=True)
    step = np.repeat((1, -1), start.size)[order]
    n = np.add.reduceat(step, first).cumsum()
    work = np.concatenate((prefill / prefill.mean(), np.zeros(end.size)))[order]
    done = np.add.reduceat(work, first).cumsum()
    return Shared(start, end, times, n, np.concatenate(([0.0], done[:-1])))


def _starts(arrival: np.ndarray, end: np.ndarray, limit: int) -> np.ndarray:
    """When each request got a place in service, first come first served.

    Raises InputError when too many would then have ended before they started.
    """
    start = arrival.copy()
    in_service: list[float] = []  # their ends
    early = 0
    for request in range(arrival.size):
        while in_service and in_service[0] <= arrival[request]:
            heapq.heappop(in_service)
        if len(in_service) >= limit:
            start[request] = heapq.heappop(in_service)
        if start[request] >= end[request]:
            early += 1
            start[request] = arrival[request]
        heapq.heappush(in_service, end[request])
    if early > MOST_CONTRADICTIONS * arrival.size:
        raise InputError(
            f"{early} of {arrival.size} requests end before a limit of {limit} would have let them start",
            hint="is the limit higher, did several engines serve, were requests not served in order, or are "
            "end-to-end times in another unit than seconds?",
        )
    return start
