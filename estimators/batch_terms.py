"""The terms of a batch-time model: which columns of the steps a coefficient multiplies, and its BatchTime.

eq9     Eq. 9 of the latency-aware routing paper: one slope for prefill and decode, one for context
hinge   max(host, gpu) with separate slopes, and terms that measured kernels call for (see OPTIONAL)
legacy  six numbers, as that paper's code fits them; an estimator, never simulated
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from agentctl.errors import UsageError
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.steps import DECODE_ONLY, Floats, Steps

EQ9 = ("b0", "b_token", "b_context", "b_attention")
HINGE = ("b0", "b_prefill", "b_decode", "b_context", "b_attention")
LEGACY = ("intercept", "prefill", "decode", "sum_tokens", "prefill_sq", "sum_sq")
MODELS = {"eq9": EQ9, "hinge": HINGE, "legacy": LEGACY}
OPTIONAL = ("b_context_mixed", "b_past", "h0", "h_seq")  # of the hinge; in it where held-out errors say so
HOST = {"h0", "h_seq"}
NEEDED = ("b0", "b_prefill", "b_decode", "b_context", "b_attention")  # no profile without them

MEANING = {
    "b0": "each batch", "b_token": "token computed", "b_prefill": "prefill token", "b_decode": "decode",
    "b_context": "context token of a decode", "b_context_mixed": "the same beside prefill",
    "b_attention": "pair of prefill tokens", "b_past": "context token of a chunk", "h0": "host, each batch",
    "h_seq": "host, each sequence", "intercept": "each batch", "prefill": "prefill token",
    "decode": "decode", "sum_tokens": "token of all sequences", "prefill_sq": "squared chunk",
    "sum_sq": "squared length of a sequence",
}  # fmt: skip


def column(steps: Steps, name: str, names: Sequence[str]) -> Floats:
    """What the coefficient `name` multiplies, float64[n], in a model of `names`."""
    match name:
        case "b0" | "h0" | "intercept":
            return np.ones(len(steps))
        case "b_token":
            return steps.tokens
        case "b_prefill" | "prefill":
            return steps.prefill_tokens
        case "b_decode" | "decode":
            return steps.n_decode
        case "b_context" if "b_context_mixed" in names:
            return np.where(steps.kind == DECODE_ONLY, steps.decode_context, 0.0)
        case "b_context":
            return steps.decode_context
        case "b_context_mixed":
            return np.where(steps.kind == DECODE_ONLY, 0.0, steps.decode_context)
        case "b_attention":
            return steps.prefill_pairs
        case "b_past":
            return steps.prefill_context
        case "h_seq":
            return steps.n_prefill + steps.n_decode
        case "sum_tokens":
            return steps.sequence_tokens
        case "prefill_sq":
            return steps.prefill_squares
        case "sum_sq":
            return steps.sequence_squares
    raise UsageError(f"no term {name!r}", expected=", ".join(MEANING))


def design(steps: Steps, names: Sequence[str]) -> Floats:
    """float64[n, len(names)], column by column."""
    return np.column_stack([column(steps, name, names) for name in names])


def batch_time_of(model: str, values: Mapping[str, float | None]) -> BatchTime:
    """The coefficients as the simulator takes them; those that are None are at their defaults.

    The default of b_decode is b_prefill, that of b_context_mixed b_context, that of the others 0.
    """
    known = {name: value for name, value in values.items() if value is not None}
    if model == "eq9":
        known["b_prefill"] = known["b_decode"] = known.pop("b_token", 0.0)
    known.setdefault("b_decode", known.get("b_prefill", 0.0))
    known.setdefault("b_context_mixed", known.get("b_context", 0.0))
    return BatchTime(model=model, **known)


def values_of(c: BatchTime, names: Sequence[str]) -> dict[str, float]:
    """The coefficients `names` of a model from those of the simulator."""
    return {name: c.b_prefill if name == "b_token" else float(getattr(c, name)) for name in names}
