"""How long ideal reuse, the exact LRU curve and the rest of `reuse` take, per block touch.

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
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from agentctl.analyzers.counted import Counted
from agentctl.analyzers.lru_curve import lru_hit_tokens
from agentctl.analyzers.reuse_capacity import belady_curve
from agentctl.analyzers.reuse_ratios import interval_curve, intra_session
from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import stretches
from agentctl.analyzers.working_set import working_set
from agentctl.trace import PrefixTree

BLOCK_TOKENS = 64
SYSTEM_PROMPTS = 40


class Synthetic(NamedTuple):
    parent: np.ndarray
    depth: np.ndarray
    tip: np.ndarray
    session: np.ndarray
    arrival: np.ndarray


def agentic_trace(n_requests: int, seed: int = 1) -> Synthetic:
    """About 14 turns a session: a prompt of 24-64 shared and 40-120 own blocks, then 4 blocks a turn."""
    random = np.random.default_rng(seed)
    turns = 1 + random.geometric(1 / 13, size=n_requests // 13)
    turns = turns[: np.searchsorted(np.cumsum(turns), n_requests) + 1]
    session = np.repeat(np.arange(turns.size), turns)[:n_requests]
    start = np.sort(random.uniform(0, turns.size, turns.size))  # one session a second
    since_first = np.cumsum(random.lognormal(2.5, 1.5, session.size))
    is_first = np.diff(session, prepend=-1) > 0
    arrival = start[session] + since_first - since_first[is_first][session]
    order = np.argsort(arrival, kind="stable")
    opening = random.integers(40, 120, session.size)
    append = np.where(is_first, opening, random.geometric(0.25, session.size))
    compact = ~is_first & (random.random(session.size) < 0.02)
    shared = random.integers(24, 64, SYSTEM_PROMPTS)
    prompt_of = random.zipf(1.5, turns.size) % SYSTEM_PROMPTS
    restart = (is_first | compact)[order]
    parent, depth, tip = _grow(session[order], append[order], restart, shared, prompt_of)
    return Synthetic(parent, depth, tip, session[order], arrival[order])


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
    rounds = [measure(trace) for _ in range(3)]
    touches = int(trace.depth[trace.tip].sum(dtype=np.int64))
    out = sys.stdout.write
    out(f"{platform.machine()} {_cpu()}, Python {platform.python_version()}, numpy {np.__version__}\n")
    out(f"{trace.tip.size:,} requests, {touches:,} touches ({touches / trace.tip.size:.0f} a request), ")
    out(f"{trace.parent.size - 1:,} distinct blocks, {rounds[0][1]}\n")
    out(f"{'':34} best and worst of 3: CPU s, ns/touch\n")
    for name in rounds[0][0]:
        seconds = sorted(times[name] for times, _ in rounds)
        best, worst = seconds[0], seconds[-1]
        per_touch = f"{best / touches * 1e9:7.2f} {worst / touches * 1e9:7.2f} ns/touch"
        out(f"{name:34} {best:7.3f} {worst:7.3f} CPU s {per_touch}\n")
    out(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB\n")


def measure(trace: Synthetic) -> tuple[dict[str, float], str]:
    """CPU seconds of each step, and what it met."""
    n_blocks = trace.depth[trace.tip].astype(np.int64)
    prompt, zeros = n_blocks * BLOCK_TOKENS, np.zeros_like(n_blocks)
    counted = Counted(trace.tip, n_blocks, prompt, trace.session, zeros, trace.arrival, BLOCK_TOKENS, {})
    tree = PrefixTree(trace.parent, trace.depth, zeros[:0], zeros[:0])
    times: dict[str, float] = {}

    def timed(name: str, step: Callable[[], Any]) -> Any:
        began = time.process_time()
        result = step()
        times[name] = time.process_time() - began
        return result

    strands = timed("strands", lambda: weave(trace.parent, trace.depth, trace.tip))
    reuse = timed("stretches (ideal reuse)", lambda: stretches(strands, trace.tip))
    half = trace.tip.size // 2
    curve = "LRU curve, all and last half"
    hits = timed(curve, lambda: lru_hit_tokens(reuse, n_blocks, prompt, BLOCK_TOKENS, half))
    times["reuse and LRU curve"] = sum(times.values())
    timed("split by session, both rules", lambda: intra_session(tree, counted, reuse))
    timed("reuse intervals", lambda: interval_curve(counted, reuse))
    timed("working set", lambda: working_set(counted, reuse))
    points = timed("Belady's optimum", lambda: belady_curve(counted, reuse))
    ratio = hits[:, -1].sum() / prompt.sum()
    stretches_each = reuse.blocks.size / trace.tip.size
    return times, f"{stretches_each:.1f} stretches a request, ideal {ratio:.3f}, {len(points)} optima"


def _cpu() -> str:
    try:
        with Path("/proc/cpuinfo").open() as file:
            return next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


if __name__ == "__main__":
    main()
