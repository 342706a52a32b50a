"""Ingest speed and memory on prompt text: whole process, CPU seconds (user + system), peak RSS.

    python benchmarks/ingest_text.py [--mb 200,1000] [--runs 3]

Chat bodies of coding agents: 64 live sessions whose prompts repeat all earlier messages and grow by an answer
and a tool result, printable text with escapes, one message in fifty with an emoji written as two of them;
about 5 % of the prompts' bytes are new. The speed is that of the larger file, process start and all; the
slope between the two sizes is beside it, each from the run that used least: what else a machine does costs a
run CPU time, too. The bars: at least 200 MB per CPU second with hashing, and at most 300 MB of memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path

import numpy as np
from processes import agentctl, machine

N_LIVE = 64
_CALL = (
    '{{"request_id": "{number:032x}", "timestamp": {start:.3f}, "end_timestamp": {end:.3f}, '
    '"status_code": 200, "request": {{"model": "m", "messages": [{messages}], "tools": {tools}, '
    '"stream": true}}, "response": {{"id": "chatcmpl-{number:032x}", "choices": [{{"message": '
    '{{"role": "assistant", "content": "ok"}}, "finish_reason": "tool_calls"}}], "usage": '
    '{{"prompt_tokens": {prompt}, "completion_tokens": 200, "prompt_tokens_details": '
    '{{"cached_tokens": {cached}}}}}}}}}\n'
)


class Writer:
    """Text cut from a pool of words and code; a message is encoded once, as a client would."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        words = [self._word() for _ in range(20_000)]
        ends = [" ", " ", " ", " ", " ", ", ", ".\n", "\n    ", "(", ")\n", ' = "', '"\n', "\t", "_", "/"]
        picked = self.random.integers(0, len(words), 2_000_000)
        ended = self.random.integers(0, len(ends), picked.size)
        self.pool = "".join(f"{words[word]}{ends[end]}" for word, end in zip(picked, ended, strict=True))
        tools = [self._tool(k) for k in range(14)]
        self.tools = [json.dumps(tools[:n]) for n in (14, 14, 9)]
        self.systems = [self.message("system", self.text(n)) for n in (9_000, 6_000, 14_000)]

    def _word(self) -> str:
        letters = self.random.integers(97, 123, int(self.random.integers(2, 11)))
        return bytes(letters.astype(np.uint8)).decode()

    def _tool(self, number: int) -> dict:
        parameters = {"type": "object", "properties": {self._word(): {"type": "string"} for _ in range(4)}}
        return {
            "type": "function",
            "function": {"name": f"tool_{number}", "description": self.text(400), "parameters": parameters},
        }

    def text(self, length: float) -> str:
        at = int(self.random.integers(0, len(self.pool) - int(length)))
        text = self.pool[at : at + int(length)]
        return text + " \U0001f600 caf\u00e9" if self.random.random() < 0.02 else text

    def length(self, median: float) -> float:
        return min(float(self.random.lognormal(np.log(median), 1.0)), 30_000.0)

    def message(self, role: str, content: str, **more: object) -> str:
        return json.dumps({"role": role, "content": content, **more})

    def start(self) -> list[str]:
        return [
            self.systems[self.random.integers(len(self.systems))],
            self.message("user", self.text(self.length(800))),
        ]

    def grow(self, messages: list[str], call: str) -> None:
        arguments = json.dumps({"command": self.text(self.length(150))})
        calls = [{"id": call, "type": "function", "function": {"name": "tool_3", "arguments": arguments}}]
        messages.append(self.message("assistant", self.text(self.length(200)), tool_calls=calls))
        messages.append(self.message("tool", self.text(self.length(1500)), tool_call_id=call))


def write_log(path: Path, n_bytes: float, seed: int = 1) -> float:
    """A log of that size; returns the share of its prompt bytes that no earlier request of a session had."""
    writer, random = Writer(seed), np.random.default_rng(seed)
    live: list[tuple[list[str], int, int]] = []
    n, fresh, number = 0, 0, 0
    with path.open("w") as out:
        while n < n_bytes:
            if len(live) < N_LIVE:
                live.append((writer.start(), int(random.integers(8, 60)), int(random.integers(3))))
            at = int(random.integers(len(live)))
            messages, turns, kind = live[at]
            before = sum(map(len, messages[:-2])) if len(messages) > 2 else 0
            size = sum(map(len, messages))
            time = 1794474012 + number * 0.04
            line = _CALL.format(
                number=number,
                start=time,
                end=time + 2.5,
                messages=", ".join(messages),
                tools=writer.tools[kind],
                prompt=size // 4 + 2000,
                cached=before // 4,
            )
            out.write(line)
            n, fresh, number = n + len(line), fresh + size - before, number + 1
            writer.grow(messages, f"call_{number}")
            live[at] = (messages, turns - 1, kind)
            if turns <= 1:
                live.pop(at)
    return fresh / n


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", default="200,1000")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    results = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for size in [float(size) for size in args.mb.split(",")]:
            log = folder / f"{size:.0f}.jsonl"
            fresh = write_log(log, size * 1e6)
            command = ("ingest", log, "-o", folder / "o.trace", "--force")
            agentctl(*command)  # compiles
            runs = [agentctl(*command) for _ in range(args.runs)]
            cpu = min(run.cpu_s for run in runs)
            mb = log.stat().st_size / 1e6
            results.append(
                {
                    "log_mb": mb,
                    "lines": sum(1 for _ in log.open("rb")),
                    "fresh_share": fresh,
                    "cpu_s": cpu,
                    "median_cpu_s": statistics.median(run.cpu_s for run in runs),
                    "mb_per_cpu_s": mb / cpu,
                    "rss_mb": max(run.rss_mb for run in runs),
                }
            )
            log.unlink()
    small, large = results[0], results[-1]
    slope = (large["log_mb"] - small["log_mb"]) / max(large["cpu_s"] - small["cpu_s"], 1e-9)
    print(json.dumps({"machine": machine(), "runs": results, "slope_mb_per_cpu_s": slope}, indent=1))


if __name__ == "__main__":
    main()
