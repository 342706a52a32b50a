"""What a request log shows of an engine's speed, and so where its coefficients are looked for."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from agentctl.errors import InputError
from agentctl.estimators.batch_terms import values_of
from agentctl.estimators.simulated_fit import Box
from agentctl.logged import LoggedRun
from agentctl.profile import SLOWEST, Profile

LONGEST_TOKEN, SHORTEST_TOKEN = SLOWEST["b0"], 1e-5  # seconds between two tokens that no engine takes
SPREAD = 1.645  # standard deviations from the middle to the end of an interval of 90 %
# Where coefficients are looked for, in multiples of what the log shows: the fastest token but a tenth, and
# the fastest prompt per token.
PER_TOKEN = {"b0": (0.02, 2.0), "h0": (0.02, 2.0), "h_seq": (1e-4, 0.5)}
PER_PROMPT_TOKEN = {
    "b_token": (1e-2, 2.0), "b_prefill": (1e-2, 2.0), "b_decode": (1e-2, 10.0),
    "b_context": (1e-5, 0.1), "b_context_mixed": (1e-5, 0.1), "b_attention": (1e-7, 1e-2),
    "b_past": (1e-5, 0.1),
}  # fmt: skip


class Scale(NamedTuple):
    """What the log shows of an engine's speed, s."""

    token_s: float  # between two tokens, where it is fast
    prompt_token_s: float  # to the first token per prompt token, where it is fast
    floor_s: float  # a request waits so long for the batch in flight, which some logs do not count


def scale_of(run: LoggedRun, place: str) -> Scale:
    logged, requests = run.logged, run.workload.requests
    steps = requests.output_tokens - 1
    gaps = (logged.e2e_s - logged.ttft_s)[steps > 0] / steps[steps > 0]
    gaps = gaps[np.isfinite(gaps)]
    computed = np.maximum(requests.prompt_tokens - np.nan_to_num(logged.cached_tokens), 1)
    per_token = (logged.ttft_s / computed)[np.isfinite(logged.ttft_s)]
    if not gaps.size or not per_token.size:
        raise InputError(
            "no request has both a time to first token and, with more than one token, a duration",
            place=place,
            hint="both are needed; name the fields: agentctl ingest --map ttft_s=FIELD --map e2e_s=FIELD",
        )
    if (gaps < 0).mean() > 0.01:
        raise InputError(
            f"{(gaps < 0).mean():.0%} of requests ended before their first token",
            place=place,
            hint="do ttft_s and e2e_s have the same unit, and count from the same instant?",
        )
    if not SHORTEST_TOKEN < np.median(gaps) < LONGEST_TOKEN:
        raise InputError(
            f"a token took {np.median(gaps):.3g} s, as none does in any engine",
            place=place,
            hint="are the latencies in another unit? agentctl ingest --map ttft_s=FIELD:ms",
        )
    token = float(np.quantile(gaps, 0.1))
    floor = float(np.median(gaps) + np.quantile(logged.ttft_s[np.isfinite(logged.ttft_s)], 0.1))
    return Scale(max(token, SHORTEST_TOKEN), max(float(np.quantile(per_token, 0.1)), 1e-9), floor)


def sought_box(name: str, scale: Scale, prior: Profile | None) -> Box:
    unit, (low, high) = (
        (scale.token_s, PER_TOKEN[name])
        if name in PER_TOKEN
        else (scale.prompt_token_s, PER_PROMPT_TOKEN[name])
    )
    low, high = low * unit, high * unit
    value = values_of(prior.batch_time, [name])[name] if prior else 0.0
    if prior is None or value <= 0:
        return Box(low, high)
    ends = prior.fit.get("interval", {}).get("b_prefill" if name == "b_token" else name)
    spread = 0.2
    if ends and 0 < ends[0] < ends[1]:
        spread = float(np.log(ends[1] / ends[0])) / 2 / SPREAD
    return Box(low, high, float(np.clip(value, low, high)), spread)
