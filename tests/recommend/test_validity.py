"""Validity checks on workloads that break one rule at a time."""

import numpy as np
import pytest

from agentctl.cluster import cluster_of
from agentctl.policies.base import load_policy
from agentctl.profile import load_profile
from agentctl.recommend.decision import decide
from agentctl.recommend.search import Candidate, Found, Measured
from agentctl.recommend.statistics import Peak
from agentctl.recommend.validity import CHECKS, Deployed, Evidence, check_all
from agentctl.trace import PrefixTree
from agentctl.validate import BackTest
from agentctl.workload import Requests, Workload

CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 4)
META = {
    "records": {"read": 10_000, "quarantined": 0},
    "sessions": {"source": {"explicit": 100}},
    "chain_conflicts": 0,
}
STEADY = Measured(
    **{
        **dict.fromkeys(Measured._fields),
        "score": 0.1,
        "requests": 10,
        "rejected": 0,
        "in_system_third": 4.0,
        "in_system_fourth": 4.1,
    }
)


def workload_of(sessions=100, turns=2, gap=10.0, span=8000.0, replay="thinktime", counts=None, tokens=None):
    """`sessions` that start evenly over `span`, each of `turns` turns `gap` apart."""
    start = np.repeat(np.linspace(0, span, sessions), turns)
    turn = np.tile(np.arange(turns, dtype=np.int32), sessions)
    session = np.repeat(np.arange(sessions, dtype=np.int32), turns)
    order = np.argsort(start + gap * turn, kind="stable")
    n = sessions * turns
    prompt = np.full(n, 100) if tokens is None else np.repeat(tokens, turns)
    nothing = np.zeros(n, dtype=np.int64)
    requests = Requests(
        arrival=(start + gap * turn)[order],
        prompt_tokens=prompt[order],
        output_tokens=nothing + 1,
        session=session[order],
        turn=turn[order],
        parent=nothing - 1,
        release=nothing,
        gap=nothing * 1.0,
        deps_start=np.zeros(n + 1, dtype=np.int64),
        deps=nothing[:0],
        tip=nothing,
        confirmed_child=nothing - 1,
        priority=nothing,
    )
    empty = np.zeros(1, dtype=np.int64)
    names = [str(r) for r in range(n)]
    return Workload(
        requests, PrefixTree(empty, empty, empty, empty), 16, names, names[:sessions], replay, counts or {}
    )


UNTESTED = BackTest("UNVALIDATED", "the log has no measured latency")


def check(name, *, workload=None, meta=None, recorded=True, peak=1.2, at=STEADY, tested=UNTESTED, **more):
    policy, router = more.get("policy", "smetric"), more.get("router")
    found = Found(Candidate("smetric", load_policy(policy), CLUSTER), {0: at}, Peak(peak), [])
    evidence = Evidence(
        {**META, **(meta or {})},
        workload or workload_of(),
        decide([found], "smetric"),
        recorded,
        tested,
        router=router,
    )
    return next(c for c in check_all(evidence) if c.id == name)


def test_all_eleven_checks_answer():
    assert [name for name, _, _ in CHECKS] == [f"V{n}" for n in range(1, 12)]
    for name, _, _ in CHECKS:
        found = check(name)
        assert found.status in ("OK", "WARN", "FAIL", "NOT EVALUATED", "NOT APPLICABLE")
        assert found.finding


@pytest.mark.parametrize("name", ["V2", "V3", "V5", "V6", "V7", "V8", "V9", "V10"])
def test_a_sound_trace_passes(name):
    assert check(name).status == "OK"


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("V2", {"workload": workload_of(span=500.0)}),  # 8 blocks of a minute
        ("V2", {"workload": workload_of(gap=2000.0)}),  # 5 lifetimes
        ("V3", {"peak": 1.6}),
        ("V5", {"at": STEADY._replace(in_system_fourth=9.0)}),
        ("V6", {"workload": workload_of(turns=2, gap=2000.0)}),
        ("V7", {"meta": {"sessions": {"source": {"explicit": 50, "block_chain": 50}}}}),
        ("V7", {"meta": {"chain_conflicts": 3}}),
        ("V8", {"workload": workload_of(tokens=[9000] + [100] * 99)}),
        ("V9", {"meta": {"records": {"read": 1000, "quarantined": 2}}}),
        ("V10", {"workload": workload_of(replay="timestamps")}),
        ("V10", {"workload": workload_of(counts={"causal": 3})}),
    ],
)
def test_a_trace_that_breaks_the_rule_is_warned_about(name, broken):
    assert check(name, **broken).status == "WARN"


def test_five_blocks_of_a_minute_carry_no_interval():
    assert check("V2", workload=workload_of(span=300.0)).status == "FAIL"


def test_a_little_growth_is_not_instability():
    small = STEADY._replace(in_system_third=0.1, in_system_fourth=0.3)
    assert check("V5", at=small).status == "OK"


@pytest.mark.parametrize("name", ["V2", "V3", "V6"])
def test_checks_of_recorded_starts_do_not_apply_to_synthesised_ones(name):
    assert check(name, recorded=False).status == "NOT APPLICABLE"


@pytest.mark.parametrize("name", ["V4", "V11"])
def test_what_cannot_be_decided_yet_says_why(name):
    found = check(name)
    assert found.status == "NOT EVALUATED"
    assert len(found.finding) > 20


@pytest.mark.parametrize(("fit", "status"), [("exact", "OK"), ("nearest", "WARN"), ("none", "FAIL")])
def test_a_router_that_acts_otherwise_than_simulated_is_told_by_how_far(fit, status):
    differences = ("metrics are older",) if fit == "nearest" else ()
    found = check("V11", router=Deployed("llm-d 0.9", fit, differences))
    assert found.status == status
    assert "llm-d 0.9" in found.finding
    assert all(one in found.finding for one in differences)


def test_a_routers_own_policy_acts_as_its_file_says():
    found = check("V11", policy="vllm-router:kv_aware")
    assert found.status == "OK" and "vllm-router 0.1.17" in found.finding
