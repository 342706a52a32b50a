"""Who arrives when: requests are released by the clock, by what they wait for, by their session's start."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.workload import AFTER_START, AT_ARRIVAL, Workload

F64 = NDArray[np.float64]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]


class Arrivals(NamedTuple):
    """A heap of (time, request) that have been released, and what holds back the others.

    In an open loop every session is under way from the start and logged times hold. In a closed one so many
    sessions run at a time, the first of them from time 0; logged times count from the session's start.
    Modified in place.
    """

    time: F64  # the heap
    request: I32
    n: I64  # [in the heap, sessions started]
    waits_for: I32  # how many must still end (or arrive), by request
    latest: F64  # of those that have
    followers_start: I64
    followers: I32
    unended: I32  # requests, by session
    shift: F64  # s added to logged times, by session
    members_start: I64
    members: I32
    sessions: I32  # in the order in which they start
    is_closed: bool


def make_arrivals(workload: Workload, concurrency: int | None) -> Arrivals:
    """All that can arrive at first is released."""
    requests = workload.requests
    n, n_sessions = requests.arrival.size, workload.n_sessions
    waits_for = np.diff(requests.deps_start).astype(np.int32)
    followers = np.repeat(np.arange(n, dtype=np.int32), waits_for)[np.argsort(requests.deps, kind="stable")]
    sizes = np.bincount(requests.session, minlength=n_sessions)
    members = np.argsort(requests.session, kind="stable").astype(np.int32)
    _, first = np.unique(requests.session, return_index=True)
    arrivals = Arrivals(
        time=np.empty(n + 1),
        request=np.empty(n + 1, np.int32),
        n=np.zeros(2, np.int64),
        waits_for=waits_for,
        latest=np.full(n, -math.inf),
        followers_start=np.concatenate(([0], np.cumsum(np.bincount(requests.deps, minlength=n)))).astype(np.int64),
        followers=followers,
        unended=sizes.astype(np.int32),
        shift=np.zeros(n_sessions),
        members_start=np.concatenate(([0], np.cumsum(sizes))).astype(np.int64),
        members=members,
        sessions=requests.session[np.sort(first)].astype(np.int32),
        is_closed=concurrency is not None,
    )
    for _ in range(len(first) if concurrency is None else min(concurrency, len(first))):
        start_session(arrivals, requests, 0.0)
    return arrivals


@njit(cache=True, nogil=True)
def next_time(arrivals):
    return arrivals.time[0] if arrivals.n[0] else math.inf


@njit(cache=True, nogil=True)
def pop(arrivals):
    """The request that arrives next: the earliest, then the lowest number."""
    time, request = arrivals.time, arrivals.request
    first = request[0]
    arrivals.n[0] -= 1
    n = arrivals.n[0]
    moved_time, moved = time[n], request[n]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _before(time[child + 1], request[child + 1], time[child], request[child]):
            child += 1
        if not _before(time[child], request[child], moved_time, moved):
            break
        time[i], request[i] = time[child], request[child]
        i = child
    time[i], request[i] = moved_time, moved
    return np.int64(first)


@njit(cache=True, nogil=True)
def _push(arrivals, when, r):
    time, request = arrivals.time, arrivals.request
    i = arrivals.n[0]
    arrivals.n[0] += 1
    while i > 0:
        above = (i - 1) // 2
        if not _before(when, r, time[above], request[above]):
            break
        time[i], request[i] = time[above], request[above]
        i = above
    time[i], request[i] = when, r


@njit(cache=True, nogil=True)
def _before(time_a, a, time_b, b):
    return time_a < time_b or (time_a == time_b and a < b)


@njit(cache=True, nogil=True)
def has_arrived(arrivals, requests, r, now):
    for k in range(arrivals.followers_start[r], arrivals.followers_start[r + 1]):
        if requests.release[arrivals.followers[k]] == AFTER_START:
            _one_less(arrivals, requests, arrivals.followers[k], now)


@njit(cache=True, nogil=True)
def has_ended(arrivals, requests, r, now):
    for k in range(arrivals.followers_start[r], arrivals.followers_start[r + 1]):
        if requests.release[arrivals.followers[k]] != AFTER_START:
            _one_less(arrivals, requests, arrivals.followers[k], now)
    session = requests.session[r]
    arrivals.unended[session] -= 1
    if arrivals.is_closed and arrivals.unended[session] == 0 and arrivals.n[1] < arrivals.sessions.size:
        start_session(arrivals, requests, now)


@njit(cache=True, nogil=True)
def _one_less(arrivals, requests, r, now):
    arrivals.waits_for[r] -= 1
    arrivals.latest[r] = now  # the clock never goes back
    if arrivals.waits_for[r] == 0:
        _release(arrivals, requests, r)


@njit(cache=True, nogil=True)
def _release(arrivals, requests, r):
    if requests.release[r] == AT_ARRIVAL:
        logged = requests.arrival[r] + arrivals.shift[requests.session[r]]
        _push(arrivals, max(logged, arrivals.latest[r]), r)
    else:
        _push(arrivals, arrivals.latest[r] + requests.gap[r], r)


@njit(cache=True, nogil=True)
def start_session(arrivals, requests, now):
    session = arrivals.sessions[arrivals.n[1]]
    arrivals.n[1] += 1
    first, last = arrivals.members_start[session], arrivals.members_start[session + 1]
    if arrivals.is_closed:
        earliest = math.inf
        for k in range(first, last):
            earliest = min(earliest, requests.arrival[arrivals.members[k]])
        arrivals.shift[session] = now - earliest
    for k in range(first, last):
        if arrivals.waits_for[arrivals.members[k]] == 0:
            _release(arrivals, requests, arrivals.members[k])
