"""NVIDIA Dynamo's KV router: prefill blocks less a credit for blocks found, plus active blocks, least
wins.

cost = prefill_load_scale max(0, (T + L) / B - credit) + D + request_weight F, in blocks of B tokens: T
prefill tokens and F requests that this router has in flight on the engine, L the prompt, D the blocks
active there with this request added, a shared block counted once. The credit is overlap_credit times the
blocks of the prompt that the engine holds, times 1 / (1 + overlap_credit_decay x): x is what the engine's
T exceeds the least T by, in prompts of this length. Blocks behind those in the engine's KV tiers count 0.75
each (Dynamo gives host memory 0.75 and disk 0.25; here all tiers of an engine are host memory). Its credit
for a cache that engines share is not known to us and left out.

Source: NVIDIA Dynamo 1.6.1, router mode kv, aggregated serving. Sees: hit tokens, the router's own prefill
tokens, requests and blocks in flight. Ties: random. Above temperature 0 the engine is drawn: softmax of
the negative cost, scaled to 0..1.

    overlap_credit        1  of a block that the engine holds; 0 looks at load only
    overlap_credit_decay  0  off; 1 halves the credit at one prompt of excess prefill
    prefill_load_scale    1  active blocks that one prefill block stands for
    request_weight        0  blocks that one request in flight stands for
    temperature           0  least cost
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from agentctl.policies._draws import draw, softmax
from agentctl.policies.base import RANDOM, no_second, pick_least, policy
from agentctl.sim.view import View
from agentctl.workload import Requests

HOST_CREDIT = 0.75


class Params(NamedTuple):
    overlap_credit: float = 1.0
    overlap_credit_decay: float = 0.0
    prefill_load_scale: float = 1.0
    request_weight: float = 0.0
    temperature: float = 0.0
    tie: int = RANDOM


@njit(cache=True)
def cost(view: View, requests: Requests, r: int, my: Params) -> NDArray[np.float64]:
    prompt, block = requests.prompt_tokens[r], view.block_tokens
    inflight = view.inflight_prefill_tokens
    decay = 1 / (1 + my.overlap_credit_decay * (inflight - inflight.min()) / prompt)
    credit = my.overlap_credit * decay * (view.hit_tokens // block)
    credit = credit + HOST_CREDIT * (view.host_hit_tokens // block)
    prefill = np.maximum((inflight + prompt) / block - credit, 0.0)
    return my.prefill_load_scale * prefill + view.active_blocks + my.request_weight * view.inflight_requests


@policy(
    "dynamo-worker-selector",
    params=Params,
    source="NVIDIA Dynamo 1.6.1",
    sees=(
        "hit_tokens",
        "inflight_prefill_tokens",
        "inflight_requests",
        "active_blocks",
        "block_tokens",
        "host_hit_tokens",
    ),
    cost=cost,
)
@njit(cache=True)
def choose(view: View, requests: Requests, r: int, my: Params) -> int:
    costs = cost(view, requests, r, my)
    if my.temperature > 0:
        return draw(softmax(costs, my.temperature), view.seed, r)
    return pick_least(costs, no_second(costs), view.seed, view.last_chosen, r, my.tie)
