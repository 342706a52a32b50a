"""Whole processes, as a user pays for them: CPU, wall and memory of a command, and the machine it ran on."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

AGENTCTL = str(Path(sys.executable).with_name("agentctl"))

CLUSTER = """schema = "agentctl/cluster/1"
[[pool]]
name = "main"
role = "both"
engines = {engines}
profile = "h100-qwen3-8b"
max_num_seqs = 256
{limits}
[router]
policy = "round-robin"
"""

LIMITS = {  # the same memory, and as many tokens a batch
    "vllm": "block_tokens = 64\nkv_blocks = 8193\nmax_num_batched_tokens = 8192",
    "sglang": 'scheduler = "sglang"\npage_tokens = 1\nkv_blocks = 524288\nchunked_prefill_size = 8192',
}


class Used(NamedTuple):
    user_s: float
    system_s: float
    wall_s: float
    rss_mb: float
    output: str

    @property
    def cpu_s(self) -> float:
        return self.user_s + self.system_s


def used(*command: str | Path, env: Mapping[str, str] | None = None) -> Used:
    """What a command used; it must succeed."""
    begun = time.monotonic()
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(  # as users start Python: what it compiles, it keeps
        [str(part) for part in command], stdout=subprocess.PIPE, text=True, env={**own, **(env or {})}
    )
    assert process.stdout is not None
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{' '.join(map(str, command))} failed")
    wall = time.monotonic() - begun
    return Used(usage.ru_utime, usage.ru_stime, wall, usage.ru_maxrss / 1e3, output)


def agentctl(*arguments: str | Path, env: Mapping[str, str] | None = None) -> Used:
    return used(AGENTCTL, *arguments, "-q", env=env)


def ingested(log: Path, sessions: str = "auto") -> Path:
    trace = log.parent / f"{log.name.split('.')[0]}.trace"
    agentctl("ingest", log, "-o", trace, "--sessions", sessions, "--force")
    return trace


# One store for the cluster, large enough for 10,000 requests of the agentic trace.
TIER = """
[[kv_tier]]
preset = "rdma-store"
capacity_tokens = 50_000_000
"""


def write_cluster(folder: Path, engines: int, scheduler: str = "vllm", has_tier: bool = False) -> Path:
    path = folder / f"{scheduler}-{engines}{'-tier' if has_tier else ''}.toml"
    path.write_text(CLUSTER.format(engines=engines, limits=LIMITS[scheduler]) + TIER * has_tier)
    return path


def machine() -> str:
    try:
        with Path("/proc/cpuinfo").open() as file:
            cpu = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        cpu = platform.machine()
    load = os.getloadavg()[0]
    return f"{cpu}, {os.cpu_count()} cores, load {load:.1f}, Python {platform.python_version()}"
