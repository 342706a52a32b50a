"""How many requests the simulator replays in a CPU second: whole `agentctl simulate` processes, warm caches.

    python benchmarks/simulator.py [--policies all|NAME,NAME] [--parts agentic,large,tier,million] [--runs 3]

agentic   the agentic trace (make_agentic_trace.py) at 40 requests/s, open loop, on 8 engines of 8,193 blocks
          of 64 tokens, 256 sequences, 8,192 batched tokens. Bars: 150,000 requests/s; a policy that replays
          an estimator per engine 20,000
large     the same at 8 times the rate on 64 engines. Bars: 60,000; CPU per request at most 2.5 times as much
tier      `agentic` with a KV tier of the whole cluster (replay only). Bar: 75,000 requests/s
weka      the public Claude Code captures (--weka weka_traces.jsonl.zst) on 16 engines, one policy. Bar: 1 s
million   a million requests: wall seconds and peak memory, also with an empty store of workloads. Bars: 10 s;
          2 KB a request above 250 MB

Requests/s are slopes (n2 - n1) / (cpu2 - cpu1) of user CPU, so that start-up and the loading of compiled code
do not count: `replay` between one and several replays of the shorter trace in a process (replay_often.py),
`command` between two lengths of trace, with every table, metric and file of `agentctl simulate`. The median
of several runs is taken. Start-up is 2 s and varies by a tenth: on a busy machine more runs are needed.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from pathlib import Path

from make_agentic_trace import write_trace
from processes import agentctl, ingested, machine, used, write_cluster

BASE_MB = 250
REPLAYED = 300_000  # requests, in the longer process of `replay`


def simulate(trace: Path, cluster: Path, policy: str, replay: str = "timestamps") -> float:
    """User CPU seconds."""
    run = agentctl("simulate", trace, "--cluster", cluster, "--policy", policy, "--replay", replay)
    return run.user_s


class Slope:
    """Two lengths of the same trace on a cluster."""

    def __init__(
        self,
        folder: Path,
        engines: int,
        rate: float,
        sizes: list[int],
        scheduler: str,
        has_tier: bool = False,
    ) -> None:
        self.sizes = sizes
        self.cluster = write_cluster(folder, engines, scheduler, has_tier)
        self.traces = []
        for n in sizes:
            log = folder / f"agentic-{n}-{engines}.jsonl"
            write_trace(log, n, rate)
            self.traces.append(ingested(log))

    def replays_per_s(self, policy: str, runs: int) -> float:
        n = self.sizes[0]
        often = max(REPLAYED // n, 2)
        script = Path(__file__).with_name("replay_often.py")
        command = (sys.executable, script, self.traces[0], self.cluster, policy)
        used(*command, "1")
        times = [[used(*command, str(k)).user_s for k in (1, often)] for _ in range(runs)]
        one, many = (statistics.median(column) for column in zip(*times, strict=True))
        return n * (often - 1) / (many - one)

    def commands_per_s(self, policy: str, runs: int) -> float:
        for trace in self.traces:
            simulate(trace, self.cluster, policy)  # fills the store; compiles
        times = [[simulate(trace, self.cluster, policy) for trace in self.traces] for _ in range(runs)]
        small, large = (statistics.median(of_size) for of_size in zip(*times, strict=True))
        return (self.sizes[1] - self.sizes[0]) / (large - small)


def slopes(folder: Path, policies: list[str], parts: list[str], args: argparse.Namespace) -> None:
    small = Slope(folder, 8, 40.0, args.sizes, args.scheduler) if "agentic" in parts else None
    large = Slope(folder, 64, 320.0, args.large_sizes, args.scheduler) if "large" in parts else None
    print(f"{'':32} {'8 engines':>23} {'64 engines':>23}  requests per CPU second")
    print(f"{'policy':32}" + f" {'replay':>11} {'command':>11}" * 2)
    for policy in policies:
        found = [
            (slope.replays_per_s(policy, args.runs), slope.commands_per_s(policy, args.runs)) if slope else ()
            for slope in (small, large)
        ]
        growth = f"  CPU a request x {found[0][0] / found[1][0]:.2f}" if all(found) else ""
        cells = "".join(f" {rate:11,.0f}" for pair in found for rate in pair or (math.nan, math.nan))
        print(f"{policy:32}{cells}{growth}", flush=True)


def tier(folder: Path, policies: list[str], args: argparse.Namespace) -> None:
    without, with_one = (
        Slope(folder, 8, 40.0, args.sizes[:1], args.scheduler, has_tier) for has_tier in (False, True)
    )
    print(f"{'policy':32} {'no tier':>11} {'one tier':>11}  requests per CPU second, 8 engines, replay")
    for policy in policies:
        rates = [slope.replays_per_s(policy, args.runs) for slope in (without, with_one)]
        print(f"{policy:32} {rates[0]:11,.0f} {rates[1]:11,.0f}", flush=True)


def weka(folder: Path, log: Path, policy: str, args: argparse.Namespace) -> None:
    """The start-up that is subtracted is that of a trace of 100 requests."""
    copy = folder / "weka.jsonl.zst"
    copy.write_bytes(log.read_bytes())
    tiny = folder / "tiny.jsonl"
    write_trace(tiny, 100)
    cluster = write_cluster(folder, 16, args.scheduler)
    cpu = []
    for trace in (ingested(tiny), ingested(copy)):
        simulate(trace, cluster, policy, "thinktime")
        times = [simulate(trace, cluster, policy, "thinktime") for _ in range(args.runs)]
        cpu.append(statistics.median(times))
    print(f"captures on 16 engines, {policy}: {cpu[1] - cpu[0]:.2f} s CPU above a start-up of {cpu[0]:.2f} s")


def million(folder: Path, policy: str, args: argparse.Namespace) -> None:
    n = 1_000_000
    log = folder / "million.jsonl"
    write_trace(log, n)
    trace = ingested(log)
    log.unlink()
    cluster = write_cluster(folder, 8, args.scheduler)
    command = ("simulate", trace, "--cluster", cluster, "--policy", policy, "--replay", "timestamps")
    env = {"XDG_CACHE_HOME": str(folder / "cache"), **compiled_code()}
    for store in ("empty", "warm"):
        run = agentctl(*command, env=env)
        each = (run.rss_mb - BASE_MB) * 1e6 / n
        print(
            f"a million requests, {policy}, {store} store: {run.wall_s:.1f} s wall, {run.user_s:.1f} s user, "
            f"{run.system_s:.1f} s system, peak {run.rss_mb:,.0f} MB = {BASE_MB} MB + {each:,.0f} bytes each",
            flush=True,
        )


def compiled_code() -> dict[str, str]:
    """Another store of workloads, but the compiled code that is there."""
    import os

    import agentctl  # noqa: F401  (names the folder)

    return {"NUMBA_CACHE_DIR": os.environ["NUMBA_CACHE_DIR"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--policies", default="all")
    parser.add_argument("--parts", default="agentic,large,million")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--sizes", type=_sizes, default=[10_000, 200_000], help="of `agentic`")
    parser.add_argument("--large-sizes", type=_sizes, default=[20_000, 100_000], help="of `large`")
    parser.add_argument("--scheduler", default="vllm")
    parser.add_argument("--weka", type=Path, help="weka_traces.jsonl.zst")
    args = parser.parse_args()
    parts = args.parts.split(",")
    from agentctl.policies.base import policy_names

    policies = policy_names() if args.policies == "all" else args.policies.split(",")
    one = "smetric" if args.policies == "all" else policies[0]
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if {"agentic", "large"} & set(parts):
            slopes(folder, policies, parts, args)
        if "tier" in parts:
            tier(folder, policies, args)
        if args.weka:
            weka(folder, args.weka, one, args)
        if "million" in parts:
            million(folder, one, args)


def _sizes(text: str) -> list[int]:
    small, large = map(int, text.split(","))
    return [small, large]


if __name__ == "__main__":
    main()
