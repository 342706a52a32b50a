"""CPU time of `agentctl --help`: the median of several runs, user and system together (budget: 150 ms).

python benchmarks/help_time.py [RUNS]
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys

COMMAND = [sys.executable, "-m", "agentctl.cli.main", "--help"]


def cpu_ms(command: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)


def main(runs: int = 11) -> None:
    bare = statistics.median(cpu_ms([sys.executable, "-c", "pass"]) for _ in range(runs))
    times = [cpu_ms(COMMAND) for _ in range(runs)]
    print(
        f"agentctl --help: median {statistics.median(times):.0f} ms CPU of {runs} runs "
        f"(least {min(times):.0f}, most {max(times):.0f}); python alone {bare:.0f} ms"
    )


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
