"""A dozen policies on the agentic trace of 10,000 requests through the command line, load to report.

    python benchmarks/cli_policies.py [--policies A,B,...] [--together]

Twelve times `agentctl simulate ... -o RUN`, one after the other; with --together one command for all of them
(`simulate --policy A --policy B`), where the command takes several. The bar: 5 s wall.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from make_agentic_trace import write_trace
from processes import agentctl, ingested, machine, write_cluster

N_POLICIES = 12


def main() -> None:
    from agentctl.policies.base import policy_names

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policies", default=",".join(policy_names()[:N_POLICIES]))
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--together", action="store_true")
    args = parser.parse_args()
    policies = args.policies.split(",")
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "agentic.jsonl"
        write_trace(log, args.requests)
        trace, cluster = ingested(log), write_cluster(folder, 8)
        groups = [policies] if args.together else [[policy] for policy in policies]
        total = {}
        for turn in ("first", "warm"):
            wall = cpu = 0.0
            for group in groups:
                chosen = [part for policy in group for part in ("--policy", policy)]
                common = ("--cluster", cluster, "--replay", "timestamps", "--force", "-o", folder / "run")
                run = agentctl("simulate", trace, *chosen, *common)
                wall, cpu = wall + run.wall_s, cpu + run.cpu_s
            total[turn] = (wall, cpu)
    for turn, (wall, cpu) in total.items():
        print(
            f"{len(policies)} policies of {args.requests:,} requests, {turn}: {wall:.1f} s, {cpu:.1f} CPU s"
        )


if __name__ == "__main__":
    main()
