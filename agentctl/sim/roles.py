"""Which engine computes a prompt and which one goes on from there: what a placement is, and what is allowed.

A policy's answer is a number. Engine e alone stands for: both on e. `hand_over(p, d)` is computed on p and
decoded on d, whose KV has to move; with LATER for d the policy is asked again once the first token is out
(`view.prefill_engine` is p then; the answer is d). NOT_YET has the request wait at the router until another
one has ended, REFUSED turns it away.
"""

from __future__ import annotations

from numba import njit

BOTH, PREFILL, DECODE = range(3)
ROLES = {"both": BOTH, "prefill": PREFILL, "decode": DECODE}
LATER, NOT_YET, REFUSED = -1, -2, -3
PAIRS = 1 << 32


@njit(cache=True)
def hand_over(prefill: int, decode: int) -> int:
    """The answer of a policy that wants the prompt computed on `prefill` and the rest on `decode`."""
    return prefill if prefill == decode else prefill + (decode + 2) * PAIRS


@njit(cache=True)
def prefill_of(answer: int) -> int:
    return answer % PAIRS


@njit(cache=True)
def decode_of(answer: int) -> int:
    return answer // PAIRS - 2 if answer >= PAIRS else answer
