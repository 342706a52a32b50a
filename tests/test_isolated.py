"""Sessions alone: one after the other on one engine, and each on an empty engine of the judge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from oracles.comparison import QUIET
from oracles.random_clusters import Case, cases
from oracles.reference_simulator import Cluster

from agentctl.isolated import isolated, strangers


def judged(case: Case, session: int) -> tuple[float, float, float]:
    """TTFET, completion time and last-turn TBT on an engine of its own."""
    mine = [r for r, request in enumerate(case.requests) if request.session == session]
    number = {r: k for k, r in enumerate(mine)}
    requests = [
        replace(
            case.requests[r],
            parent=number.get(case.requests[r].parent, -1),
            deps=tuple(number[dep] for dep in case.requests[r].deps),
            session=0,
        )
        for r in mine
    ]
    limits = replace(case.limits[0], prefill_schedule_interval=1)
    results = Cluster(requests, [limits], lambda view, r: 0, case.trace_block, 0, 1).run()
    done = [k for k, result in enumerate(results) if result.status == "done"]
    if not done:
        return np.nan, np.nan, np.nan
    start = min(result.arrival for result in results)
    end = max(result.finish if result.status == "done" else result.arrival for result in results)
    last = max(done, key=lambda k: (results[k].arrival, k))
    times = results[last].token_times
    tbt = (times[-1] - times[0]) / (len(times) - 1) if len(times) > 1 else np.nan
    return results[last].first_token - start, end - start, tbt


@settings(QUIET, max_examples=30)
@given(cases())
def test_a_session_takes_what_it_takes_on_an_empty_engine(case):
    found = isolated(case.workload, case.cluster)
    expected = [judged(case, session) for session in range(case.workload.n_sessions)]
    np.testing.assert_allclose(np.column_stack(found), np.array(expected), rtol=1e-9)


@settings(QUIET, max_examples=30)
@given(cases())
def test_strangers_have_the_same_chains_of_their_own(case):
    old, new = case.workload, strangers(case.workload)
    seen: dict[int, int] = {}
    for r in range(old.n_requests):
        session, a, b = int(old.requests.session[r]), int(old.requests.tip[r]), int(new.requests.tip[r])
        while a:
            assert new.tree.depth[b] == old.tree.depth[a]
            assert seen.setdefault(b, session) == session  # nobody else's
            assert new.tree.parent[b] < b
            a, b = int(old.tree.parent[a]), int(new.tree.parent[b])
        assert b == 0
