"""Who arrives when: requests are released by the clock, by what they wait for, by their session's start."""

from __future__ import annotations

import heapq
import math

import numpy as np

from agentctl.workload import AFTER_START, AT_ARRIVAL, Workload


class Arrivals:
    """A heap of (time, request) that have been released, and what holds back the others.

    `concurrency` None: every session is under way from the start and logged times hold. Otherwise so many
    sessions run at a time, the first of them from time 0; logged times count from the session's start.
    """

    def __init__(self, workload: Workload, concurrency: int | None) -> None:
        requests = workload.requests
        n = requests.arrival.size
        self._requests = requests
        self._waits_for = np.diff(requests.deps_start).tolist()  # how many must still end (or arrive)
        self._latest = [-math.inf] * n  # of those that have
        self._followers: list[list[int]] = [[] for _ in range(n)]
        for r in range(n):
            for dep in requests.deps[requests.deps_start[r] : requests.deps_start[r + 1]].tolist():
                self._followers[dep].append(r)
        self._logged, self._gap = requests.arrival.tolist(), requests.gap.tolist()
        self._release, self._session = requests.release.tolist(), requests.session.tolist()
        self._due: list[tuple[float, int]] = []
        members: dict[int, list[int]] = {}  # by session, in order of its first request
        for r, session in enumerate(self._session):
            members.setdefault(session, []).append(r)
        self._unended = {session: len(requests_of) for session, requests_of in members.items()}
        self._shift = dict.fromkeys(members, 0.0)  # s added to logged times of the session
        self._unstarted = members
        self._closed = concurrency is not None
        for _ in range(len(members) if concurrency is None else min(concurrency, len(members))):
            self._start_session(0.0)

    @property
    def next_time(self) -> float:
        return self._due[0][0] if self._due else math.inf

    def pop(self) -> int:
        return heapq.heappop(self._due)[1]

    def arrived(self, r: int, now: float) -> None:
        for follower in self._followers[r]:
            if self._release[follower] == AFTER_START:
                self._one_less(follower, now)

    def ended(self, r: int, now: float) -> None:
        for follower in self._followers[r]:
            if self._release[follower] != AFTER_START:
                self._one_less(follower, now)
        session = self._session[r]
        self._unended[session] -= 1
        if self._closed and self._unended[session] == 0 and self._unstarted:
            self._start_session(now)

    def _one_less(self, r: int, now: float) -> None:
        self._waits_for[r] -= 1
        self._latest[r] = now  # the clock never goes back
        if self._waits_for[r] == 0:
            self._push(r)

    def _push(self, r: int) -> None:
        if self._release[r] == AT_ARRIVAL:
            time = max(self._logged[r] + self._shift[self._session[r]], self._latest[r])
        else:
            time = self._latest[r] + self._gap[r]
        heapq.heappush(self._due, (time, r))

    def _start_session(self, now: float) -> None:
        session = next(iter(self._unstarted))
        members = self._unstarted.pop(session)
        if self._closed:
            self._shift[session] = now - min(self._logged[r] for r in members)
        for r in members:
            if self._waits_for[r] == 0:
                self._push(r)
