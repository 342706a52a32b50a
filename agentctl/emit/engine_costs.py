"""What routers want to be told of an engine's speed, from its profile.

llm-d's prefix-cache-affinity-filter takes one number, `peakPrefillThroughput` (its own default, 15,928
tokens/s, was measured with Qwen3-32B on two H100). vLLM router's program scheduling takes the seconds of a
prefill as a polynomial of its uncached tokens and those of a decode step as a plane; the key names are those
in the binary of vllm-router 0.1.17, which ignores keys that it does not know.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import nnls

from agentctl.errors import ConfigError
from agentctl.estimators.batch_time import batch_time, chunk_pairs
from agentctl.profile import Profile

BATCHED_TOKENS = 8192  # vLLM's default for serving, where the profile has no limit
SEQUENCES = 256
LONGEST = 131_072  # tokens of the longest prompt that the polynomial is fitted to
PER_1K = 1000.0


def peak_prefill_tokens_per_s(profile: Profile) -> float:
    """Prompt tokens per second of batches that are full of one prompt from its beginning.

    Raises ConfigError for a profile that is `predictive_only`.
    """
    _check_identified(profile, "peak prefill throughput")
    tokens = profile.max_num_batched_tokens or BATCHED_TOKENS
    return tokens / batch_time(profile.batch_time, tokens, chunk_pairs(tokens, 0), 0, 1, 0, 0)


def program_scheduling(profile: Profile) -> dict[str, Any]:
    """Cost models and capacity for `--program-scheduling-config-json` of vllm-router 0.1.17.

    Least squares of relative errors with coefficients that are not negative, over prompts up to LONGEST
    tokens in full chunks, and over batches up to the engine's limit with contexts that fit into its KV. The
    polynomial is exact but for the whole number of chunks, the plane where the GPU and not the host decides.

    Raises ConfigError for a profile that is `predictive_only`.
    """
    _check_identified(profile, "program scheduling's costs")
    prefill, decode = _prefill(profile), _decode(profile)
    costs: dict[str, Any] = {
        "prefill_cost_model": {
            "intercept_seconds": prefill[0],
            "linear_seconds_per_1k_tokens": prefill[1],
            "quadratic_seconds_per_1k_tokens_squared": prefill[2],
        },
        "decode_throughput_model": {
            "fixed_step_seconds": decode[0],
            "batch_step_seconds_per_request": decode[1],
            "context_step_seconds_per_token": decode[2],
        },
    }
    capacity = _kv_tokens(profile)
    return costs | ({} if capacity is None else {"token_capacity_per_dp_rank": capacity})


def _check_identified(profile: Profile, what: str) -> None:
    if profile.predictive_only:
        raise ConfigError(
            f"{what} needs coefficients that are known one by one, and this profile is predictive_only",
            place=f"profile {profile.name}",
            expected="a profile of measured steps, or a prior",
            hint="agentctl calibrate steps, or agentctl calibrate prior",
        )


def prefill_seconds(profile: Profile, tokens: int) -> float:
    """An uncached prompt alone on the engine, in full chunks."""
    chunk, seconds = profile.max_num_batched_tokens or BATCHED_TOKENS, 0.0
    for done in range(0, tokens, chunk):
        now = min(chunk, tokens - done)
        seconds += batch_time(profile.batch_time, now, chunk_pairs(now, done), done, 1, 0, 0)
    return seconds


def _prefill(profile: Profile) -> list[float]:
    tokens = np.unique(np.geomspace(64, LONGEST, 60).astype(np.int64))
    seconds = np.array([prefill_seconds(profile, int(n)) for n in tokens])
    x = tokens / PER_1K
    return _fit(np.column_stack([np.ones_like(x), x, x**2]), seconds)


def _decode(profile: Profile) -> list[float]:
    most, capacity = profile.max_num_seqs or SEQUENCES, _kv_tokens(profile) or math.inf
    batches = np.unique(np.geomspace(1, most, 20).astype(np.int64))
    rows = [
        (n, n * each)
        for n in batches.tolist()
        for each in np.geomspace(64, LONGEST, 24).astype(np.int64).tolist()
        if n * each <= capacity
    ] or [(1, 1)]
    seconds = np.array([batch_time(profile.batch_time, 0, 0, 0, 0, n, context) for n, context in rows])
    return _fit(np.column_stack([np.ones(len(rows)), np.array(rows, np.float64)]), seconds)


def _fit(terms: NDArray[np.float64], seconds: NDArray[np.float64]) -> list[float]:
    scale = terms.max(axis=0)  # columns of like size: nnls has no scaling of its own
    found, _ = nnls(terms / scale / seconds[:, None], np.ones(seconds.size))
    return [float(one) for one in found / scale]


def _kv_tokens(profile: Profile) -> int | None:
    """Of one engine; a block is never usable. None: unknown."""
    if profile.kv_blocks is None or profile.block_tokens is None:
        return None
    return (profile.kv_blocks - 1) * profile.block_tokens
