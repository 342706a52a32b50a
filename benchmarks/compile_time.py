"""What the first use on a machine costs: CPU seconds of a first `simulate`, and of the next process.

    python benchmarks/compile_time.py [--scheduler vllm] [--policy smetric]

Three runs of the same small trace: with an empty folder of compiled code; again; and, with another empty
folder, from a copy of the package that nobody may write to. The bar: 20 CPU s more than the next process.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from make_agentic_trace import write_trace
from processes import Used, ingested, machine, used, write_cluster

ROOT = Path(__file__).parents[1]
START = "from agentctl.cli.main import main; main()"


def read_only_copy(folder: Path) -> Path:
    """The package in a folder of its own, all of it read-only."""
    copy = folder / "read-only"
    shutil.copytree(ROOT / "agentctl", copy / "agentctl", ignore=shutil.ignore_patterns("__pycache__"))
    for path in [*copy.rglob("*"), copy]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    return copy


def writable_again(copy: Path) -> None:
    for path in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        path.chmod(0o755)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--scheduler", default="vllm")
    parser.add_argument("--policy", default="smetric")
    args = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        log = folder / "small.jsonl"
        write_trace(log, 1000)
        trace, cluster = ingested(log), write_cluster(folder, 8, args.scheduler)
        simulation = ("simulate", trace, "--cluster", cluster, "--policy", args.policy, "-q")

        def run(package: Path, cache: str) -> Used:
            """Compiled code goes where the package puts it: to the user's cache, here `cache`."""
            env = {"PYTHONPATH": str(package), "XDG_CACHE_HOME": str(folder / cache)}
            os.environ.pop("NUMBA_CACHE_DIR", None)
            return used(sys.executable, "-c", START, *simulation, env=env)

        first, second = run(ROOT, "own"), run(ROOT, "own")
        copy = read_only_copy(folder)
        before = sorted(copy.rglob("*"))
        third, fourth = run(copy, "other"), run(copy, "other")
        wrote = sorted(copy.rglob("*")) != before
        writable_again(copy)
    for where, cold, warm in (("as it is", first, second), ("read-only", third, fourth)):
        print(
            f"package {where}: first {cold.cpu_s:.1f} CPU s ({cold.wall_s:.1f} s wall), "
            f"next {warm.cpu_s:.1f}; compilation {cold.cpu_s - warm.cpu_s:.1f} CPU s"
        )
    print("the read-only package was written to" if wrote else "the read-only package was left as it was")


if __name__ == "__main__":
    main()
