"""What the simulator's engines would publish is what the judge's would."""

from dataclasses import replace

from hypothesis import given, settings
from oracles.comparison import policy_of
from oracles.random_clusters import cases, make_case
from oracles.served import serve

from agentctl.estimators.sfs_simulated import snapshot_of
from agentctl.sim.driver import begin


def first_engine(view, r):
    return 0


@settings(max_examples=100)
@given(cases())
def test_an_engine_is_seen_as_the_judge_sees_it_whenever_a_request_arrives(case):
    case = make_case(case.requests, case.tokens, case.trace_block, case.limits[:1], case.concurrency)
    run = serve(
        case.requests, case.limits[0], None, 0, noise=0.0, stalls=0.0, trace_block=case.trace_block,
        concurrency=case.concurrency,
    )  # fmt: skip
    simulated = begin(case.workload, case.cluster, policy_of(first_engine), 0, case.concurrency)
    held, pool = -1, case.cluster.pools[0]
    for r, (snapshot, _) in zip(run.order, run.seen, strict=True):
        if run.results[r].status == "rejected":
            continue
        assert not simulated.go_on(len(case.requests) + 1, r, held, 0)
        held, now = r, float(simulated.arrivals.now[0])
        found = snapshot_of(simulated.s, 0, pool, now, case.workload.requests.output_tokens)
        assert found == replace(snapshot, engine=pool)
