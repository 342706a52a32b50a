"""Ingest speed and memory on hash JSONL: whole process, CPU seconds (user + system), peak RSS.

    python benchmarks/ingest.py [--lines 40000,190000] [--runs 3]

Lines of about 2.6 kB with some 120 unsigned 64-bit ids of 512 tokens; sessions of agents, most blocks seen
before. The speed is the slope between the two sizes, so that imports and the reading of compiled code do
not count; the first run of all, which compiles, is left out. The bars: at least 100 MB per CPU second, and at
most 256 MB + 64 bytes for each distinct block + 260 for each request, whatever the size of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

BLOCK = 512


def write_log(path: Path, n_lines: int, seed: int = 1) -> None:
    """Sixty live sessions; a request extends one of them by its output and a tool result."""
    random = np.random.default_rng(seed)
    fresh = iter(lambda: int(random.integers(1 << 63, (1 << 64) - 1, dtype=np.uint64)), None)
    live: list[tuple[int, list[str], int]] = []
    with path.open("w") as out:
        for line in range(n_lines):
            if len(live) < 60:
                prompt = int(random.integers(40_000, 80_000))
                live.append((prompt, [str(next(fresh)) for _ in range(prompt // BLOCK)], 0))
            at = int(random.integers(len(live)))
            prompt, ids, turn = live[at]
            output = int(random.integers(50, 600))
            tail = [str(next(fresh))] if prompt % BLOCK else []
            out.write(
                f'{{"timestamp": {line * 25}, "input_length": {prompt}, "output_length": {output}, '
                f'"hash_ids": [{", ".join(ids + tail)}]}}\n'
            )
            prompt += output + int(random.integers(100, 1500))
            ids += [str(next(fresh)) for _ in range(prompt // BLOCK - len(ids))]
            live[at] = (prompt, ids, turn + 1)
            if turn > 30:
                live.pop(at)


def run(log: Path, output: Path) -> tuple[float, float, int]:
    """(CPU seconds, peak RSS in MB, distinct blocks) of one `agentctl ingest`."""
    program = str(Path(sys.executable).with_name("agentctl"))
    command = [program, "ingest", str(log), "-o", str(output), "--force", "-q"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(command)} failed")
    import pyarrow.parquet as pq

    blocks = pq.read_metadata(output / "prefix_nodes.parquet").num_rows
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1e3, blocks


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", default="40000,190000")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    sizes = [int(size) for size in args.lines.split(",")]
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for size in sizes:
            log = Path(folder) / f"{size}.jsonl"
            write_log(log, size)
            run(log, Path(folder) / "o.trace")
            runs = [run(log, Path(folder) / "o.trace") for _ in range(args.runs)]
            results.append(
                {
                    "lines": size,
                    "log_mb": log.stat().st_size / 1e6,
                    "cpu_s": statistics.median(cpu for cpu, _, _ in runs),
                    "rss_mb": max(rss for _, rss, _ in runs),
                    "rss_bar_mb": 256 + (64 * runs[0][2] + 260 * size) / 1e6,
                    "blocks": runs[0][2],
                }
            )
    small, large = results[0], results[-1]
    slope = (large["log_mb"] - small["log_mb"]) / (large["cpu_s"] - small["cpu_s"])
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(json.dumps({"machine": machine, "runs": results, "mb_per_cpu_s": slope}, indent=1))


if __name__ == "__main__":
    main()
