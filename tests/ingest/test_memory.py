"""What a request costs in memory where its blocks are known already: they are paid once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np

import agentctl

ROOT = Path(agentctl.__file__).parents[1]
BLOCKS = 8
BYTES_PER_REQUEST = 260  # 210 were measured, on x86-64 with glibc


def write_log(path: Path, n_lines: int) -> None:
    """Lines of 260 bytes over the same 200 prompts."""
    random = np.random.default_rng(1)
    ids = random.integers(1 << 63, (1 << 64) - 1, size=(200, BLOCKS), dtype=np.uint64).tolist()
    prompts = [", ".join(map(str, row)) for row in ids]
    with path.open("w") as out:
        for line in range(n_lines):
            out.write(
                f'{{"timestamp": {line * 25}, "input_length": {BLOCKS * 512}, "output_length": 100, '
                f'"hash_ids": [{prompts[int(random.integers(len(prompts)))]}]}}\n'
            )


def peak_bytes(log: Path) -> int:
    """Peak RSS of a process that ingests the log."""
    program = "import sys; from agentctl.cli.main import main; sys.exit(main(sys.argv[1:]))"
    arguments = ["-c", program, "ingest", str(log), "-o", str(log.with_suffix(".trace")), "--force", "-q"]
    arguments += ["--block-tokens", "512"]
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, cwd=ROOT)
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return usage.ru_maxrss * 1024


def test_a_request_of_known_blocks_costs_few_bytes(tmp_path):
    peaks = {}
    for n_lines in (80_000, 320_000):  # 20 and 80 MB
        log = tmp_path / f"{n_lines}.jsonl"
        write_log(log, n_lines)
        peak_bytes(log)  # compiles what is not compiled yet, which takes memory too
        peaks[n_lines] = peak_bytes(log)
    assert (peaks[320_000] - peaks[80_000]) / 240_000 < BYTES_PER_REQUEST, peaks
