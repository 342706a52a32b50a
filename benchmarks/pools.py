"""How many requests a cluster with roles replays in a CPU second: processes of replay_often.py, warm caches.

    python benchmarks/pools.py [--policies NAME,NAME] [--runs 3]

The agentic trace (make_agentic_trace.py), 10,000 requests, closed loop of 128 sessions, on 2 prefill and 6
decode engines of 8,193 blocks of 64 tokens, without and with a KV tier of the whole cluster. Requests/s are
slopes between one and several replays in a process, so that start-up does not count. Bar: 75,000 with the
tier.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from make_agentic_trace import write_trace
from processes import TIER, ingested, machine, used

CLUSTER = """schema = "agentctl/cluster/1"
[[pool]]
name = "prefill"
role = "prefill"
engines = 2
profile = "h100-qwen3-8b"
block_tokens = 64
kv_blocks = 8193
[[pool]]
name = "decode"
role = "decode"
engines = 6
profile = "h100-qwen3-8b"
block_tokens = 64
kv_blocks = 8193
[network]
bytes_per_s = 25e9
latency_s = 5e-3
"""
N, OFTEN = 10_000, 30


def replays_per_s(trace: Path, cluster: Path, policy: str, runs: int) -> float:
    script = Path(__file__).with_name("replay_often.py")
    command = (sys.executable, script, trace, cluster, policy)
    used(*command, "1", "128")
    times = [[used(*command, str(k), "128").user_s for k in (1, OFTEN)] for _ in range(runs)]
    one, many = (statistics.median(column) for column in zip(*times, strict=True))
    return N * (OFTEN - 1) / (many - one)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policies", default="conserve-pd,full-disaggregation,ampd,ppd,deflection,lmetric")
    parser.add_argument("--runs", type=int, default=3)
    args = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_trace(folder / "agentic.jsonl", N, 40.0)
        trace = ingested(folder / "agentic.jsonl")
        clusters = [folder / "pools.toml", folder / "pools-tier.toml"]
        for path, tier in zip(clusters, ("", TIER), strict=True):
            path.write_text(CLUSTER + tier)
        print(f"{'policy':24} {'no tier':>11} {'one tier':>11}  requests per CPU second")
        for policy in args.policies.split(","):
            rates = [replays_per_s(trace, path, policy, args.runs) for path in clusters]
            print(f"{policy:24} {rates[0]:11,.0f} {rates[1]:11,.0f}", flush=True)


if __name__ == "__main__":
    main()
