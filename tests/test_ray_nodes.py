"""Two Ray nodes on one machine, one of which is killed in the middle: nothing is lost, nothing comes twice,
and a report has the same bytes.

In a network namespace of its own, where Ray's nodes can talk to each other over loopback and to nobody else.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TWO_NODES = """
import fcntl, os, socket, struct, sys, threading, time
with socket.socket() as any_socket:  # bring loopback up: SIOCSIFFLAGS, IFF_UP | IFF_LOOPBACK | IFF_RUNNING
    fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh14x", b"lo", 0x1 | 0x8 | 0x40))
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
from ray.cluster_utils import Cluster

node = {"num_cpus": 1, "node_ip_address": "127.0.0.1"}
cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
second = cluster.add_node(**node)
"""
MAP = """
from agentctl.engines.ray_core import RayCore

engine = RayCore(cluster.address)
assert engine.workers == 2, engine.workers

def slowly(n):
    time.sleep(0.1)
    return n * n

seen = []
for place, result in engine.map(slowly, range(60)):
    seen.append((place, result))
    if len(seen) == 10:
        cluster.remove_node(second, allow_graceful=False)
assert sorted(seen) == [(n, n * n) for n in range(60)]
engine.close()
cluster.shutdown()
"""
RECOMMEND = """
from pathlib import Path
from agentctl.cli.main import main
from agentctl.engines import ray_core

results = ray_core.RayCore._result
def killing(self, ref):  # the second node, when ten results have come
    killing.seen += 1
    if killing.seen == 10:
        cluster.remove_node(second, allow_graceful=False)
    return results(self, ref)
killing.seen = 0
ray_core.RayCore._result = killing
asked = ["recommend", sys.argv[1], "--profile", "h100-qwen3-8b", "--engines", "2", "--policies",
         "round-robin,lmetric", "--replicates", "3", "-q"]
assert main([*asked, "-o", "nodes", "--engine", "ray", "--address", cluster.address]) == 0
assert killing.seen > 10, killing.seen
cluster.shutdown()
assert main([*asked, "-o", "serial", "--engine", "serial"]) == 0
for path in Path("serial").rglob("*"):
    again = Path("nodes") / path.relative_to("serial")
    assert path.is_dir() or path.read_bytes() == again.read_bytes(), path
"""
TRACE = Path(__file__).parents[1] / "sample_traces" / "weka_small.jsonl.gz"


def why_not() -> str | None:
    if importlib.util.find_spec("ray") is None:
        return 'ray is not installed: pip install "agentctl[ray]"'
    if (
        shutil.which("unshare") is None
        or subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode
    ):
        return "a network namespace of its own is not allowed here (unshare -rn)"
    return None


@pytest.mark.slow
@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
@pytest.mark.parametrize("then", [MAP, RECOMMEND], ids=["results", "report"])
def test_a_node_that_is_killed_loses_no_result_and_changes_no_report(tmp_path, then):
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    ran = subprocess.run(
        ["unshare", "-rn", "--kill-child", "--fork", sys.executable, "-c", TWO_NODES + then, str(TRACE)],
        capture_output=True, text=True, timeout=300, env=here, check=False, cwd=tmp_path,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
