"""The agentic benchmark trace: agents that share a system prompt and grow their own, as JSONL.

    python benchmarks/make_agentic_trace.py agentic.jsonl [--requests 10000] [--rate 40] [--seed 1]

A session belongs to one of 8 families, the first of them the most frequent; all of a family begin with the
same system prompt of 2,048 tokens. A task follows, then turns: each prompt is the one before, its output and
a tool's result. On average 6k tokens in, 300 out, and 6 turns a session, since prompts end at 30,000 tokens.
Sessions start as a Poisson process; a turn's time is fixed beforehand (the time before, a nominal service
time and a gap), so that every simulator sees the same arrivals. Sessions are kept from their first turn; the
last ones are cut where the requests asked for are complete.

The format is Mooncake's (`timestamp` in ms, `input_length`, `output_length`, `hash_ids` of 512 tokens with
one for a partial last block), with `session_id` and `turn`. Replay it with `--replay timestamps`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK_TOKENS = 512
FAMILIES, SYSTEM_TOKENS = 8, 2048
TURNS, TASK, TOOL, OUTPUT, GAP_S = 7.0, 800.0, 300.0, 300.0, 3.0  # means
TASK_SPREAD, TOOL_SPREAD, OUTPUT_SPREAD, GAP_SPREAD = 1.0, 1.0, 0.8, 1.2  # sigma of the logarithms
LONGEST_PROMPT = 30_000
SHORTEST_OUTPUT, LONGEST_OUTPUT = 4, 4096
SERVICE_S, SERVICE_PER_OUTPUT_S = 0.15, 0.012


class Turns(NamedTuple):
    """One value per request, in order of arrival."""

    time: NDArray[np.float64]  # s
    session: NDArray[np.int64]
    turn: NDArray[np.int64]
    prompt: NDArray[np.int64]  # tokens
    output: NDArray[np.int64]


def make_turns(requests: int, rate: float, seed: int) -> tuple[Turns, NDArray[np.int64]]:
    """The first `requests` turns, and the family of every session.

    rate  requests/s once as many sessions end as begin
    """
    n_sessions = int(1.2 * requests / TURNS) + 100
    while True:
        turns, family, last_start = _draw(n_sessions, rate / TURNS, seed)
        if turns.time.size >= requests and turns.time[requests - 1] < last_start:
            return Turns(*[values[:requests] for values in turns]), family  # type: ignore[arg-type]
        n_sessions *= 2


def _draw(n_sessions: int, sessions_per_s: float, seed: int) -> tuple[Turns, NDArray[np.int64], float]:
    random = np.random.default_rng(seed)
    start = np.cumsum(random.exponential(1 / sessions_per_s, n_sessions))
    weights = 1 / np.arange(1, FAMILIES + 1)
    family = random.choice(FAMILIES, n_sessions, p=weights / weights.sum())
    n_turns = random.geometric(1 / TURNS, n_sessions)
    first = np.cumsum(n_turns) - n_turns
    session = np.repeat(np.arange(n_sessions), n_turns)
    turn = np.arange(session.size) - first[session]

    def lognormal(mean: float, spread: float, size: int) -> NDArray[np.float64]:
        return random.lognormal(np.log(mean) - spread**2 / 2, spread, size)

    def within_session(steps: NDArray) -> NDArray:
        """What the turns before add up to."""
        before = np.cumsum(steps) - steps
        return before - before[first][session]

    task = np.maximum(lognormal(TASK, TASK_SPREAD, n_sessions).astype(np.int64), 16)
    output = lognormal(OUTPUT, OUTPUT_SPREAD, session.size).astype(np.int64)
    output = output.clip(SHORTEST_OUTPUT, LONGEST_OUTPUT)
    tool = np.maximum(lognormal(TOOL, TOOL_SPREAD, session.size).astype(np.int64), 8)
    gap = SERVICE_S + SERVICE_PER_OUTPUT_S * output + lognormal(GAP_S, GAP_SPREAD, session.size)
    prompt = SYSTEM_TOKENS + task[session] + within_session(output + tool)
    time = start[session] + within_session(gap)
    kept = np.flatnonzero(prompt <= LONGEST_PROMPT)  # a session grows, so this cuts its end
    kept = kept[np.argsort(time[kept], kind="stable")]
    turns = Turns(time[kept] - start[0], session[kept], turn[kept], prompt[kept], output[kept])
    return turns, family, float(start[-1] - start[0])


def write_trace(path: Path, requests: int = 10_000, rate: float = 40.0, seed: int = 1) -> None:
    turns, family = make_turns(requests, rate, seed)
    shared = SYSTEM_TOKENS // BLOCK_TOKENS
    known: dict[int, list[str]] = {}  # full blocks of every session so far
    free = FAMILIES * shared  # the next id that nobody has
    with path.open("w") as out:
        for time, s, turn, prompt, output in zip(*(values.tolist() for values in turns), strict=True):
            if turn == 0:
                known[s] = [str(family[s] * shared + k) for k in range(shared)]
            ids = known[s]
            new = -(-prompt // BLOCK_TOKENS) - len(ids)
            fresh = [str(i) for i in range(free, free + new)]
            free += new
            n_full = prompt // BLOCK_TOKENS - len(ids)
            out.write(
                f'{{"timestamp":{round(time * 1000)},"input_length":{prompt},"output_length":{output},'
                f'"hash_ids":[{",".join(ids + fresh)}],"session_id":"s{s}","turn":{turn}}}\n'
            )
            ids.extend(fresh[:n_full])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--rate", type=float, default=40.0, help="requests/s once it is under way")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    write_trace(args.path, args.requests, args.rate, args.seed)


if __name__ == "__main__":
    main()
