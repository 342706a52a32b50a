"""Attainability: objectives that an idle engine misses. There the objective decides, not the policy.

Each request alone on one engine: its prompt in chunks of the token budget, then one decode per batch. Once
with an empty cache, once with every whole block that an earlier request of the trace had and the answer that
the prompt goes on from (never the prompt's last token: engines compute that one again).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from agentctl.analyzers.attainability_text import describe as describe
from agentctl.analyzers.base import AnalyzeOptions, Objective
from agentctl.analyzers.columns import floats
from agentctl.analyzers.counted import REACHED_AN_ENGINE
from agentctl.analyzers.distribution import Distribution, distribution
from agentctl.analyzers.strands import weave
from agentctl.analyzers.stretches import stretches
from agentctl.estimators.batch_time import BatchTime, chunk_pairs, gpu_time, host_time
from agentctl.trace import Trace

NAME = "attainability"
ORDER = 70

BUCKETS = (0, 1_000, 4_000, 16_000, 64_000, 256_000)  # prompt tokens
COLUMNS = ["request_id", "parent_request_id", "tip_node", "prompt_tokens", "output_tokens", "status"]
EVALUATED = ("ttft", "tpot", "e2e")  # what one request alone has

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Unattainable:
    """Shares of the requests (those that the objective counts) that miss it on an idle engine."""

    slo: str
    requests: int
    cold_ratio: float | None
    ideal_hit_ratio: float | None  # with the best cache; None: the trace has no chains
    allowed_ratio: float | None  # of misses; None: the objective is on a mean
    is_out_of_reach: bool  # more must miss it than may, whatever the policy


@dataclass(frozen=True)
class Bucket:
    """Requests by prompt length that miss any objective on an idle engine."""

    prompt_tokens_from: int
    requests: int
    cold_ratio: float
    ideal_hit_ratio: float | None


@dataclass(frozen=True)
class Result:
    reason: str | None  # why nothing is told
    engine: str | None
    max_num_batched_tokens: int
    objectives: tuple[Unattainable, ...]
    not_evaluated: tuple[str, ...]  # objectives that one request alone does not have
    buckets: tuple[Bucket, ...]
    ttft_cold_s: Distribution | None
    ttft_ideal_hit_s: Distribution | None
    skipped_requests: int  # prompt or output length unknown


class Alone(NamedTuple):
    """Times of each request on an idle engine, and the prompt tokens that it computes."""

    ttft: Floats
    tpot: Floats  # NaN for one output token
    e2e: Floats
    uncached: NDArray[np.int64]


def analyze(trace: Trace, options: AnalyzeOptions) -> Result:
    rows = trace.requests(COLUMNS)
    rows = rows.filter(pl.col("status").cast(pl.String).is_in(REACHED_AN_ENGINE))
    known = rows.filter(pl.col("prompt_tokens").is_not_null() & pl.col("output_tokens").is_not_null())
    reason = None
    if options.batch_time is None:
        reason = "no engine profile is given"
    elif not options.objectives:
        reason = "no objective is given"
    elif not known.height:
        reason = "no request has a token count"
    if options.batch_time is None or reason:
        return _absent(reason, options, rows.height - known.height)
    c, budget = options.batch_time, options.max_num_batched_tokens
    prompt = np.maximum(known["prompt_tokens"].to_numpy(), 1)
    output = np.maximum(known["output_tokens"].to_numpy(), 1)
    hit = _ideal_hit(trace, known, prompt)
    cold = alone(c, budget, prompt, output, np.zeros_like(prompt))
    best = alone(c, budget, prompt, output, hit) if hit is not None else None
    evaluated = [slo for slo in options.objectives if slo.metric in EVALUATED]
    return Result(
        reason=None,
        engine=options.engine_name,
        max_num_batched_tokens=budget,
        objectives=tuple(_unattainable(slo, prompt, output, cold, best) for slo in evaluated),
        not_evaluated=tuple(slo.text for slo in options.objectives if slo.metric not in EVALUATED),
        buckets=_buckets(evaluated, prompt, output, cold, best),
        ttft_cold_s=distribution(cold.ttft),
        ttft_ideal_hit_s=distribution(best.ttft) if best else None,
        skipped_requests=rows.height - known.height,
    )


def _absent(reason: str | None, options: AnalyzeOptions, skipped: int) -> Result:
    budget = options.max_num_batched_tokens
    return Result(reason, options.engine_name, budget, (), (), (), None, None, skipped)


def _ideal_hit(trace: Trace, rows: pl.DataFrame, prompt: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Tokens in whole blocks that an earlier request had, or the turn before with its answer.

    A request of unknown chain hits nothing.
    """
    block = trace.block_tokens
    if not block or rows["tip_node"].null_count() == rows.height:
        return None
    tip = rows["tip_node"].fill_null(0).to_numpy()
    blocks = stretches(weave(trace.tree.parent, trace.tree.depth, tip), tip).hit_blocks()
    answered = _turn_before(rows, blocks * block, block) // block
    return np.minimum(np.maximum(blocks, answered), (prompt - 1) // block) * block


def _turn_before(rows: pl.DataFrame, hit: NDArray[np.int64], block: int) -> NDArray[np.int64]:
    """Tokens whose KV the turn before left (all but its last), where the prompt holds them; else 0.

    As in the simulation contract: the prompt's chain has all the full blocks of the parent's, and it is at
    least as long as the parent's prompt and answer. What an answer holds has no ids in a log.
    """
    parents = rows.select(
        parent_request_id="request_id", before="prompt_tokens", answer="output_tokens"
    ).unique("parent_request_id", keep="first")
    found = rows.select("parent_request_id", "prompt_tokens").join(
        parents, on="parent_request_id", how="left", maintain_order="left"
    )
    before, whole = (floats(column) for column in (found["before"], found["before"] + found["answer"]))
    holds = (whole <= floats(found["prompt_tokens"])) & (hit >= before // block * block)  # NaN holds nothing
    return np.where(holds, whole - 1, 0).astype(np.int64)


def alone(
    c: BatchTime,
    budget: int,
    prompt: NDArray[np.int64],
    output: NDArray[np.int64],
    hit: NDArray[np.int64],
) -> Alone:
    """Each request by itself, `hit` tokens of its prompt cached, chunks of at most `budget` tokens."""
    ttft = prefill_time(c, budget, prompt, hit)
    decode = decode_time(c, prompt, output - 1)
    tpot = np.full(prompt.size, np.nan)
    np.divide(decode, output - 1, out=tpot, where=output > 1)
    return Alone(ttft, tpot, ttft + decode, prompt - hit)


def prefill_time(c: BatchTime, budget: int, prompt: NDArray[np.int64], hit: NDArray[np.int64]) -> Floats:
    """Seconds until the first token: the batches of a prompt's chunks, one after the other."""
    done: Any = hit.copy()  # the formulas are written for numbers and work on arrays
    total = np.zeros(prompt.size)
    while (left := np.minimum(prompt - done, budget)).any():
        gpu = gpu_time(c, left, chunk_pairs(left, done), done, 1, 0, 0)
        total += np.where(left > 0, np.maximum(gpu, host_time(c, 1)), 0.0)
        done += left
    return total


def decode_time(c: BatchTime, prompt: NDArray[np.int64], steps: NDArray[np.int64]) -> Floats:
    """Seconds of `steps` decodes alone in their batch; the first reads `prompt` tokens of context."""
    host = host_time(c, 1)
    context: Any = prompt
    first = gpu_time(c, 0, 0, 0, 0, 1, context)
    slope = c.b_context
    host_bound = np.where(first < host, steps, 0)  # steps that end when the host does
    if slope > 0:
        host_bound = np.clip(np.ceil((host - first) / slope), 0, steps)
    gpu_bound = steps - host_bound
    mean = first + slope * (host_bound + (gpu_bound - 1) / 2)
    return host_bound * host + gpu_bound * mean


def _misses(
    slo: Objective, prompt: NDArray[np.int64], output: NDArray[np.int64], run: Alone
) -> NDArray[np.bool_]:
    value = getattr(run, slo.metric)
    limit = slo.limit_s(prompt, run.uncached, output)
    return value > limit if slo.inclusive else value >= limit  # NaN (no TPOT) misses nothing


def _unattainable(
    slo: Objective, prompt: NDArray[np.int64], output: NDArray[np.int64], cold: Alone, best: Alone | None
) -> Unattainable:
    counted = output > 1 if slo.metric == "tpot" else np.ones(output.size, dtype=bool)

    def share(run: Alone) -> float | None:
        return float(_misses(slo, prompt, output, run)[counted].mean()) if counted.any() else None

    allowed = None if slo.percent is None else 1 - slo.percent / 100
    least = share(best or cold)
    return Unattainable(
        slo=slo.text,
        requests=int(counted.sum()),
        cold_ratio=share(cold),
        ideal_hit_ratio=share(best) if best else None,
        allowed_ratio=allowed,
        is_out_of_reach=bool(best and allowed is not None and least is not None and least > allowed),
    )


def _buckets(
    slos: list[Objective],
    prompt: NDArray[np.int64],
    output: NDArray[np.int64],
    cold: Alone,
    best: Alone | None,
) -> tuple[Bucket, ...]:
    def any_miss(run: Alone) -> NDArray[np.bool_]:
        return np.any([_misses(slo, prompt, output, run) for slo in slos], axis=0)

    if not slos:
        return ()
    missed_cold, missed_best = any_miss(cold), any_miss(best) if best else None
    place = np.searchsorted(BUCKETS, prompt, side="right") - 1
    return tuple(
        Bucket(
            low,
            int((place == i).sum()),
            float(missed_cold[place == i].mean()),
            float(missed_best[place == i].mean()) if missed_best is not None else None,
        )
        for i, low in enumerate(BUCKETS)
        if (place == i).any()
    )
