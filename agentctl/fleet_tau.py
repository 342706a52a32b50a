"""Until when a first token is on time: one limit per request, from an expression or by the paper's rule."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from agentctl.errors import UsageError
from agentctl.policies._names import parse_policy
from agentctl.slo import parse_slo
from agentctl.toml import suggestion

# The rule of the SFS paper's code (arXiv 2607.18253), in ms. Its page prints a slope of 0.0035 ms per token,
# with which no prompt that fits could ever reach the upper bound: ten times that is meant.
PAPER = {
    "base_ms": 155.0, "slope_ms_per_token": 0.035, "queue_low_ms": 1.0, "queue_high_ms": 5.0,
    "jitter": 0.02, "least_ms": 150.0, "most_ms": 1120.0,
}  # fmt: skip
DEFAULT = "paper"


def tau_s(
    text: str, prompt_tokens: NDArray[np.int64], request_ids: Sequence[str], seed: int = 0
) -> NDArray[np.float64]:
    """Seconds by request.

    text   `paper`, `paper:slope_ms_per_token=0.0035,...` (keys of PAPER), or a sum as in an SLO:
           `200ms + 30us*prompt_tokens`

    The paper's rule draws: the number of a request comes from a hash of the seed and its id. Raises
    UsageError.
    """
    name, params = parse_policy(text, "--tau") if text.startswith("paper") else ("", {})
    if name != "paper":
        slo = parse_slo(f"ttft <= {text}")
        return slo.limit_s(prompt_tokens, prompt_tokens, np.zeros_like(prompt_tokens))
    for key, value in params.items():
        if key not in PAPER:
            raise UsageError(f"unknown: {key}", place="--tau", hint=suggestion(key, PAPER))
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < np.inf:
            raise UsageError(f"{key} is {value!r}", place="--tau", expected="a number, 0 or more")
    rule = PAPER | params
    queue, jitter = (_uniform(request_ids, seed, purpose) for purpose in ("queue", "jitter"))
    wait = rule["queue_low_ms"] + queue * (rule["queue_high_ms"] - rule["queue_low_ms"])
    limit = rule["base_ms"] + rule["slope_ms_per_token"] * prompt_tokens + wait
    limit = limit * (1 + rule["jitter"] * (2 * jitter - 1))
    return np.clip(limit, rule["least_ms"], rule["most_ms"]) / 1e3


def _uniform(names: Sequence[str], seed: int, purpose: str) -> NDArray[np.float64]:
    """A number in [0, 1) for each name: the same name, the same number."""
    prefix = f"{seed}/tau {purpose}/".encode()
    digests = [hashlib.blake2b(prefix + name.encode(), digest_size=8).digest() for name in names]
    bits = np.frombuffer(b"".join(digests), "<u8") >> np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53
