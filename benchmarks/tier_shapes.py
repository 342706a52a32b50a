"""Policies with no KV tier, a small one and plenty: SMetric's findings, by peaks on the frozen workload.

    python benchmarks/tier_shapes.py [--sessions 4000] [--rate 40] [--replicates 8] [--seed 0]

8 engines of 8,193 blocks of 64 tokens (h100-qwen3-8b), a store for the cluster over RDMA. Prints, per policy
and capacity, the share of prompt tokens found at the trace's load and the load carried within the default
objectives, as `agentctl recommend` finds it. Published (SMetric, arXiv 2607.08565): without a tier 45 %
reuse of a balanced policy against 74 % of one that favours the cache; with a provisioned tier balance alone
comes within 7 % of the best.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from processes import agentctl, machine, write_cluster

POLICIES = "least-loaded,round-robin,lmetric,smetric,session-sticky,bailian-linear"
CAPACITIES = {0: "none", 2_000_000: "small", 50_000_000: "provisioned"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sessions", type=int, default=4000)
    parser.add_argument("--rate", type=float, default=40.0, help="session starts per minute")
    parser.add_argument("--replicates", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        trace = folder / "agentic.trace"
        how = ("--sessions", args.sessions, "--rate", args.rate, "--seed", args.seed)
        agentctl("synth", "agentic", "-o", trace, *how)
        vary = "kv_tier.capacity_tokens=" + ",".join(map(str, CAPACITIES))
        run = folder / "run"
        agentctl(
            "recommend", trace, "--cluster", write_cluster(folder, 8, has_tier=True), "--policies", POLICIES,
            "--vary", vary, "--replicates", args.replicates, "--no-sensitivity", "-o", run,
        )  # fmt: skip
        document = json.loads((run / "result.json").read_text())
    print(
        f"{'policy':16} {'tier':12} {'hit':>7} {'carries':>9} {'95 %':>15}  of the best peak with that tier"
    )
    for capacity, label in CAPACITIES.items():
        rows = [one for one in document["candidates"] if _capacity(one) == capacity]
        best = max(one["peak_sessions_per_min"] or 0 for one in rows)
        for one in rows:
            hit = next(at["hit_ratio"] for at in one["at_load"] if at["load"] == 1)
            peak, interval = one["peak_sessions_per_min"], one["interval_sessions_per_min"]
            ends = " to ".join("open" if end is None else f"{end:.0f}" for end in interval or (None, None))
            print(f"{one['policy']:16} {label:12} {hit:7.1%} {peak:9.1f} {ends:>15} {peak / best:8.1%}")


def _capacity(candidate: dict) -> int:
    """Settings name what differs from the cluster, which has the largest."""
    return next((one["value"] for one in candidate["settings"]), max(CAPACITIES))


if __name__ == "__main__":
    main()
