"""What engines give to KV tiers, and when: at the end of a prefill and of a request, or when they lose it.

The rules are those of `write` in cluster.toml: through, selective (units that two admissions hit), back.
"""

from __future__ import annotations

import numpy as np

from agentctl.sim.jit import kernel
from agentctl.sim.queue import is_decode
from agentctl.sim.state import N_LOSSES, NONE
from agentctl.sim.tier_moves import store, store_of
from agentctl.sim.tier_state import BACK, SELECTIVE
from agentctl.sim.tier_store import path_units


@kernel
def who_may_be_stored(s, e):
    """Whose prompt the batch completes and who ends with it, in its order, into `s.started`; how many."""
    engine, n = s.engines[e], np.int64(0)
    steps_of_run = engine.run_steps
    for i in range(engine.n_running):
        r, tokens = s.running[e, i], s.planned[e, i]
        job = s.jobs[r]
        if steps_of_run:
            is_prefilled, emits = False, steps_of_run
        else:
            emits = np.int64(tokens > 0 and job.computed + tokens == job.prompt + job.emitted)
            is_prefilled = emits == 1 and not is_decode(job)
        ends = emits > 0 and job.emitted + emits == job.output
        if is_prefilled or ends:
            s.started[n] = 4 * r + 2 * is_prefilled + ends
            n += 1
    return n


@kernel
def store_through(s, e, n, now):
    """Store what the batch has completed of the n entries of `s.started`, prompts and what has ended."""
    for i in range(n):
        r, is_prefilled, ends = s.started[i] // 4, s.started[i] & 2, s.started[i] & 1
        job = s.jobs[r]
        for t in range(s.tiers.size):
            tier = s.tiers[t]
            if tier.write == BACK or not (is_prefilled or (ends and tier.write_decode)):
                continue
            tokens = np.int64(job.computed)
            if not tier.write_decode:
                tokens = min(tokens, np.int64(job.prompt))
            n_wanted = path_units(s, r, tier.unit_blocks, 0, tokens // tier.unit_tokens, np.int64(0))
            if tier.write == SELECTIVE:
                n_wanted = _hit_twice(s, store_of(s, t, e), n_wanted)
            store(s, e, r, t, n_wanted, now)


@kernel
def _hit_twice(s, k, n):
    """Of the n wanted ranges, those whose units were local hits of two admissions: a beginning."""
    for i in range(n):
        one = s.wanted[i]
        twice = np.int64(s.shelves[k, one.line].twice)
        if twice < one.high:
            one.high = max(twice, np.int64(one.low))
            return i + (1 if one.high > one.low else 0)
    return n


@kernel
def note_prompt(s, e, r):
    """Blocks of r's prompt that are here go to tiers that are written back when they are lost."""
    job, size = s.jobs[r], s.limits[e].block_tokens
    left = min(np.int64(job.n_named), job.prompt // size)
    for at in range(job.path_start, job.path_stop):
        line, length = s.path[at].line, min(np.int64(s.path[at].length), left)
        if length <= 0:
            break
        s.noted[line, e] = max(np.int64(s.noted[line, e]), length)
        left -= length


@kernel
def write_back(s, e, now):
    """What this planning has lost, in one store; what was lost last is nearest to the head."""
    n_losses = s.counts[N_LOSSES]
    s.counts[N_LOSSES] = 0
    if n_losses == 0:
        return
    for t in range(s.tiers.size):
        tier, n = s.tiers[t], np.int64(0)
        if tier.write != BACK:
            continue
        for i in range(n_losses - 1, -1, -1):
            line = np.int64(s.losses[i].line)
            high = np.int64(s.losses[i].high)
            if not tier.write_decode:
                high = min(high, np.int64(s.noted[line, e]))
            low = max(np.int64(s.losses[i].low), np.int64(s.lines[line, e].held))  # found again
            first = (s.depths[line] + low) // tier.unit_blocks
            last = (s.depths[line] + high) // tier.unit_blocks
            if low < high and first < last:
                s.wanted[n].line, s.wanted[n].low, s.wanted[n].high = line, first, last
                n += 1
        if n:
            store(s, e, np.int64(NONE), t, n, now)
