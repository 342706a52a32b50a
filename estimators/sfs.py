"""SFS: the time to a request's first token on an engine, by simulating the engine's scheduler until then.

The queue and the batches that the request would meet are played from the engine's last snapshot with the
simulator's kernels (agentctl.estimators.sfs_replay): what it waits for the batch in flight, for those before
it in the queue, for KV blocks. Source: "Beyond Accuracy and Cost" (SFS), arXiv 2607.18253, and its simulator.

Beyond the published one it knows prefix hits, the rest of the batch in flight, a constant for the way from
the router to the queue, and snapshots of any age: the engine is played up to the instant at which the request
joins. Known errors: requests that come later are not foreseen (they may share the batches of this one), and
outputs are as long as predicted. Speculative decoding is not modelled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from threading import get_ident

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import InputError, UsageError
from agentctl.estimators.sfs_replay import first_token_at, make_scratch
from agentctl.estimators.sfs_snapshot import SEEN, Snapshot, for_kernels
from agentctl.sim.state import LIMITS, State

MAX_AGE_S = 1.0  # SFS fails there too


@dataclass(frozen=True)
class Probe:
    """A request that may be sent: tokens of the prompt, of these found in this engine's cache, of the output
    (predicted)."""

    prompt_tokens: int
    output_tokens: int
    hit_tokens: int = 0
    priority: int = 0

    def __post_init__(self) -> None:
        for name in ("prompt_tokens", "output_tokens"):
            if getattr(self, name) < 1:
                raise UsageError(f"is {getattr(self, name)}", place=f"probe {name}", expected="1 or more")
        if not 0 <= self.hit_tokens <= self.prompt_tokens:
            raise UsageError(
                f"is {self.hit_tokens}", place="probe hit_tokens", expected=f"0 to {self.prompt_tokens}"
            )


@dataclass
class Sfs:
    """Estimates for one engine.

    ingress_s   from sending a request to its place in the engine's queue
    max_age_s   an estimate from an older snapshot is refused, unless the engine had nothing to do
    """

    ingress_s: float = 0.0
    max_age_s: float = MAX_AGE_S
    _snapshot: Snapshot | None = None
    _sent: dict[str, tuple[float, Probe]] = field(default_factory=dict)

    @property
    def pending(self) -> tuple[str, ...]:
        """Requests that were sent and neither seen in a snapshot nor told to have ended."""
        return tuple(self._sent)

    def observe(self, snapshot: Snapshot) -> None:
        """The engine's newest snapshot; one that is older than the last is ignored."""
        if self._snapshot is not None and snapshot.taken_s < self._snapshot.taken_s:
            return
        self._snapshot = snapshot
        for request in snapshot.requests:
            self._sent.pop(request.request_id, None)

    def sent(self, request_id: str, probe: Probe, now: float) -> None:
        """A request was sent to this engine: it counts from now on."""
        self._sent[request_id] = (now, probe)

    def ended(self, request_id: str) -> None:
        """A request has ended; it may have done so between two snapshots."""
        self._sent.pop(request_id, None)

    def ttft(self, probe: Probe, now: float) -> float:
        """Seconds from `now` to the first token of a request sent now; infinite when the engine can never
        serve it. Raises InputError without a snapshot and when it is too old."""
        snapshot = self._snapshot
        if snapshot is None:
            raise InputError("no snapshot of the engine yet", hint="observe() takes them")
        age = now - snapshot.taken_s
        if age > self.max_age_s and not (snapshot.is_idle and not self._sent):
            raise InputError(
                f"the engine's last snapshot is {age:.3f} s old", expected=f"at most {self.max_age_s:g} s"
            )
        return estimate_ttft(snapshot, probe, now, self.ingress_s, self._late())

    def _late(self) -> list[tuple[float, Probe]]:
        return [(at + self.ingress_s, probe) for at, probe in self._sent.values()]


def estimate_ttft(
    snapshot: Snapshot,
    probe: Probe,
    now: float | None = None,
    ingress_s: float = 0.0,
    before: list[tuple[float, Probe]] | None = None,
) -> float:
    """Seconds from `now` (default: the snapshot's time) to the first token of a request sent now.

    before   (time at which it joins the queue, request) of those that were sent and are not in the snapshot;
             who joins after the probe does not count
    """
    now = snapshot.taken_s if now is None else now
    joins = now + ingress_s
    earlier = sorted([one for one in before or () if one[0] <= joins], key=lambda one: one[0])
    joining = [*earlier, (joins, probe)]
    late = late_records(joining)
    n = len(snapshot.requests) + len(late)
    state = _scratch(snapshot.limits.tobytes(), 1 << max(n - 1, 63).bit_length(), get_ident())
    at = first_token_at(state, snapshot.head, snapshot.records, late)
    return float(at) - now


def late_records(joining: list[tuple[float, Probe]]) -> NDArray:
    """SEEN of requests that join the queue at these times."""
    rows = [(q.prompt_tokens, q.output_tokens, 0, 0, 0, 0, q.hit_tokens, q.priority, at) for at, q in joining]
    return for_kernels(np.array(rows, SEEN))


@lru_cache(maxsize=64)
def _scratch(limits: bytes, n: int, thread: int) -> State:
    """One for each thread: replays do not hold Python's lock."""
    return make_scratch(np.frombuffer(limits, LIMITS).copy().view(np.recarray), n)
