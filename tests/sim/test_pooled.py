"""With roles the simulator agrees with the judge on every request."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from oracles.comparison import QUIET
from oracles.pooling import NETWORKS, ROLES, check_pooled
from oracles.random_clusters import cases


@settings(QUIET, max_examples=300)
@given(cases(), ROLES, NETWORKS, st.integers(0, 2**32))
def test_simulator_equals_the_judge_with_roles(case, roles, network, seed):
    check_pooled(case, roles, network, seed)
