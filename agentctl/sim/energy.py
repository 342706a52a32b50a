"""Energy of an engine's steps, and the longer steps of one whose power is capped or whose clock is locked.

Wrapped around a scheduler's `start` and `finish`: without power models these are not the engine's rules, and
cost nothing. What a step draws above idle goes to its requests in proportion to the GPU time that each adds
to it; nobody pays for idle power. Runs of decodes cost O(1): what they draw is linear in the step, and shares
of it are sums of a line over a line. Under caps and locks, and in short runs, step by step.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.estimators import power_step
from agentctl.estimators.power_step import DECODE, MIXED, PREFILL
from agentctl.sim import scheduler, sglang, tiered
from agentctl.sim.jit import kernel, rule
from agentctl.sim.queue import is_decode
from agentctl.sim.steps import host_steps, set_end, step_end

step_energy = kernel(power_step.step_energy)

SHORT = 16  # steps: fewer are added up one by one
LONG = 64  # steps of a run whose clock may change within it
LEAST_CONTEXT = 32.0  # where the series of digamma ends is wrong by less than the last bit


@rule
def start(s, e, now):
    scheduler.start(s, e, now)
    return slow_down(s, e)


@rule
def finish(s, e, now):
    account(s, e)
    return scheduler.finish(s, e, now)


@rule
def start_sglang(s, e, now):
    sglang.start(s, e, now)
    return slow_down(s, e)


@rule
def finish_sglang(s, e, now):
    account(s, e)
    return sglang.finish(s, e, now)


@rule
def start_tiered(s, e, now):
    if s.benches[e].awaits:
        return 0
    tiered.start(s, e, now)
    return slow_down(s, e)


@rule
def finish_tiered(s, e, now):
    account(s, e)
    return tiered.finish(s, e, now)


def around(base):  # type: ignore[no-untyped-def]
    """The same rules with energy: (start, finish) for the `start` of a scheduler."""
    return {
        id(scheduler.start): (start, finish),
        id(sglang.start): (start_sglang, finish_sglang),
        id(tiered.start): (start_tiered, finish_tiered),
    }[id(base)]


# Steps


@kernel
def batch_of(s, e):
    """The planned batch: (prefill tokens, pairs, past of chunks; chunks, decodes; context of decodes)."""
    engine = s.engines[e]
    prefill = past = n_prefill = n_decode = context = np.int64(0)
    pairs = 0.0
    for i in range(engine.n_running):
        tokens = s.planned[e, i]
        if tokens == 0:
            continue
        job = s.jobs[s.running[e, i]]
        before = job.computed
        if is_decode(job):
            context += before
            n_decode += 1
        else:
            n_prefill += 1
            prefill += tokens
            pairs += tokens * before + tokens * (tokens + 1) / 2
            past += before
    return prefill, pairs, past, n_prefill, n_decode, context


@kernel
def energy_of(s, e, batch, k):
    """The step of a batch, or step k of a run that begins with it: (joules, stretch, s at full clock)."""
    prefill, pairs, past, n_prefill, n_decode, context = batch
    c, p = s.limits[e], s.power[e]
    read = (c.b_context_mixed if n_prefill else c.b_context) * (context + k * n_decode) + c.b_past * past
    pairs_s = c.b_attention * pairs
    tokens_s = c.b_prefill * prefill + min(c.b_prefill, c.b_decode) * n_decode
    gpu = c.b0 + c.b_prefill * prefill + c.b_decode * n_decode + read + pairs_s
    host = c.h0 + c.h_seq * (n_prefill + n_decode)
    seconds = max(gpu, host)
    phase = DECODE if n_prefill == 0 else PREFILL if n_decode == 0 else MIXED
    floor = max(host, c.b0 - p.weights_s)
    tokens = prefill + n_decode
    joules, stretch, _ = step_energy(
        p, s.sizes[e], s.uses[e], p.weights_s, tokens_s, pairs_s, read, floor, seconds, tokens, phase
    )
    return joules, stretch, seconds


@kernel
def slow_down(s, e):
    """Make the batch or run that was just planned as long as it takes under cap and lock.

    A run of steps goes on as long as none of them is delayed; a step that is delayed is taken alone.
    """
    engine, p = s.engines[e], s.power[e]
    planned = s.ends_at[e] < math.inf
    if p.is_free or not p.is_known or not (planned or s.benches[e].awaits):
        return 0
    batch = batch_of(s, e)
    _, stretch, _ = energy_of(s, e, batch, np.int64(0))
    if stretch > 1.0:
        engine.run_first, engine.run_host = engine.run_first * stretch, engine.run_host * stretch
        engine.run_slope, engine.run_steps = 0.0, 0
        engine.run_n_host = host_steps(engine.run_first, 0.0, engine.run_host)
    elif engine.run_steps > 0 and p.cap_w < math.inf:
        steps = np.int64(1)
        while steps < min(engine.run_steps, LONG) and stretch == 1.0:
            _, stretch, _ = energy_of(s, e, batch, steps)
            steps += 1 if stretch == 1.0 else 0
        engine.run_steps = steps if steps > 1 else 0
    if planned:
        set_end(s, e)
    return 0


# Accounts


@kernel
def account(s, e):
    """What the batch or run that ends has drawn, to its requests and to the engine's meter."""
    engine, p = s.engines[e], s.power[e]
    if not p.is_known:
        for i in range(engine.n_running):
            if s.planned[e, i]:
                s.energy[s.running[e, i]] = math.nan
        return
    batch = batch_of(s, e)
    n = max(engine.run_steps, 1)
    own, per_step, each, each_step = _marginal(s, e, batch)
    joules, over, times_k = _sums(s, e, batch, n, own, per_step)
    _note(s, e, batch, n, joules)
    for i in range(engine.n_running):
        if s.planned[e, i]:
            r = s.running[e, i]
            mine = each if each > 0 else gpu_time(s, e, r, s.planned[e, i], batch[3] > 0)
            s.energy[r] += mine * over + each_step * times_k


