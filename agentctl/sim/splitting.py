"""A policy that names one engine, asked for both where some engines compute prompts and others decode.

The decoder is chosen first, among engines that decode, then, for a request that is split, who computes its
prompt, among those: each time the policy sees these engines only, and a memory of its own. Which requests are
split is [router.split]'s to say. llm-d (`prefix-based-pd-decider`) and Dynamo (conditional disaggregation)
both keep a prompt on its decoder of which little is left to compute there: llm-d splits one of
`prompt_tokens` at least that has `uncached_tokens` at least; Dynamo one that has more than that and more than
`uncached_share` of it. vllm-router's rule needs a table of costs that nobody has published.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from agentctl.cluster import Cluster, Split
from agentctl.errors import ConfigError
from agentctl.sim.jit import kernel
from agentctl.sim.roles import PREFILL, ROLES, hand_over
from agentctl.sim.view import View
from agentctl.toml import build

SIDES = np.dtype(
    [
        ("is_on", "?"),
        ("first_prefill", "i8"), ("stop_prefill", "i8"), ("first_decode", "i8"), ("stop_decode", "i8"),
        ("prompt_tokens", "i8"), ("least_uncached", "i8"), ("share", "f8"),
    ],
    align=True,
)  # fmt: skip


def check_sides(cluster: Cluster, policy: str) -> None:
    """Raise ConfigError for pools between which a policy of one engine, `policy`, cannot be asked."""
    roles = _roles(cluster)
    if any(pool.role == "both" for pool in cluster.pools) or not (roles == PREFILL).any():
        raise ConfigError(
            f"the policy {policy} names one engine, and pools are both and more",
            place="[[pool]] role",
            expected="prefill and decode pools only, or a policy that knows of roles, like conserve-pd",
        )
    if np.count_nonzero(np.diff(roles)) > 1:
        raise ConfigError(
            "prefill pools stand between decode pools", place="[[pool]] role", hint="list them together"
        )


def _roles(cluster: Cluster) -> NDArray[np.int64]:
    """Of every engine."""
    return np.repeat([ROLES[pool.role] for pool in cluster.pools], [pool.engines for pool in cluster.pools])


def make_sides(cluster: Cluster | None, is_on: bool) -> NDArray[Any]:
    """Of pools that were checked."""
    sides = np.zeros(1, SIDES)
    if cluster is None or not is_on:
        return sides
    roles = _roles(cluster)
    border, n = int(np.flatnonzero(np.diff(roles))[0]) + 1, roles.size
    split = build(Split, cluster.router.split or {}, "[router.split]")
    sides["is_on"] = True
    first, second = ("prefill", "decode") if roles[0] == PREFILL else ("decode", "prefill")
    sides[f"stop_{first}"] = sides[f"first_{second}"] = border
    sides[f"stop_{second}"] = n
    uncached = {"always": 0, "llm-d": 0, "dynamo": 2048}[split.rule]
    if split.uncached_tokens is not None:
        uncached = split.uncached_tokens
    if split.rule == "llm-d" and uncached == 0:  # its default: never
        uncached = 1 << 60
    sides["least_uncached"] = uncached + (split.rule == "dynamo")
    sides["prompt_tokens"] = split.prompt_tokens or 0
    share = 0.7 if split.uncached_share is None else split.uncached_share
    sides["share"] = share if split.rule == "dynamo" else -1.0
    return sides


def side_of(view: View, first: int, stop: int, last: int, part: int) -> View:
    """The view of engines first .. stop - 1, which are 0 and on in it. `part`: of the memory, 0 or 1."""
    half = view.memory.size // 2
    last_here = last - first if first <= last < stop else -1
    return View(
        view.now, view.seed, last_here, view.waiting_requests[first:stop], view.running_requests[first:stop],
        view.pending_prefill_tokens[first:stop], view.pending_prefill_pairs[first:stop],
        view.context_tokens[first:stop], view.kv_used_blocks[first:stop], view.kv_total_blocks[first:stop],
        view.hit_tokens[first:stop], view.inflight_requests[first:stop],
        view.inflight_prefill_tokens[first:stop], view.expected_hit, view.unpublished_requests[first:stop],
        view.unpublished_tokens[first:stop], view.published_at, view.active_blocks[first:stop],
        view.memory[part * half : (part + 1) * half], view.step_ends_at[first:stop], view.block_tokens,
        view.path, view.path_start, view.path_stop, view.host_hit_tokens[first:stop],
        view.global_hit_tokens[first:stop], view.roles[first:stop], last_here, view.prefill_engine, view.over,
        view.n_over, view.prefill_rates[first:stop], view.move_s_per_token, view.move_latency_s,
        view.accuracy[first:stop], view.cost[first:stop], view.ttft_s[first:stop],
        view.ttft_high_s[first:stop], view.tau_s, view.lam,
    )  # fmt: skip


def is_split(sides: Any, prompt: int, hit: int) -> bool:
    """Whether a prompt of which its decoder holds `hit` tokens is computed elsewhere."""
    uncached = prompt - hit
    return bool(
        prompt >= sides.prompt_tokens and uncached >= sides.least_uncached and uncached > sides.share * prompt
    )


def both(decode: int, prefill: int, sides: Any) -> int:
    """The answer, -1 where the policy has named no engine. Numbers are those on each side."""
    n_prefill = sides.stop_prefill - sides.first_prefill
    if not (0 <= decode < sides.stop_decode - sides.first_decode and 0 <= prefill < n_prefill):
        return -1
    return hand_over(sides.first_prefill + prefill, sides.first_decode + decode)


side_kernel, is_split_kernel, both_kernel = kernel(side_of), kernel(is_split), kernel(both)
