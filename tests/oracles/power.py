"""The judge of power: what one step draws, written from the equations, in watts and shares of the step.

    u_c = t_c / T,  u_m = t_m / T
    P(f) = P_idle + Pc u_c (f/f0)^a + Pm u_m ((1 - s) + s (f/f0)^a)
    cap:  if P(lock) > cap, f/f0 = max(0, (cap - P_idle - what no clock changes) / the rest)^(1/a),
          at least f_min
    T(f) = T max(t_h, t_m, t_c f0/f) / max(t_h, t_m, t_c),  E = P(f) T(f)

Nothing here is shared with `agentctl`. s = 0 is the model to first order, in which memory does not feel the
clock. Pc and Pm may depend on the step (lookup tables); measured phases are watts of a step of that kind,
divided between the two by t_c and t_m.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Parts:
    """Seconds of one step at full clock: T in all, t_c = multiply + pairs, t_m = weights + reads, t_h."""

    T: float
    weights: float = 0.0
    multiply: float = 0.0
    pairs: float = 0.0
    reads: float = 0.0
    t_h: float = 0.0
    tokens: int = 1
    kind: str = "decode"  # prefill | decode | mixed

    @property
    def t_c(self) -> float:
        return self.multiply + self.pairs

    @property
    def t_m(self) -> float:
        return self.weights + self.reads


@dataclass(frozen=True)
class Power:
    """Watts above idle of doing nothing but ..., each a function of the step."""

    idle: float
    weights: Callable[[Parts], float]
    multiply: Callable[[Parts], float]
    pairs: Callable[[Parts], float]
    reads: Callable[[Parts], float]
    a: float = 2.0
    s: float = 0.0
    f_min: float = 0.1
    cap: float = math.inf
    lock: float = 1.0
    phases: dict[str, float] | None = None  # watts in all, by kind
    weights_s: float = 0.0  # of an engine: how long a batch reads the weights
    known: bool = field(default=True)


def smooth(idle: float, Pc: float, Pm: float, **others) -> Power:
    return Power(idle, lambda p: Pm, lambda p: Pc, lambda p: Pc, lambda p: Pm, **others)


def lookup(idle: float, gemm: list, read: list, pairs: float, **others) -> Power:
    """gemm, read: (up to, watts in all), by tokens of the batch and by the share of time memory is read."""

    def first(table: list, value: float) -> float:
        return next(watts for most, watts in table if value <= most) - idle

    def of_gemm(p: Parts) -> float:
        return first(gemm, p.tokens)

    return Power(idle, of_gemm, of_gemm, lambda p: pairs - idle, lambda p: first(read, p.t_m / p.T), **others)


@dataclass(frozen=True)
class Drawn:
    watts: float
    seconds: float
    f: float  # over f0

    @property
    def joules(self) -> float:
        return self.watts * self.seconds


def step(power: Power, p: Parts) -> Drawn:
    if power.phases is not None:
        above = power.phases[p.kind] - power.idle
        share = p.t_c / (p.t_c + p.t_m) if p.t_c + p.t_m else 0.0
        with_clock, without = above * (share + power.s * (1 - share)), above * (1 - power.s) * (1 - share)
    else:
        memory = (power.weights(p) * p.weights + power.reads(p) * p.reads) / p.T
        compute = (power.multiply(p) * p.multiply + power.pairs(p) * p.pairs) / p.T
        with_clock, without = compute + power.s * memory, (1 - power.s) * memory
    f = power.lock
    if power.idle + with_clock * f**power.a + without > power.cap:
        left = max(0.0, power.cap - power.idle - without)
        f = min(f, max(power.f_min, (left / with_clock) ** (1 / power.a) if with_clock else 0.0))
    watts = power.idle + with_clock * f**power.a + without
    seconds = p.T * (max(p.t_h, p.t_m, p.t_c / f) / max(p.t_h, p.t_m, p.t_c))
    return Drawn(watts, seconds, f)