@kernel
def gpu_time(s, e, r, tokens, is_mixed):
    """Seconds that request r adds to the planned batch."""
    c, job = s.limits[e], s.jobs[r]
    before = job.computed
    if is_decode(job):
        return c.b_decode + (c.b_context_mixed if is_mixed else c.b_context) * before
    pairs = tokens * before + tokens * (tokens + 1) / 2
    return c.b_prefill * tokens + c.b_attention * pairs + c.b_past * before


@kernel
def _marginal(s, e, batch):
    """(seconds that all requests add to the step, how much more they add in each further one of a run; what
    each counts where none adds anything, else 0; and how much more that is in each further step)."""
    prefill, pairs, past, n_prefill, n_decode, context = batch
    c = s.limits[e]
    b_context = c.b_context_mixed if n_prefill else c.b_context
    own = c.b_prefill * prefill + c.b_attention * pairs + c.b_past * past + c.b_decode * n_decode
    own += b_context * context
    if own > 0:
        return own, b_context * n_decode, 0.0, b_context
    return float(n_prefill + n_decode), 0.0, 1.0, 0.0


@kernel
def _sums(s, e, batch, n, own, per_step):
    """Over steps k of a run, with E joules and M seconds added by all: (sum of E, of E/M, of k E/M)."""
    joules = over = times_k = 0.0
    first, _, _ = energy_of(s, e, batch, np.int64(0))
    if n == 1:
        return first, first / own, 0.0
    if n <= SHORT or not _is_linear(s, e, batch, n) or (per_step > 0 and own < LEAST_CONTEXT * per_step):
        for k in range(n):
            one, _, _ = energy_of(s, e, batch, np.int64(k))
            joules += one
            over += one / (own + k * per_step)
            times_k += k * one / (own + k * per_step)
        return joules, over, times_k
    last, _, _ = energy_of(s, e, batch, n - 1)
    slope = (last - first) / (n - 1)
    joules = n * (first + last) / 2
    if per_step == 0:
        return joules, joules / own, 0.0  # nobody counts more in later steps
    x = own / per_step
    rest, logs = first - slope * x, _digamma_from(x, float(n))
    over = (n * slope + rest * logs) / per_step
    times_k = (slope * (n * (n - 1.0) / 2) + rest * (n - x * logs)) / per_step
    return joules, over, times_k


@kernel
def _is_linear(s, e, batch, n):
    """Whether what the steps of a run draw lies on one line."""
    c, p, n_host = s.limits[e], s.power[e], s.engines[e].run_n_host
    if not p.is_free:
        return False
    if p.by_phase:
        return n_host == 0 or n_host >= n
    uses = s.uses[e]
    if uses.size == 1:
        return True
    return _use_class(c, p, uses, batch, np.int64(0)) == _use_class(c, p, uses, batch, n - 1)


@kernel
def _use_class(c, p, uses, batch, k):
    """The class of a decode by the share of step k in which memory is read: it only grows with context."""
    _, _, _, _, n_decode, context = batch
    read = c.b_context * (context + k * n_decode)
    seconds = max(c.b0 + c.b_decode * n_decode + read, c.h0 + c.h_seq * n_decode)
    place = 0
    while uses[place].most < (p.weights_s + read) / seconds:
        place += 1
    return place


@kernel
def _digamma_from(x, n):
    """digamma(x + n) - digamma(x), the sum of 1 / (x + k) over k < n, for x of LEAST_CONTEXT at least."""
    a, b = 1 / x, 1 / (x + n)
    a2, b2 = a * a, b * b
    return (
        math.log1p(n * a) + (a - b) / 2 + (a2 - b2) / 12 - (a2 * a2 - b2 * b2) / 120
        + (a2 * a2 * a2 - b2 * b2 * b2) / 252
    )  # fmt: skip


@kernel
def _note(s, e, batch, n, joules):
    engine, meter = s.engines[e], s.meters[e]
    seconds = step_end(engine, n) - engine.run_start
    if batch[3] == 0:
        meter.decode_j += joules
        meter.decode_s += seconds
    elif batch[4] == 0:
        meter.prefill_j += joules
        meter.prefill_s += seconds
    else:
        meter.mixed_j += joules
        meter.mixed_s += seconds
    if not s.power[e].is_free:
        _, stretch, full = energy_of(s, e, batch, np.int64(0))
        if stretch > 1.0:
            meter.slowed_s += (stretch - 1.0) * full
