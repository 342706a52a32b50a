"""Side by side with the replay inside NVIDIA Dynamo 1.6.1, on the same trace and the same batch times.

    python benchmarks/dynamo_replay.py [--sizes 5000,15000] [--engines 8]

Dynamo (wheels ai-dynamo and ai-dynamo-runtime, in an environment of their own: environments.py) replays the
trace offline with its simulated engines: 8,192 blocks of 64 tokens, 256 sequences, 8,192 batched tokens. Both
get one batch-time model: prefill of n tokens 6 ms + 22 us n + 0.15 ns n^2, a decode step 6 ms + 35 ns per
token of KV. How mixed batches add up, and what a hit costs, is each simulator's own.

Open loop: `session_id` and `turn` are left out of the trace, so that outputs are shared with nobody in
either. Compared are requests/s (slope of user CPU of whole processes between the two sizes), hit ratio, mean
TTFT and TPOT of the larger; round robin places every request alike, so there the engines alone differ.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from environments import scripts_of
from make_agentic_trace import BLOCK_TOKENS, write_trace
from processes import agentctl, ingested, machine, used

PAIRS = (("round_robin", "round-robin"), ("kv_router", "dynamo-kv"))  # Dynamo's router, our policy

DRIVER = """
import json, sys
import dynamo._core as core
trace, router, engines, times = sys.argv[1:]
engine = {"block_size": 64, "num_gpu_blocks": 8192, "max_num_seqs": 256, "max_num_batched_tokens": 8192,
          "enable_prefix_caching": True, "enable_chunked_prefill": True,
          "timing_model": {"type": "external", "provider": "dynamo_profile", "config": {"path": times}}}
result = core.run_mocker_trace_replay(
    [trace], extra_engine_args=core._normalize_mocker_config({"engine": engine}), num_workers=int(engines),
    router_mode=router, trace_block_size=BLOCK)
print(json.dumps(dict(result.summary)))
""".replace("BLOCK", str(BLOCK_TOKENS))

CLUSTER = """schema = "agentctl/cluster/1"
[[pool]]
name = "main"
role = "both"
engines = {engines}
scheduler = "vllm"
block_tokens = 64
kv_blocks = 8193
max_num_batched_tokens = 8192
max_num_seqs = 256
[pool.batch_time]
model = "hinge"
b0 = 6e-3
b_prefill = 22e-6
b_decode = 0.0
b_context = 35e-9
b_attention = 0.3e-9   # pairs of tokens: n^2 / 2
[router]
policy = "round-robin"
"""


def write_times(path: Path) -> None:
    """The batch times of CLUSTER as the tables that Dynamo interpolates: ms over tokens."""
    n = np.concatenate([[1.0], 2.0 ** np.arange(7, 16)])
    kv = np.concatenate([[0.0], 2.0 ** np.arange(13, 20)])
    context = np.array([1.0, 32768.0])
    step = 6 + 35e-6 * kv
    np.savez(
        path,
        prefill_isl=n,
        prefill_ttft_ms=6 + 22e-3 * n + 0.15e-6 * n**2,
        decode_active_kv_tokens=kv,
        decode_context_length=context,
        decode_itl=np.repeat(step[:, None], context.size, axis=1),
    )


def write_open_loop(path: Path, requests: int) -> None:
    write_trace(path, requests)
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    kept = ("timestamp", "input_length", "output_length", "hash_ids")
    path.write_text("".join(json.dumps({key: row[key] for key in kept}) + "\n" for row in rows))


Run = tuple[float, dict[str, float]]  # user CPU seconds, what was found


def dynamo(python: Path, log: Path, router: str, engines: int, times: Path) -> Run:
    run = used(python, "-c", DRIVER, log, router, str(engines), times, env={"DYN_LOG": "error"})
    found: dict[str, Any] = json.loads(run.output.strip().splitlines()[-1])
    return run.user_s, {
        "hit_ratio": found["prefix_cache_reused_ratio"],
        "ttft_ms": found["mean_ttft_ms"],
        "tpot_ms": found["mean_tpot_ms"],
    }


def ours(trace: Path, cluster: Path, policy: str) -> Run:
    command = ("simulate", trace, "--cluster", cluster, "--policy", policy, "--replay", "timestamps")
    agentctl(*command)  # compiled and stored
    run = agentctl(*command, "--json")
    metrics = json.loads(run.output)["metrics"]
    return run.user_s, {
        "hit_ratio": metrics["hit_ratio"]["value"],
        "ttft_ms": 1e3 * metrics["ttft_s"]["mean"],
        "tpot_ms": 1e3 * metrics["tpot_s"]["mean"],
    }


def report(name: str, sizes: list[int], runs: list[Run]) -> None:
    per_s = (sizes[1] - sizes[0]) / (runs[1][0] - runs[0][0])
    found = ", ".join(f"{key} {value:.4g}" for key, value in runs[1][1].items())
    print(f"{name:28} {per_s:10,.0f} requests/s   {found}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--sizes", default="5000,15000", help="requests; ours is also timed at 200,000")
    parser.add_argument("--engines", type=int, default=8)
    args = parser.parse_args()
    sizes = [int(n) for n in args.sizes.split(",")]
    python = scripts_of("ai-dynamo") / "python"
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        times, cluster = folder / "times.npz", folder / "cluster.toml"
        write_times(times)
        cluster.write_text(CLUSTER.format(engines=args.engines))
        traces, logs = {}, {}
        for n in (*sizes, 200_000):
            logs[n] = folder / f"open-{n}.jsonl"
            write_open_loop(logs[n], n)
            traces[n] = ingested(logs[n], sessions="none")
        for router, policy in PAIRS:
            theirs = [dynamo(python, logs[n], router, args.engines, times) for n in sizes]
            report(f"Dynamo {router}", sizes, theirs)
            mine = {n: ours(trace, cluster, policy) for n, trace in traces.items()}
            longer = mine[200_000][0], mine[sizes[1]][1]  # the speed of long runs, the figures of the same
            report(f"agentctl {policy}", [sizes[0], 200_000], [mine[sizes[0]], longer])


if __name__ == "__main__":
    main()
