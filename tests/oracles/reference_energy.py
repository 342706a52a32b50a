"""The judge's engines with a meter: every step is asked what it draws and how long it takes (oracles.power).

What a step draws above idle goes to its requests in proportion to the GPU time that each adds to it (equally
where none adds any); idle power is drawn from the first arrival to the last finish and belongs to nobody.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from oracles.power import Parts, Power, step
from oracles.reference_simulator import Chunk, Engine


@dataclass
class Meter:
    by_request: dict[int, float] = field(default_factory=dict)  # joules above idle
    joules: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("prefill", "decode", "mixed"), 0.0)
    )
    seconds: dict[str, float] = field(
        default_factory=lambda: dict.fromkeys(("prefill", "decode", "mixed"), 0.0)
    )


class Metered:
    """Beside an engine of the judge's: `class MeteredEngine(Metered, Engine)`. `power` None: unknown."""

    power: Power | None = None

    @property
    def meter(self) -> Meter:
        if not hasattr(self, "_meter"):
            self._meter = Meter()
        return self._meter

    def duration(self) -> float:
        return super().duration() if self.power is None else step(self.power, self._parts()).seconds

    def finish(self, now: float = 0.0):
        self._read_the_meter()
        return super().finish(now)

    def _read_the_meter(self) -> None:
        if not self.batch:
            return
        of = self.meter.by_request
        if self.power is None:
            of.update({chunk.job.r: math.nan for chunk in self.batch})
            return
        parts = self._parts()
        drawn = step(self.power, parts)
        above_idle = (drawn.watts - self.power.idle) * drawn.seconds
        self.meter.joules[parts.kind] += above_idle
        self.meter.seconds[parts.kind] += drawn.seconds
        added = [self._added(chunk) for chunk in self.batch]
        if sum(added) == 0:
            added = [1.0] * len(added)
        for chunk, one in zip(self.batch, added, strict=True):
            of[chunk.job.r] = of.get(chunk.job.r, 0.0) + above_idle * one / sum(added)

    @property
    def _is_mixed_time(self) -> bool:
        return any(not chunk.is_decode for chunk in self.batch)

    def _added(self, q: Chunk) -> float:
        """Seconds of the GPU's part of the step that this chunk is the reason for."""
        c = self.limits.batch_time
        if q.is_decode:
            return c.b_decode + (c.b_context_mixed if self._is_mixed_time else c.b_context) * q.context
        pairs = q.tokens * q.context + q.tokens * (q.tokens + 1) / 2
        return c.b_prefill * q.tokens + c.b_attention * pairs + c.b_past * q.context

    def _parts(self) -> Parts:
        c = self.limits.batch_time
        chunks = [q for q in self.batch if not q.is_decode]
        decodes = [q for q in self.batch if q.is_decode]
        host = c.h0 + c.h_seq * len(self.batch)
        tokens = sum(q.tokens for q in self.batch)
        b_context = c.b_context_mixed if chunks else c.b_context
        kind = "decode" if not chunks else "mixed" if decodes else "prefill"
        return Parts(
            T=super().duration(),
            weights=self.power.weights_s,
            multiply=c.b_prefill * sum(q.tokens for q in chunks)
            + min(c.b_prefill, c.b_decode) * len(decodes),
            pairs=c.b_attention * sum(q.tokens * q.context + q.tokens * (q.tokens + 1) / 2 for q in chunks),
            reads=b_context * sum(d.context for d in decodes) + c.b_past * sum(q.context for q in chunks),
            t_h=max(host, c.b0 - self.power.weights_s),
            tokens=tokens,
            kind=kind,
        )


class MeteredEngine(Metered, Engine):
    pass


@dataclass(frozen=True)
class Energy:
    by_request: list[float]  # joules above idle
    idle: float
    total: float


def energy(cluster, results) -> Energy:
    """Of a run of a cluster of metered engines."""
    shares = [0.0] * len(results)
    for engine in cluster.engines:
        for r, joules in engine.meter.by_request.items():
            shares[r] += joules
    done = [result for result in results if result.status == "done"]
    span = max(r.finish for r in done) - min(r.arrival for r in results) if done else 0.0
    idle = sum(math.nan if e.power is None else e.power.idle for e in cluster.engines) * span
    return Energy(shares, idle, sum(shares) + idle)
