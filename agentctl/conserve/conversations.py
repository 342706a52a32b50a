"""The paper's conversations, or those of a trace, and how they come: the authors' draws, and others.

The authors took the first 256 of 2,294 SWE-bench conversations and five turns of each (their loop runs 255).
A tool takes no time, and outputs get the length of the trace.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import NamedTuple

import numpy as np

from agentctl.conserve.state import F64, I64, Sessions
from agentctl.errors import InputError
from agentctl.trace import Trace
from agentctl.workload import compile_workload
from agentctl.workload.arrays import AFTER_END

PUBLISHED = Path(__file__).with_name("swe_bench_256.csv")
SESSIONS, TURNS = 256, 5
AUTHORS_SEED = 42


class Tokens(NamedTuple):
    """[session, turn]: new in the prompt, and of the output; what was left out, by reason.

    gap  s that tools took before a turn, which paper mode leaves out; None: not known
    """

    name: str
    fresh: I64
    output: I64
    left_out: dict[str, int]
    gap: F64 | None = None

    def with_tools(self, seconds: float) -> Tokens:
        """With so long a time before every turn but the first."""
        gap = np.full(self.fresh.shape, seconds)
        gap[:, 0] = 0.0
        return self._replace(gap=gap)

    @property
    def full_context(self) -> int:
        """Prompt and output of every turn, as the paper counts tokens: what is cached counts again."""
        whole = np.cumsum(self.fresh, axis=1) + np.cumsum(self.output, axis=1)
        return int(whole.sum())


def published() -> Tokens:
    """The 256 conversations of the paper."""
    table = np.loadtxt(PUBLISHED, delimiter=",", skiprows=1, dtype=np.int64)
    return Tokens("SWE-bench, mini-swe-agent", table[:, 1::2].copy(), table[:, 2::2].copy(), {})


def conversations_of(trace: Trace) -> Tokens:
    """The first 256 sessions of at least five turns, each of which extends the one before.

    Without blocks in the trace it is enough that prompts grow. Raises InputError when there is none.
    """
    requests, has_blocks = compile_workload(trace).requests, trace.block_tokens is not None
    prompt, output = requests.prompt_tokens, requests.output_tokens
    order = np.argsort(requests.session, kind="stable")
    ends = np.cumsum(np.bincount(requests.session))
    fresh, outputs, gaps, left_out = [], [], [], {"shorter": 0, "not one line that grows": 0}
    for stop, size in zip(ends, np.diff(ends, prepend=0), strict=True):
        rows = order[stop - size : stop][:TURNS]
        if rows.size < TURNS:
            left_out["shorter"] += 1
        elif (np.diff(prompt[rows]) <= 0).any() or (
            has_blocks and (requests.parent[rows[1:]] != rows[:-1]).any()
        ):
            left_out["not one line that grows"] += 1
        else:
            new = prompt[rows] - np.concatenate([[0], prompt[rows[:-1]] + output[rows[:-1]]])
            fresh.append(np.maximum(new, 1))
            outputs.append(output[rows])
            gaps.append(np.where(requests.release[rows] == AFTER_END, requests.gap[rows], 0.0))
    if not fresh:
        raise InputError(
            f"has no session of {TURNS} turns that only grows",
            place=trace.name,
            expected="some; they are cut there",
        )
    left_out["after the first 256"] = max(len(fresh) - SESSIONS, 0)
    kept = {reason: n for reason, n in left_out.items() if n}
    gap = np.array(gaps[:SESSIONS])
    return Tokens(
        trace.name, np.array(fresh[:SESSIONS]), np.array(outputs[:SESSIONS]), kept, gap if gap.any() else None
    )


def order_of(n: int, seed: int) -> list[int]:
    """Which conversation comes when."""
    order = list(range(n))
    if seed:
        random.Random(seed - 1).shuffle(order)
    return order


def draw(tokens: Tokens, rate: float, seed: int = 0, errors: float = 0.0) -> Sessions:
    """How they come: Poisson, `rate` sessions/s. A share of `errors` of the later turns is wrong.

    Seed 0 has the authors' own draws; every other one another order, as their ten orders, other gaps and
    other wrong turns. More errors include fewer.
    """
    n, turns = tokens.fresh.shape
    order = order_of(n, seed)
    gaps, wrongs = random.Random(AUTHORS_SEED + seed), random.Random(AUTHORS_SEED + seed)
    at = np.cumsum([0.0] + [gaps.expovariate(rate) for _ in range(n - 1)])
    is_wrong = [[k > 0 and wrongs.random() < errors for k in range(turns)] for _ in range(n)]
    return Sessions(at, tokens.fresh[order], tokens.output[order], np.array(is_wrong)[order])
