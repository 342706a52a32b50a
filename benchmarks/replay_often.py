"""Replays one trace several times in one process, without any report: what `simulator.py` measures beside the
command.

    python benchmarks/replay_often.py TRACE CLUSTER POLICY TIMES [SESSIONS]

SESSIONS at a time: a closed loop; else as logged.
"""

from __future__ import annotations

import sys
from pathlib import Path

from agentctl.cluster import load_cluster
from agentctl.policies.base import load_policy
from agentctl.sim.driver import simulate
from agentctl.trace import open_trace
from agentctl.workload import compile_workload


def main() -> None:
    trace, cluster_file, name, times, *sessions = sys.argv[1:]
    cluster = load_cluster(Path(cluster_file))
    workload = compile_workload(open_trace(Path(trace)), replay="closed-loop" if sessions else "timestamps")
    policy = load_policy(name, batch_time=cluster.pools[0].profile.batch_time)
    for _ in range(int(times)):
        simulate(workload, cluster, policy, concurrency=int(sessions[0]) if sessions else None)


if __name__ == "__main__":
    main()
