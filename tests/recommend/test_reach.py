"""Objectives that nobody can meet are wrong input; those that are only hard are not."""

import pytest
from oracles.datasets import write_dataset

from agentctl.cluster import parse_cluster
from agentctl.errors import UsageError
from agentctl.recommend.reach import check_reachable
from agentctl.slo import parse_slos
from agentctl.workload import compile_workload

# A batch of one token takes 5 ms and 0.2 ms more for a prompt's, 0.1 ms more for a decode's.
TIMES = {"model": "hinge", "b0": 5e-3, "b_prefill": 2e-4, "b_decode": 1e-4}
POOL = {"name": "main", "engines": 2, "block_tokens": 16, "kv_blocks": 400, "batch_time": TIMES}
CLUSTER = parse_cluster({"schema": "agentctl/cluster/1", "pool": [POOL]}, "c.toml")


@pytest.fixture(scope="module")
def workload(tmp_path_factory):
    """Outputs of 1, 11, 21 and 31 tokens."""
    rows = [
        {"arrival_s": float(n), "blocks": [n + 1], "output_tokens": 10 * n + 1, "session_id": f"s{n}"}
        for n in range(4)
    ]
    return compile_workload(write_dataset(tmp_path_factory.mktemp("t") / "t.trace", rows, block_tokens=16))


@pytest.mark.parametrize(
    "text",
    [
        "ttft < 5.1ms @ 90%",
        "ttft < 5ms @ 1%",
        "tpot < 5.05ms @ 95%",
        "e2e < 120ms @ 90%",  # 31 outputs take 5.2 + 30 * 5.1 ms: half of the requests can
        "tpot mean < 1ms",
    ],
)
def test_what_an_idle_engine_cannot_meet_is_refused_with_the_least_time_it_takes(workload, text):
    with pytest.raises(UsageError) as caught:
        check_reachable(parse_slos([text]), workload, [CLUSTER])
    assert caught.value.message.startswith(f"slo '{text}': can be met by ")
    assert "one batch takes at least 5." in caught.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "ttft < 5.3ms @ 100%",  # hard: a cold prompt takes longer, but a cached one does not
        "tpot < 5.2ms @ 100%",
        "e2e < 120ms @ 75%",
        "ttft < 10us*prompt_tokens + 5.1ms",
        "session < 1us",  # not known without a simulation
    ],
)
def test_what_is_only_hard_is_a_matter_of_the_simulation(workload, text):
    check_reachable(parse_slos([text]), workload, [CLUSTER])
