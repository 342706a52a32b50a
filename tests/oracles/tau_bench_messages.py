"""Tau-bench conversations as calls with known sessions, interleaved at random."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path

from oracles.messages import Call

FILE = Path(__file__).parents[1] / "data/agent_messages/tau_bench_gpt4o_airline_trials_0_1.json.gz"


def interleaved_calls(seed: int, within: float = 600.0, with_replies: bool = True) -> list[Call]:
    """Every assistant message is a call whose prompt is all before it; they start `within` seconds."""
    rng = random.Random(seed)
    calls = []
    for session, conversation in enumerate(json.loads(gzip.decompress(FILE.read_bytes()))):
        clock, turn = rng.uniform(0.0, within), 0
        messages = [
            ("a" if message["role"] == "assistant" else "") + json.dumps(message)
            for message in conversation["traj"]
        ]
        for place, message in enumerate(messages):
            if message.startswith("a"):
                end = clock + rng.uniform(0.3, 5.0)
                reply = message if with_replies else None
                calls.append(Call(tuple(messages[:place]), clock, end, reply, truth=(session, turn)))
                clock, turn = end + rng.expovariate(1 / 8), turn + 1
    return sorted(calls, key=lambda call: call.arrival)
