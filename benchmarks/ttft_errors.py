"""How far estimates of the time to the first token are off, on an engine whose coefficients are hidden.

    python benchmarks/ttft_errors.py [--requests 600] [--seeds 3]

The reference simulator of the tests serves one engine (about Qwen3-8B on an H100, 2,048 tokens a batch) with
3 % of log-normal noise on every step and one step in a thousand 50 ms longer. Coefficients and averages are
fitted to one run of 400 requests at 2, 5 and 8 requests/s; every request of the other runs is estimated from
the engine's snapshot at its arrival, once with its true output and those of all others, once with half and
once with one and a half times as much. Prompts are gamma (mean 1,500), outputs geometric (mean 150).

MAPE, median APE and bias by estimator over all seeds, then SFS by quarter of the requests on the engine.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from processes import machine

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from oracles.estimating import BINS, by_load, calibrate, estimates
from oracles.reference_simulator import Limits
from oracles.served import Served, chats, serve, sessions
from oracles.stepping import HIDDEN

from agentctl.estimators.batch_errors import errors

LIMITS = Limits(20_000, 16, 2048, 256, prefix_caching=False)
FACTORS = (1.0, 0.5, 1.5)


def chat(rates: tuple[float, ...], **limits: int) -> Callable[[int, int], Served]:
    return lambda n, seed: serve(chats(n, rates, seed), replace(LIMITS, **limits), HIDDEN, seed + 1000)


def cached(n: int, seed: int) -> Served:
    requests, block = sessions(n // 8, turns=5, rate=1.2, seed=seed)
    limits = replace(LIMITS, prefix_caching=True, kv_blocks=8000)
    return serve(requests, limits, HIDDEN, seed + 1000, trace_block=block)


CASES = {
    "2 and 5 req/s": chat((2, 5)),
    "8 req/s": chat((8,)),
    "12 req/s": chat((12,)),
    "16 req/s": chat((16,)),
    "2 and 8 req/s, 16 places": chat((2, 8), max_num_seqs=16),
    "sessions, prefix cache": cached,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    print(machine())
    c, averages = calibrate(serve(chats(400, (2, 5, 8), seed=1), LIMITS, HIDDEN, seed=2))
    for case, run_of in CASES.items():
        runs = [run_of(args.requests, 11 + seed) for seed in range(args.seeds)]
        ttft = np.concatenate([run.ttft for run in runs])
        mean, p99 = ttft.mean(), np.quantile(ttft, 0.99)
        print(f"\n{case}: {len(ttft)} requests, TTFT mean {mean:.3f} s, p99 {p99:.3f} s")
        for factor in FACTORS:
            made = [estimates(run, c, averages, factor) for run in runs]
            parts = defaultdict(list)
            for one in made:
                for name, seconds in one.items():
                    parts[name].append(seconds)
            for name, seconds in parts.items():
                if factor != 1.0 and name not in ("sfs", "score-proxy"):
                    continue  # they do not look at outputs
                found = errors(np.concatenate(seconds), ttft)
                assert found is not None
                print(
                    f"  outputs x {factor:<3g}  {name:12} MAPE {found.mape:9.1%}"
                    f"  median {found.median_ape:9.1%}  bias {found.bias:+9.1%}"
                )
        quarters = np.array(
            [[one.mape for one in by_load(run, estimates(run, c, averages)["sfs"])] for run in runs]
        )
        print(f"  sfs by quarter of load: {', '.join(f'{q:.1%}' for q in quarters.mean(axis=0)[:BINS])}")


if __name__ == "__main__":
    main()
