"""What one step of an engine draws above idle, and how much longer a cap or a clock lock makes it.

P(f) = idle + C (f/f0)^a + M: C scales with the clock of the SMs, M does not. Each part is watts times the
share of the step spent on it: reading weights, multiplying, prefill attention, reading KV. A cap lowers the
clock until P(f) is the cap, at most to the lowest clock there is; then more is drawn. The step then lasts
T(f) = T max(t_h, t_m, t_c f0/f) / max(t_h, t_m, t_c): what the memory or the host decides is not delayed.
Plain arithmetic, compiled by the simulator (agentctl.sim.energy).
"""

from __future__ import annotations

from typing import Any, NamedTuple

PREFILL, DECODE, MIXED = range(3)  # phases of a step


class Step(NamedTuple):
    joules: float  # above idle
    stretch: float  # its time over that at full clock
    ratio: float  # of the clock to the highest


def step_energy(  # type: ignore[no-untyped-def]
    p: Any, sizes: Any, uses: Any, weights_s, tokens_s, pairs_s, read_s, floor_s, seconds, tokens, phase
):
    """A step that lasts `seconds` at full clock; times of its parts are those at full clock, too.

    p        one engine's coefficients: agentctl.sim.energy_state.POWER
    sizes    watts of reading weights and of multiplying, by the tokens of a batch (`most` of each class)
    uses     watts of reading KV, by the share of the step in which memory is read
    floor_s  what the step takes whatever the clock: host, launches
    tokens   in the batch
    """
    memory_s, compute_s = weights_s + read_s, tokens_s + pairs_s
    if p.by_phase:
        watts = p.prefill_w if phase == PREFILL else p.decode_w if phase == DECODE else p.mixed_w
        busy_s = compute_s + memory_s
        share = (compute_s + p.memory_clock_share * memory_s) / busy_s if busy_s > 0 else 0.0
        clocked = watts * seconds * share
        fixed = watts * seconds - clocked
    else:
        j = 0
        while sizes[j].most < tokens:
            j += 1
        k = 0
        while uses[k].most < memory_s / seconds:
            k += 1
        memory_j = sizes[j].weights_w * weights_s + uses[k].read_w * read_s
        clocked = sizes[j].tokens_w * tokens_s + p.pairs_w * pairs_s + p.memory_clock_share * memory_j
        fixed = (1 - p.memory_clock_share) * memory_j
    if p.is_free:
        return Step(clocked + fixed, 1.0, 1.0)
    ratio = p.lock
    room = (p.cap_w - p.idle_w) * seconds - fixed
    if clocked * ratio**p.exponent > room:
        fitting = (max(room, 0.0) / clocked) ** (1 / p.exponent) if clocked > 0 else 0.0
        ratio = min(ratio, max(fitting, p.least_ratio))
    longest = max(floor_s, memory_s, compute_s)
    stretch = max(floor_s, memory_s, compute_s / ratio) / longest
    return Step((clocked * ratio**p.exponent + fixed) * stretch, stretch, ratio)
