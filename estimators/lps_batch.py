"""From batch coefficients and the mean request to limited processor sharing, without any log.

The work is an engine's step: a request needs one for each part of its prompt and one for each further token.
With n residents a step takes fixed + each*n seconds, so the engine does n/(fixed + each*n) steps of requests
per second. What a request adds to steps is spread evenly over its own, its prefill included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from agentctl.errors import UsageError
from agentctl.estimators.batch_time import BatchTime, chunk_pairs
from agentctl.estimators.lps import Estimate, Lps, check_rate, unstable

MOST_RESIDENTS = 4096  # length of the capacity curve of an engine without a limit


@dataclass(frozen=True)
class MeanRequest:
    """Mean tokens of a request: prompt, of which `hit` are found in a cache, and output.

    scv, prompt_scv   squared coefficients of variation of output tokens and of computed prompt tokens

    Raises UsageError unless 0 <= hit < prompt, output >= 1 and the rest is not negative.
    """

    prompt: float
    output: float
    hit: float = 0.0
    scv: float = 1.0
    prompt_scv: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.hit < self.prompt < math.inf:
            raise UsageError(
                f"are {self.prompt} and {self.hit}", place="prompt and hit", expected="0 <= hit < prompt"
            )
        if not 1 <= self.output < math.inf:
            raise UsageError(f"is {self.output}", place="output", expected="at least one token")
        if not (0 <= self.scv < math.inf and 0 <= self.prompt_scv < math.inf):
            raise UsageError(f"are {self.scv} and {self.prompt_scv}", place="scvs", expected="0 or more")

    @property
    def mean_context(self) -> float:
        """Context tokens of a resident at a random step: long outputs are met more often."""
        return self.prompt + self.output * (1 + self.scv) / 2


class Engine(Protocol):
    """What is needed of a profile."""

    @property
    def batch_time(self) -> BatchTime: ...
    @property
    def kv_blocks(self) -> int | None: ...
    @property
    def block_tokens(self) -> int | None: ...
    @property
    def max_num_batched_tokens(self) -> int | None: ...
    @property
    def max_num_seqs(self) -> int | None: ...


def from_profile(
    profile: Engine,
    mean_prompt: float,
    mean_output: float,
    mean_hit: float = 0.0,
    scv: float = 1.0,
    prompt_scv: float = 0.0,
) -> Lps:
    """The queue that one engine of a profile is. Size in steps, capacity in steps per second.

    The limit is max_num_seqs or the number of mean contexts that the KV pool holds, whichever is lower
    (blocks that residents share count for each of them); None when both are unknown. `scv` is that of the
    output tokens, `prompt_scv` of the computed ones of prompts. Raises UsageError when one request does not
    fit.
    """
    request = MeanRequest(mean_prompt, mean_output, mean_hit, scv, prompt_scv)
    limits = [] if profile.max_num_seqs is None else [profile.max_num_seqs]
    if profile.kv_blocks is not None and profile.block_tokens is not None:
        usable = (profile.kv_blocks - 1) * profile.block_tokens
        limits.append(math.floor(usable / request.mean_context))
        if limits[-1] < 1:
            raise UsageError(
                f"needs {request.mean_context:.0f} tokens of KV cache, the engine has {usable}",
                place="the mean request",
            )
    return from_batch_time(
        profile.batch_time, request, min(limits, default=None), profile.max_num_batched_tokens
    )


def from_batch_time(
    c: BatchTime, request: MeanRequest, limit: int | None = None, step_tokens: int | None = None
) -> Lps:
    """The same from coefficients; `step_tokens` is what one step computes at most (None: any prompt whole).

    A decode meets prefill in its step with the probability that one of the n - 1 others is at its prompt.
    """
    chunks = n_chunks(request, step_tokens)
    steps = chunks + request.output - 1
    at_prompt = chunks / steps
    n = np.arange(1, (limit or MOST_RESIDENTS) + 1)
    mixed = 1 - (1 - at_prompt) ** (n - 1)
    alone, beside = (request_seconds(c, request, chunks, share) for share in (0, 1))
    gpu = c.b0 + n * (alone + mixed * (beside - alone)) / steps
    capacity = n / np.maximum(gpu, c.h0 + c.h_seq * n)
    return Lps(steps, tuple(capacity.tolist()), limit, request.scv)


def n_chunks(request: MeanRequest, step_tokens: int | None) -> int:
    """Steps that the prompt of the mean request takes."""
    return 1 if step_tokens is None else math.ceil((request.prompt - request.hit) / step_tokens)


def request_seconds(c: BatchTime, request: MeanRequest, chunks: int = 1, mixed: float = 0.0) -> float:
    """GPU seconds that one request adds to its steps, a share `mixed` of its decodes beside prefill."""
    decodes = (request.output - 1) * decode_seconds(c, request, mixed)
    return decodes + prefill_seconds(c, request, chunks)


def decode_seconds(c: BatchTime, request: MeanRequest, mixed: float) -> float:
    """GPU seconds that one decode adds to its step."""
    return c.b_decode + (c.b_context + mixed * (c.b_context_mixed - c.b_context)) * request.mean_context


def prefill_seconds(c: BatchTime, request: MeanRequest, chunks: int) -> float:
    """GPU seconds that a prompt adds to its steps."""
    computed = request.prompt - request.hit
    past = chunks * request.hit + computed * (chunks - 1) / 2
    pairs = chunk_pairs(computed, request.hit) + request.prompt_scv * computed**2 / 2
    return c.b_prefill * computed + c.b_attention * pairs + c.b_past * past


def unlimited_response(c: BatchTime, request: MeanRequest, rate: float) -> Estimate:
    """Without a limit, host time or mixed rate, in closed form: residents are negative binomial.

    response = (output*b0 + s) / (1 - rate*s) with s = `request_seconds`, insensitive to the output's
    distribution; stable below 1/s requests per second. It counts the request's own prefill, so that an idle
    engine answers in the right time. Played step by step, responses are within 3 % of it up to half load and
    4 % above at 80 %; where prefill is two thirds of the work 9 % and 15 % above, since a request also waits
    for the end of the step in which it arrives and prefill comes in lumps: lps_steps.py counts both.
    """
    check_rate(rate)
    seconds = request_seconds(c, request)
    if rate * seconds >= 1:
        return unstable(rate * seconds)
    fixed, each = c.b0, seconds / request.output
    response = request.output * (fixed + each) / (1 - rate * seconds)
    return Estimate(
        stable=True,
        utilisation=rate * seconds,
        p_wait=0.0,
        wait=0.0,
        response=response,
        in_system=rate * response,
        in_queue=0.0,
        method="approximate",
    )
