"""Small random states of one engine, and requests that join it: crowded pools, cut prompts, shared blocks."""

import math
from dataclasses import replace

from hypothesis import strategies as st
from oracles.random_clusters import _limits, cluster_of, ticks

from agentctl.estimators.sfs import Probe
from agentctl.estimators.sfs_snapshot import SeenRequest, Snapshot

LONGEST = 24  # tokens of a request at most
TAKEN = 1.0


@st.composite
def snapshots(draw):
    """(snapshot, limits, [(time, request) that joins], the last of which is the probe)"""
    block = draw(st.sampled_from([1, 2, 4]))
    limits = draw(_limits(block, LONGEST, True, draw(st.booleans())))
    running, free = [], limits.kv_blocks - 1
    in_flight = draw(st.booleans())
    for r in range(draw(st.integers(0, min(6, limits.max_num_seqs)))):
        request, blocks = draw(_running(limits, in_flight))
        if blocks <= free:
            running.append(replace(request, arrival_s=r * 2.0**-9))
            free -= blocks
    started = None
    if any(request.in_flight_tokens for request in running):
        started = TAKEN - draw(ticks(0, 40))
    free -= draw(st.integers(0, free)) if draw(st.integers(0, 4)) == 0 else 0  # others have them
    waiting = [draw(_waiting(limits)) for _ in range(draw(st.integers(0, 5)))]
    waiting = [replace(q, arrival_s=(10 + k) * 2.0**-9) for k, q in enumerate(waiting)]
    if limits.scheduling_policy == "priority":
        waiting.sort(key=lambda q: (q.priority, q.arrival_s))
    pool = cluster_of([limits]).pools[0]
    snapshot = Snapshot(pool, TAKEN, free, tuple(running), tuple(waiting), started, draw(st.integers(0, 3)))
    times = sorted(TAKEN + draw(ticks(0, 60)) for _ in range(draw(st.integers(1, 3))))
    return snapshot, limits, [(at, draw(_probe(limits))) for at in times]


def most_prompt(limits):
    room = limits.kv_blocks - 1 - math.floor(limits.watermark * limits.kv_blocks)
    longest = min((limits.kv_blocks - 1) * limits.block_tokens + 1, limits.max_model_len or LONGEST)
    return max(min(room * limits.block_tokens, longest - 1, LONGEST - 8), 1), longest


@st.composite
def _running(draw, limits, in_flight):
    most, longest = most_prompt(limits)
    prompt = draw(st.integers(1, most))
    output = draw(st.integers(1, max(min(longest - prompt, 12), 1)))
    emitted = draw(
        st.integers(0, min(output, longest - prompt - 1))
    )  # all of them: it outlives its prediction
    length = prompt + emitted
    computed = length - 1 if emitted and draw(st.integers(0, 4)) else draw(st.integers(0, length - 1))
    chunk = draw(st.integers(0, length - computed)) if in_flight else 0
    size = limits.block_tokens
    blocks = -(-(computed + chunk) // size)
    full = (computed + chunk) // size if limits.prefix_caching else 0
    shared = draw(st.integers(0, full)) if draw(st.booleans()) else 0
    request = SeenRequest(
        prompt, output, "", emitted, computed, chunk, blocks - shared, priority=draw(st.integers(0, 2))
    )
    return request, blocks - shared


@st.composite
def _waiting(draw, limits):
    most, longest = most_prompt(limits)
    prompt = draw(st.integers(1, most))
    output = draw(st.integers(1, max(min(longest - prompt, 12), 1)))
    emitted = draw(st.sampled_from([0, 0, 0, draw(st.integers(0, min(output, longest - prompt) - 1))]))
    hit = draw(st.sampled_from([0, draw(st.integers(0, prompt))]))
    return SeenRequest(prompt, output, "", emitted, hit_tokens=hit, priority=draw(st.integers(0, 2)))


@st.composite
def _probe(draw, limits):
    q = draw(_waiting(limits))
    return Probe(q.prompt_tokens, q.output_tokens, q.hit_tokens, q.priority)
