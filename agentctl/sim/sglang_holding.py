"""The pages of one request on an SGLang engine: taken, put in the tree, given back.

A request's first `n_named` pages are the tree's, down to the piece `top`; the others are its own.
"""

from __future__ import annotations

import numpy as np

from agentctl.sim.holding import blocks_for
from agentctl.sim.jit import kernel
from agentctl.sim.sglang_tree import insert, lock, unlock
from agentctl.sim.state import NONE, OUT_OF_KV


@kernel
def extend(s, e, r, tokens):
    """Take the pages that `tokens` more need."""
    new = blocks_for(s.jobs[r].computed + tokens, s.limits[e].block_tokens) - s.jobs[r].n_blocks
    if new > 0:
        s.jobs[r].n_blocks += new
        take_pages(s, e, new)


@kernel
def take_pages(s, e, n):
    """Unused pages become a request's own. SGLang stops where there are none: the run is void."""
    if n > s.engines[e].n_unused:
        s.counts[OUT_OF_KV] += 1
    s.engines[e].n_unused -= n
    s.engines[e].n_free -= n


@kernel
def _drop_pages(s, e, n):
    s.engines[e].n_unused += n
    s.engines[e].n_free += n


@kernel
def remember(s, e, r):
    """Put a request's full pages in the tree; what the tree had already takes the place of its own."""
    job, pages = s.jobs[r], np.int64(0)
    if s.limits[e].prefix_caching:
        pages = job.computed // s.limits[e].block_tokens
    node, there = insert(s, e, r, pages)
    _drop_pages(s, e, there - job.n_named)
    lock(s, e, node)
    unlock(s, e, np.int64(job.top))
    job.top, job.n_named = node, pages


@kernel
def release(s, e, r):
    """Give back a request's own pages and leave the rest to eviction."""
    job = s.jobs[r]
    _drop_pages(s, e, job.n_blocks - job.n_named)
    unlock(s, e, np.int64(job.top))
    job.top, job.n_blocks, job.n_named = NONE, 0, 0
