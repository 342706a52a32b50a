"""The simulator against its judges: one policy for both, what each showed it, and what came out."""

import math
from types import SimpleNamespace

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from oracles import reference_sglang, reference_simulator
from oracles.random_clusters import Case
from oracles.reference_view import View

from agentctl.sim.driver import simulate

SIGNALS = (
    "waiting_requests", "running_requests", "pending_prefill_tokens", "pending_prefill_pairs",
    "context_tokens", "kv_used_blocks", "hit_tokens", "inflight_requests", "inflight_prefill_tokens",
    "unpublished_requests", "unpublished_tokens", "active_blocks", "host_hit_tokens", "global_hit_tokens",
)  # fmt: skip

QUIET = settings(deadline=None, suppress_health_check=list(HealthCheck))


def weighted(weights):
    """A policy that looks at everything: the least weighted sum of signals, ties after the last choice."""

    def choose(view, r):
        n = len(view.waiting_requests)
        order = [(view.last_chosen + 1 + i) % n for i in range(n)]
        return min(order, key=lambda e: sum(w * float(getattr(view, s)[e]) for s, w in weights.items()))

    return choose


def policy_of(choose, places=False):
    return SimpleNamespace(
        name="test", my=None, places=places, choose=lambda view, requests, r, my: choose(view, r)
    )


def recorded(choose, seen):
    def record(view, r):
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in (view._asdict() if hasattr(view, "_asdict") else vars(view)).items()
            if name in View.__dataclass_fields__
        }
        seen.append((r, plain))
        return choose(view, r)

    return record


def run_both(case: Case, choose):
    """(results, outcome, what the judge told the policy, what the simulator showed it)."""
    told, shown = [], []
    sglang = isinstance(case.limits[0], reference_sglang.Limits)
    judge = reference_sglang if sglang else reference_simulator
    judged = judge.Cluster(
        case.requests, case.limits, recorded(choose, told), case.trace_block, case.seed, case.concurrency,
        case.settings,
    ).run()  # fmt: skip
    outcome = simulate(
        case.workload, case.cluster, policy_of(recorded(choose, shown)), case.seed, case.concurrency
    )
    return judged, outcome, told, shown


def check_equal(judged, outcome, relative):
    def same(a, b):
        return (math.isnan(a) and math.isnan(b)) or math.isclose(a, b, rel_tol=relative, abs_tol=0)

    for r, result in enumerate(judged):
        assert outcome.done[r] == (result.status == "done"), r
        assert outcome.engine[r] == result.engine, r
        assert outcome.hit_tokens[r] == result.hit, r
        assert outcome.preemptions[r] == result.preemptions, r
        assert outcome.computed_prefill_tokens[r] == result.prefilled, r
        assert same(outcome.arrival_s[r], result.arrival), r
        assert same(outcome.scheduled_s[r], result.scheduled), r
        assert same(outcome.first_token_s[r], result.first_token), r
        assert same(outcome.finish_s[r], result.finish), r
        # a difference of two instants: as exact as they are
        gap, expected = outcome.itl_max_s[r], result.itl_max
        assert same(gap, expected) or abs(gap - expected) <= relative * result.finish, r


WEIGHTS = st.dictionaries(st.sampled_from(SIGNALS), st.integers(-3, 3), max_size=4)
