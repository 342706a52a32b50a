"""How far the queue models are from the simulator: one engine, Poisson arrivals, no prefix in common.

    python benchmarks/queues.py [--profile h100-qwen3-8b] [--requests 20000] [--loads 0.5,0.8]

For each mean request (prompt/output tokens, places): mean response and TTFT simulated, and the errors of
processor sharing (lps_batch), of counted steps (lps_steps), and of a queue fitted to the simulated log
(lps_fit) with the held-out error of its times in service. Prompts are gamma (scv 0.25), outputs geometric. A
long queue forgets slowly: at load 0.8 and 4,000 requests two seeds differ by 5 to 10 %.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from processes import agentctl

from agentctl.estimators.lps import estimate
from agentctl.estimators.lps_batch import MeanRequest, from_profile
from agentctl.estimators.lps_fit import fit_lps
from agentctl.estimators.lps_steps import step_means
from agentctl.profile import load_profile

SHAPES = ((2000, 200, 64), (3000, 60, 64), (8000, 300, 32))
SCV_PROMPT = 0.25
STEP_TOKENS = 8192


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", default="h100-qwen3-8b")
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument(
        "--loads", default="0.5,0.8", type=lambda text: [float(part) for part in text.split(",")]
    )
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print("         request  load   E2E s  sharing    steps   fitted held out  TTFT s    steps")
    for prompt, output, places in SHAPES:
        for load in args.loads:
            with tempfile.TemporaryDirectory() as folder:
                print(row(Path(folder), args, prompt, output, places, load))


def row(folder: Path, args: argparse.Namespace, prompt: int, output: int, places: int, load: float) -> str:
    profile = replace(load_profile(args.profile), max_num_seqs=places, max_num_batched_tokens=STEP_TOKENS)
    request = MeanRequest(prompt, output, prompt_scv=SCV_PROMPT)
    model = from_profile(profile, prompt, output, prompt_scv=SCV_PROMPT)
    rate = load * model.saturation_rate
    random = np.random.default_rng(args.seed)
    prompts = np.maximum(random.gamma(1 / SCV_PROMPT, prompt * SCV_PROMPT, args.requests).astype(int), 1)
    outputs = random.geometric(1 / output, args.requests)
    arrivals = np.cumsum(random.exponential(1 / rate, args.requests))
    arrival, first, finish = simulated(folder, args.profile, places, arrivals, prompts, outputs)
    settled = slice(args.requests // 10, None)
    ttft, response = (float((end - arrival)[settled].mean()) for end in (first, finish))
    steps = step_means(profile.batch_time, request, rate, model.limit, STEP_TOKENS)
    fit = fit_lps(arrival, finish - arrival, outputs, prefill_tokens=prompts, limit=model.limit)
    errors = (
        error(estimate(model, rate).response, response),
        error(steps.response, response),
        error(estimate(fit.model(), rate).response, response),
    )
    shape = f"{prompt}/{output}/{places}"
    return (
        f"{shape:>16} {load:5.2f} {response:7.3f} {errors[0]:>8} {errors[1]:>8} {errors[2]:>8}"
        f" {fit.mape:8.1%} {ttft:7.3f} {error(steps.ttft, ttft):>8}"
    )


def simulated(
    folder: Path, profile: str, places: int, arrivals: np.ndarray, prompts: np.ndarray, outputs: np.ndarray
) -> tuple[np.ndarray, ...]:
    """Arrival, first token and end of every request, in seconds."""
    stamps = np.datetime64("2026-01-01") + (arrivals * 1e6).astype("timedelta64[us]")
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [
        f"{str(t).replace('T', ' ')}0,{p},{d}" for t, p, d in zip(stamps, prompts, outputs, strict=True)
    ]
    (folder / "log.csv").write_text("\n".join(lines) + "\n")
    (folder / "cluster.toml").write_text(
        'schema = "agentctl/cluster/1"\n[[pool]]\nname = "one"\nengines = 1\n'
        f'profile = "{profile}"\nmax_num_seqs = {places}\nmax_num_batched_tokens = {STEP_TOKENS}\n'
    )
    arguments = ("--cluster", folder / "cluster.toml", "--policy", "round-robin", "--replay", "timestamps")
    agentctl("simulate", folder / "log.csv", *arguments, "-o", folder / "run")
    table = pq.read_table(folder / "run" / "outcome.parquet")
    return tuple(np.array(table[name]) for name in ("arrival_s", "first_token_s", "finish_s"))


def error(found: float | None, truth: float) -> str:
    return "-" if found is None else f"{found / truth - 1:+.1%}"


if __name__ == "__main__":
    main()
