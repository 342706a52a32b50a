"""How long ideal reuse and the exact LRU curve take, per block touch.

    python benchmarks/lru_curve.py [REQUESTS]

Makes a synthetic agentic trace in memory (many sessions at once, shared system prompts, prompts that grow
turn by turn, now and then a compaction), then times each step three times in CPU seconds of this process,
user and system; compilation is left out by a small run before. Peak memory includes the trace itself.
"""

from __future__ import annotations

import argparse
import platform
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from agentctl.analyzers.belady import belady_hit_blocks, intervals
from agentctl.analyzers.lru_curve import lru_hit_tokens
from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import stretches

BLOCK_TOKENS = 64
SYSTEM_PROMPTS = 40


def agentic_trace(n_requests: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(parent, depth, tip): 14 turns a session, a first prompt of 24-64 shared and 40-120 own blocks."""
    random = np.random.default_rng(seed)
    turns = 1 + random.geometric(1 / 13, size=n_requests // 13)
    turns = turns[: np.searchsorted(np.cumsum(turns), n_requests) + 1]
    session = np.repeat(np.arange(turns.size), turns)[:n_requests]
    start = np.sort(random.uniform(0, turns.size, turns.size))  # one session a second
    gaps = random.lognormal(2.5, 1.5, session.size)
    since_first = np.cumsum(gaps)
    is_first = np.diff(session, prepend=-1) > 0
    since_first -= since_first[is_first][session]
    order = np.argsort(start[session] + since_first, kind="stable")
    opening = random.integers(40, 120, session.size)
    append = np.where(is_first, opening, random.geometric(0.25, session.size))
    compact = ~is_first & (random.random(session.size) < 0.02)
    shared = random.integers(24, 64, SYSTEM_PROMPTS)
    prompt_of = random.zipf(1.5, turns.size) % SYSTEM_PROMPTS
    return _grow(session[order], append[order], (is_first | compact)[order], shared, prompt_of)


@njit
def _grow(session, append, restart, shared, prompt_of):
    n_nodes = 1 + shared.sum() + append.sum() + 40 * restart.sum()
    parent = np.zeros(n_nodes, np.uint32)
    depth = np.zeros(n_nodes, np.int32)
    tip = np.zeros(session.size, np.uint32)
    system_tip = np.zeros(shared.size, np.uint32)
    at = np.zeros(prompt_of.size, np.uint32)
    n = 1
    for r in range(session.size):
        s = session[r]
        node, blocks = at[s], append[r]
        if restart[r]:
            prompt = prompt_of[s]
            node = system_tip[prompt]
            if node == 0:
                for _ in range(shared[prompt]):
                    parent[n], depth[n] = node, depth[node] + 1
                    node = np.uint32(n)
                    n += 1
                system_tip[prompt] = node
            blocks += 40 if at[s] != 0 else 0  # the summary that follows a compaction
        for _ in range(blocks):
            parent[n], depth[n] = node, depth[node] + 1
            node = np.uint32(n)
            n += 1
        at[s] = tip[r] = node
    return parent[:n], depth[:n], tip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("requests", type=int, nargs="?", default=1_000_000)
    n_requests = parser.parse_args().requests
    measure(agentic_trace(10_000))
    trace = agentic_trace(n_requests)
    parent, depth, tip = trace
    touches = int(depth[tip].sum(dtype=np.int64))
    rounds = [measure(trace) for _ in range(3)]
    facts = rounds[0][1]
    out = sys.stdout.write
    out(f"{platform.machine()} {_cpu()}, Python {platform.python_version()}, numpy {np.__version__}\n")
    out(f"{tip.size:,} requests, {touches:,} touches ({touches / tip.size:.0f} a request), ")
    out(f"{parent.size - 1:,} distinct blocks, {facts}\n")
    out(f"{'':34} best and worst of 3: CPU s, ns/touch\n")
    for name in rounds[0][0]:
        seconds = sorted(times[name] for times, _ in rounds)
        best, worst = seconds[0], seconds[-1]
        per_touch = f"{best / touches * 1e9:7.2f} {worst / touches * 1e9:7.2f} ns/touch"
        out(f"{name:34} {best:7.3f} {worst:7.3f} CPU s {per_touch}\n")
    out(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB\n")


def measure(trace: tuple[np.ndarray, np.ndarray, np.ndarray]) -> tuple[dict[str, float], str]:
    """CPU seconds of each step, and what it met."""
    parent, depth, tip = trace
    n_blocks = depth[tip].astype(np.int64)
    times: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = step()
        times[name] = time.process_time() - began
        return result

    strands = timed("strands", lambda: weave(parent, depth, tip))
    reuse = timed("stretches (ideal reuse)", lambda: stretches(strands, tip))
    hits = timed(
        "LRU curve, all and last half",
        lambda: lru_hit_tokens(reuse, n_blocks, n_blocks * BLOCK_TOKENS, BLOCK_TOKENS, tip.size // 2),
    )
    times["reuse and LRU curve"] = sum(times.values())
    to_carry = timed("Belady: intervals", lambda: intervals(reuse))
    capacity = hits.shape[1] // 50
    timed("Belady: one capacity", lambda: belady_hit_blocks(to_carry, capacity))
    ratio = hits[:, -1].sum() / (n_blocks.sum() * BLOCK_TOKENS)
    return times, f"{reuse.blocks.size / tip.size:.1f} stretches a request, ideal reuse {ratio:.3f}"


def _cpu() -> str:
    try:
        with Path("/proc/cpuinfo").open() as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    main()
