"""Who arrives when: requests are released by the clock, by what they wait for, by their session's start."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from agentctl.sim.handle import handle_of
from agentctl.sim.jit import entry, kernel
from agentctl.workload import AFTER_START, AT_ARRIVAL, Workload

DUE = np.dtype([("time", "f8"), ("request", "i8")])

REQUEST = np.dtype(
    [
        ("logged", "f8"), ("gap", "f8"), ("latest", "f8"),  # latest: of what it waited for
        ("followers_start", "i4"), ("followers_stop", "i4"),
        ("waits_for", "i4"),  # how many must still end (or arrive)
        ("session", "i4"),
        ("release", "i8"),
    ]
)  # fmt: skip

SESSION = np.dtype(
    [
        ("members_start", "i8"), ("members_stop", "i8"),
        ("unended", "i8"),  # requests
        ("shift", "f8"),  # s added to logged times
    ]
)  # fmt: skip

N_DUE, N_STARTED, IS_CLOSED = range(3)


class Arrivals(NamedTuple):
    """A heap of requests that have been released, and what holds back the others. Modified in place.

    In an open loop every session is under way from the start and logged times hold. In a closed one so many
    sessions run at a time, the first of them from time 0; logged times count from the session's start.
    """

    now: NDArray[np.float64]  # one element: the clock
    counts: NDArray[np.int64]  # in the heap, sessions started, whether the loop is closed
    due: NDArray  # DUE, the heap
    requests: NDArray  # REQUEST
    followers: NDArray[np.int64]
    sessions: NDArray  # SESSION
    members: NDArray[np.int64]
    order: NDArray[np.int64]  # of the sessions' starts


def make_arrivals(workload: Workload, concurrency: int | None) -> Arrivals:
    """All that can arrive at first is released."""
    requests = workload.requests
    n, n_sessions = requests.arrival.size, workload.n_sessions
    waits_for = np.diff(requests.deps_start)
    one = np.zeros(n, REQUEST).view(np.recarray)
    one.logged, one.gap, one.latest = requests.arrival, requests.gap, -math.inf
    one.waits_for, one.session, one.release = waits_for, requests.session, requests.release
    ends = np.cumsum(np.bincount(requests.deps, minlength=n))
    one.followers_start[1:], one.followers_stop = ends[:-1], ends
    sessions = np.zeros(n_sessions, SESSION).view(np.recarray)
    sizes = np.bincount(requests.session, minlength=n_sessions)
    sessions.unended, sessions.members_stop = sizes, np.cumsum(sizes)
    sessions.members_start = sessions.members_stop - sizes
    _, first = np.unique(requests.session, return_index=True)
    arrivals = Arrivals(
        now=np.array([-math.inf]),
        counts=np.array([0, 0, concurrency is not None], np.int64),
        due=np.zeros(n + 1, DUE).view(np.recarray),
        requests=one,
        followers=np.repeat(np.arange(n, dtype=np.int64), waits_for)[
            np.argsort(requests.deps, kind="stable")
        ],
        sessions=sessions,
        members=np.argsort(requests.session, kind="stable").astype(np.int64),
        order=requests.session[np.sort(first)].astype(np.int64),
    )
    _start_sessions(arrivals, len(first) if concurrency is None else min(concurrency, len(first)))
    return arrivals


@kernel
def next_time(arrivals):
    return arrivals.due[0].time if arrivals.counts[N_DUE] else math.inf


@kernel
def pop(arrivals):
    """The request that arrives next: the earliest, then the lowest number."""
    due = arrivals.due
    first = due[0].request
    arrivals.counts[N_DUE] -= 1
    n = arrivals.counts[N_DUE]
    time, request = due[n].time, due[n].request
    i = 0
    while True:
        child = 2 * i + 1
        if child >= n:
            break
        if child + 1 < n and _before(
            due[child + 1].time, due[child + 1].request, due[child].time, due[child].request
        ):
            child += 1
        if not _before(due[child].time, due[child].request, time, request):
            break
        due[i].time, due[i].request = due[child].time, due[child].request
        i = child
    due[i].time, due[i].request = time, request
    return first


@kernel
def push(arrivals, time, request):
    due = arrivals.due
    i = arrivals.counts[N_DUE]
    arrivals.counts[N_DUE] += 1
    while i > 0:
        above = (i - 1) // 2
        if not _before(time, request, due[above].time, due[above].request):
            break
        due[i].time, due[i].request = due[above].time, due[above].request
        i = above
    due[i].time, due[i].request = time, request


@kernel
def _before(time_a, a, time_b, b):
    return time_a < time_b or (time_a == time_b and a < b)


@kernel
def has_arrived(arrivals, r):
    """Request r arrives now: release those that count from its start."""
    one = arrivals.requests[r]
    for k in range(one.followers_start, one.followers_stop):
        follower = arrivals.followers[k]
        if arrivals.requests[follower].release == AFTER_START:
            _one_less(arrivals, follower)


@kernel
def has_ended(arrivals, r):
    """Request r ends now: release those that waited for it; in a closed loop the next session starts."""
    one = arrivals.requests[r]
    for k in range(one.followers_start, one.followers_stop):
        follower = arrivals.followers[k]
        if arrivals.requests[follower].release != AFTER_START:
            _one_less(arrivals, follower)
    session = arrivals.sessions[one.session]
    session.unended -= 1
    left = arrivals.counts[N_STARTED] < arrivals.order.size
    if arrivals.counts[IS_CLOSED] and session.unended == 0 and left:
        _start_session(arrivals, arrivals.now[0])


@kernel
def _one_less(arrivals, r):
    one = arrivals.requests[r]
    one.waits_for -= 1
    one.latest = arrivals.now[0]  # the clock never goes back
    if one.waits_for == 0:
        _release(arrivals, r)


@kernel
def _release(arrivals, r):
    one = arrivals.requests[r]
    if one.release == AT_ARRIVAL:
        logged = one.logged + arrivals.sessions[one.session].shift
        push(arrivals, max(logged, one.latest), r)
    else:
        push(arrivals, one.latest + one.gap, r)


@entry
def _start_sessions(arrivals, n):
    under_way = handle_of(arrivals)
    for _ in range(n):
        _start_session(under_way, 0.0)


@kernel
def _start_session(arrivals, now):
    session = arrivals.sessions[arrivals.order[arrivals.counts[N_STARTED]]]
    arrivals.counts[N_STARTED] += 1
    if arrivals.counts[IS_CLOSED]:
        earliest = math.inf
        for k in range(session.members_start, session.members_stop):
            earliest = min(earliest, arrivals.requests[arrivals.members[k]].logged)
        session.shift = now - earliest
    for k in range(session.members_start, session.members_stop):
        if arrivals.requests[arrivals.members[k]].waits_for == 0:
            _release(arrivals, arrivals.members[k])
