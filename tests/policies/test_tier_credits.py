"""What routers give for KV that an engine would load: by hand, on engines that differ in nothing else."""

import numpy as np
from oracles.asking import Router
from oracles.state_x import view_of

# Engine 0 holds 1,600 tokens of the prompt, engine 1 has 2,000 in its own tiers, engine 2 finds 2,400 in a
# tier of the cluster.
VIEW = view_of(
    hit_tokens=[1_600, 0, 0, 0],
    host_hit_tokens=[0, 2_000, 0, 0],
    global_hit_tokens=[0, 0, 2_400, 0],
    active_blocks=[0, 0, 0, 0],
)


def cost(name, view=VIEW, **params):
    return Router(name, prompts=(4_000,), **params).cost(view)


def test_vllm_router_gives_host_memory_a_credit_of_4_fifths_and_a_shared_store_3_fifths():
    np.testing.assert_allclose(cost("lmetric@vllm-router"), [2_400, 4_000 - 1_600, 4_000 - 1_440, 4_000])


def test_dynamo_gives_host_memory_a_credit_of_3_quarters():
    # 250 blocks of 16; 100 held: 150. 125 in the host: 250 - 93.75.
    np.testing.assert_allclose(cost("dynamo-worker-selector"), [150, 156.25, 250, 250])


def test_llm_d_counts_host_memory_at_4_fifths_in_whole_blocks():
    weights = {"queue_weight": 0, "kv_weight": 0, "prefix_weight": 1}
    np.testing.assert_allclose(-cost("llm-d", **weights), [0.4, 0.4, 0, 0])
    uneven = VIEW._replace(host_hit_tokens=np.array([0, 2_016, 0, 0]))  # 0.8 of 126 blocks: 100.8
    np.testing.assert_allclose(-cost("llm-d", uneven, **weights), [0.4, 0.4, 0, 0])
