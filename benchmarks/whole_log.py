"""What a whole log costs: ingest, then analyze, as two processes; CPU seconds, wall seconds, peak RSS.

    python benchmarks/whole_log.py LOG

Made for the public Claude Code captures (kv-cache-tester, 356 sessions, 26,096 requests, 47 million block
references, 231 MB unpacked): both together under 90 s and under 1.5 GB each.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def measure(*arguments: str) -> dict[str, float]:
    """One agentctl command, whole process."""
    program = str(Path(sys.executable).with_name("agentctl"))
    start = time.monotonic()
    process = subprocess.Popen([program, *arguments, "-q"], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"agentctl {' '.join(arguments)} failed")
    return {
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "wall_s": round(time.monotonic() - start, 2),
        "rss_mb": round(usage.ru_maxrss / 1e3),
    }


def main() -> None:
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory() as folder:
        trace = str(Path(folder) / "log.trace")
        result = {"ingest": measure("ingest", sys.argv[1], "-o", trace), "analyze": measure("analyze", trace)}
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(json.dumps({"machine": machine, **result}, indent=1))


if __name__ == "__main__":
    main()
