"""One engine's scheduler: SGLang's rules, a batch at a time.

An iteration runs a prefill batch if there is one (agentctl.sim.sglang_prefill), else one decode of every
request whose prompt is done. A batch is planned with `start`, runs until `ends_at`, and takes effect with
`finish`; equal decodes are one run, brought to an instant by `settle` (agentctl.sim.sglang_decode).

In an engine's running list the first `n_decoding` decode, in order; then come the `n_prefilling` prompts of
the batch. Between batches only `chunked`, the request whose prompt is partly computed, follows the first: it
is in the next batch. A mixed batch has its prompts first and counts no decodes. What is kept back for running
requests is their output times `ratio`, which falls with every decode; `is_full` says that nobody need be
tried; a request that ended in a decode counts as running (`unnoticed`) until the next decode is planned.
Source: sglang 0.5.23, srt/managers/scheduler.py, overlap scheduling off, first come first served.
"""

from __future__ import annotations

import math

import numpy as np

from agentctl.sim.jit import kernel, rule
from agentctl.sim.news import announce
from agentctl.sim.queue import apply, apply_run
from agentctl.sim.sglang_decode import lower_ratio, plan_decode, repeat, settle
from agentctl.sim.sglang_holding import release, remember
from agentctl.sim.sglang_prefill import plan_prefill
from agentctl.sim.state import NONE
from agentctl.sim.steps import last_step, set_end, step_end, time_batch


@rule
def start(s, e, now):
    """Plan the next batch or run and set `ends_at`."""
    engine = s.engines[e]
    if engine.n_running == 0 and now > engine.batch_ended:
        _idle(s, e)  # it looked for work since the last batch ended and found none
    n_planned = np.int64(0)
    for _ in range(2):  # the first look may only notice that all have left
        n_planned = plan_prefill(s, e, now)
        if n_planned:
            time_batch(s, e, now, engine.n_running - engine.n_decoding)
            break
        n_planned = plan_decode(s, e)
        if n_planned:
            time_batch(s, e, now, n_planned)
            repeat(s, e)
            break
        _idle(s, e)
    if n_planned:
        set_end(s, e)
    return 0


@kernel
def _idle(s, e):
    """An iteration that finds nothing to run starts the new-token ratio afresh."""
    engine = s.engines[e]
    engine.unnoticed, engine.is_full, engine.ratio = 0, False, s.limits[e].first_ratio


@rule
def finish(s, e, now):
    """Apply the batch or run that ends now. Fills `s.ended` with the requests that ended, in batch order, and
    returns their number."""
    engine = s.engines[e]
    settle(s, e, now)
    first_end, last = step_end(engine, np.int64(1)), last_step(engine)
    n_ended, kept = np.int64(0), np.int64(0)
    last_prompt = engine.n_decoding + engine.n_prefilling
    for i in range(engine.n_running):
        r = s.running[e, i]
        job = s.jobs[r]
        if engine.run_steps:
            apply_run(job, engine.run_steps, first_end, last, now)
        elif s.planned[e, i]:
            apply(s, e, r, s.planned[e, i], now)
        if r == engine.chunked:
            continue
        if job.emitted == job.output:
            remember(s, e, r)
            release(s, e, r)
            engine.context_tokens -= job.prompt + job.emitted
            s.ended[n_ended] = r
            n_ended += 1
            continue
        if engine.n_decoding <= i < last_prompt:
            remember(s, e, r)
        s.running[e, kept] = r
        kept += 1
    _conclude(s, e, kept, n_ended)
    announce(s, e, now)
    lower_ratio(s, e, engine.run_steps - 1)
    engine.run_steps = 0
    s.ends_at[e], engine.batch_ended = math.inf, now
    return n_ended


@kernel
def _conclude(s, e, kept, n_ended):
    """Who decodes from now on, and whether the next iteration may admit."""
    engine = s.engines[e]
    if engine.n_prefilling == 0:
        engine.unnoticed += n_ended
    else:
        if engine.chunked != NONE:
            remember(s, e, engine.chunked)
        if n_ended or engine.chunked != NONE or engine.n_decoding + engine.unnoticed == 0:
            engine.is_full = False  # somebody left, a prompt is partial, or those that filled it have gone
    engine.n_decoding, engine.n_prefilling = kept, 0
    if engine.chunked != NONE:
        s.running[e, kept] = engine.chunked
        kept += 1
    engine.n_running = engine.running_requests = kept
