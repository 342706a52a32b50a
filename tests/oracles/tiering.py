"""Random KV tiers, and the judge's run with tiers beside the simulator's."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
from hypothesis import strategies as st
from oracles.comparison import check_equal, policy_of, recorded
from oracles.random_clusters import Case, make_case
from oracles.reference_simulator import BatchCoefficients, Limits, Request
from oracles.reference_tiers import Tier, TieredCluster

from agentctl.cluster import KvTier
from agentctl.sim.driver import simulate
from agentctl.sim.outcome import Outcome

RATES = st.one_of(st.floats(0.5, 50.0), st.floats(4.0, 1000.0), st.just(math.inf))
NO_LIMIT = 1 << 40  # tokens


UNEVEN = 1 + math.pi / 100  # a factor of speeds and latencies, after which transfers end with nothing else


@st.composite
def tiers(draw: st.DrawFn, block: int, factor: float = 1.0) -> Tier:
    read = draw(RATES) * factor
    link = draw(st.sampled_from([None, read / 2, read / 7]))
    return Tier(
        capacity_tokens=draw(st.sampled_from([8, 40, math.inf])),
        scope=draw(st.sampled_from(["engine", "cluster"])),
        read_bytes_per_s=read,
        write_bytes_per_s=draw(RATES) * factor,
        engine_read_bytes_per_s=link if read < math.inf else None,
        latency_s=draw(st.sampled_from([0.0, 0.0, 0.125, 3.0])) * factor,
        parallel=draw(st.sampled_from([0, 0, 2])),
        unit_tokens=block * draw(st.sampled_from([1, 1, 2, 3])),
        inclusion=draw(st.sampled_from(["inclusive", "exclusive"])),
        write=draw(st.sampled_from(["through", "through", "back", "selective"])),
        write_decode=draw(st.booleans()),
        use_if_faster=draw(st.sampled_from([False, False, True])),
        overlap=draw(st.sampled_from(["none", "async", "layerwise"])),
    )


@st.composite
def scattered(draw: st.DrawFn, factor: float = 1.0) -> tuple[Case, list[Tier], int | None]:
    """Prompts of one tree on engines that take turns: what is missing here was often computed elsewhere."""
    block, n = draw(st.sampled_from([1, 2, 4])), draw(st.sampled_from([1, 2, 2, 3]))
    dice = random.Random(draw(st.integers(0, 2**32)))  # drawn one by one they would be too few and too alike
    depth, rush = dice.randint(2, 5), dice.choice([2, 20, 60])
    requests = []
    for r in range(dice.randint(4, 20)):
        branch = [dice.randint(0, 1) if at >= depth else 0 for at in range(dice.randint(3, 8))]
        chain = tuple(tuple(branch[: at + 1]) for at in range(len(branch)))
        prompt = len(chain) * block - dice.randint(0, block - 1)
        arrival = dice.randint(0, 4 * rush) * 0.25
        requests.append(Request(prompt, dice.randint(1, 9), arrival, chain, session=r))
    most = max(request.prompt + request.output for request in requests)
    limits = Limits(
        kv_blocks=most // block + 3 + dice.choice([0, 0, 1, 3, 9]),
        block_tokens=block,
        max_num_batched_tokens=draw(st.sampled_from([3, 16, 1000])),
        max_num_seqs=draw(st.sampled_from([1, 3, 8])),
        reserve_full_prompt=draw(st.booleans()),
        scheduling_policy=draw(st.sampled_from(["fcfs", "priority"])),
        batch_time=BatchCoefficients(b0=0.25, b_prefill=draw(st.sampled_from([0.0, 0.25])), b_decode=0.125),
    )
    some = draw(st.lists(tiers(block, factor), min_size=1, max_size=2))
    numbered = _numbered(requests)
    return make_case(numbered, [], block, [limits] * n), some, draw(st.sampled_from([None, 4]))


def _numbered(requests: list[Request]) -> list[Request]:
    """Chains of node numbers, parents below their children."""
    numbers: dict[tuple[int, ...], int] = {}
    return [
        replace(request, chain=tuple(numbers.setdefault(node, len(numbers) + 1) for node in request.chain))
        for request in requests
    ]


def in_turn(case: Case):
    return lambda view, r: r % len(case.limits)


def with_tiers(case: Case, some: list[Tier], layers: int | None = None) -> Case:
    """The same case, whose cluster has these tiers; a token's KV is one byte."""
    kv_tiers = []
    for t, tier in enumerate(some):
        keys = {name: value for name, value in vars(tier).items() if name != "capacity_tokens"}
        capacity = NO_LIMIT if tier.capacity_tokens == math.inf else int(tier.capacity_tokens)
        kv_tiers.append(KvTier(name=f"tier{t}", capacity_tokens=capacity, layers=layers, **keys))
    pools = tuple(
        replace(pool, profile=replace(pool.profile, kv_bytes_per_token=1)) for pool in case.cluster.pools
    )
    return replace(case, cluster=replace(case.cluster, pools=pools, kv_tiers=tuple(kv_tiers)))


def tiered(case: Case, choose, tiers: list[Tier], layers: int | None = None) -> TieredCluster:
    return TieredCluster(
        case.requests, case.limits, choose, tiers, layers=layers, trace_block=case.trace_block,
        seed=case.seed, concurrency=case.concurrency, settings=case.settings,
    )  # fmt: skip


def check_tier_hits(judged, outcome: Outcome, some: list[Tier]) -> None:
    for scope, found in (("engine", outcome.hit_host_tokens), ("cluster", outcome.hit_global_tokens)):
        of_scope = [t for t, tier in enumerate(some) if tier.scope == scope]
        if of_scope:
            expected = [sum(q.tier_hits[t] for t in of_scope) if q.tier_hits else 0 for q in judged]
            assert found.tolist() == expected


def check_tiered(case: Case, choose, some: list[Tier], layers: int | None = None, relative=1e-9) -> Outcome:
    """Both simulators agree on every request, what tiers had of it, and what the policy saw."""
    told, shown = [], []
    judged = tiered(case, recorded(choose, told), some, layers).run()
    mine = with_tiers(case, some, layers)
    outcome = simulate(
        mine.workload, mine.cluster, policy_of(recorded(choose, shown)), mine.seed, mine.concurrency
    )
    check_equal(judged, outcome, relative)
    check_tier_hits(judged, outcome, some)
    np.testing.assert_allclose(
        outcome.transfer_s, [q.load_s for q in judged], rtol=relative, atol=relative * 10
    )
    for (r, theirs), (also_r, ours) in zip(told, shown, strict=True):
        assert r == also_r
        for name, value in theirs.items():
            np.testing.assert_allclose(ours[name], value, rtol=relative, atol=relative, err_msg=name)
    return outcome
