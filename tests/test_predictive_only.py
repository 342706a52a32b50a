"""Coefficients that were fitted to a log hold together: nothing is configured from a single one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentctl.cluster import cluster_of
from agentctl.errors import ConfigError
from agentctl.estimators.batch_time import BatchTime
from agentctl.policies.base import load_policy, policy_names
from agentctl.profile import Profile
from agentctl.recommend.candidates import DEFAULT_POLICIES, candidates_of, left_out_of
from agentctl.simulate import policy_of

MEASURED = Profile(
    BatchTime("hinge", 5e-3, 3e-5, 5e-5, 1e-7, 1e-7, 1e-9), kv_blocks=600, block_tokens=16,
    provenance={"source": "measured"},
)  # fmt: skip
FITTED = replace(MEASURED, provenance={"source": "fitted-from-log", "predictive_only": True})
SINGLE = [name for name in policy_names() if load_policy(name).takes_single_coefficients]
WHOLE = [name for name in policy_names() if load_policy(name).from_profile and name not in SINGLE]


def test_smetric_and_its_kin_take_coefficients_one_by_one():
    assert {"smetric", "preble", "mooncake-conductor"} <= set(SINGLE)
    assert "oracle-least-ttft" in WHOLE  # the time of whole batches, for which the coefficients stand


@pytest.mark.parametrize("name", SINGLE)
def test_a_single_coefficient_has_to_be_given(name):
    cluster = cluster_of(FITTED, 2)
    taken = list(load_policy(name).from_profile)
    with pytest.raises(ConfigError, match=rf"takes {' and '.join(taken)} from the profile.*predictive_only"):
        policy_of(cluster, name)
    given = policy_of(cluster, name, dict.fromkeys(taken, 2e-5))
    assert all(given.params[key] == 2e-5 for key in taken)
    assert policy_of(cluster_of(MEASURED, 2), name).params[taken[0]] > 0


@pytest.mark.parametrize("name", ["round-robin", *WHOLE])
def test_policies_that_take_none_or_the_whole_batch_time_are_as_ever(name):
    assert policy_of(cluster_of(FITTED, 2), name) == policy_of(cluster_of(MEASURED, 2), name)


def test_recommend_leaves_out_what_it_chose_itself_and_refuses_what_was_asked_for():
    cluster = cluster_of(FITTED, 2)
    assert list(left_out_of(cluster, ())) == ["smetric"]
    candidates, _, _ = candidates_of({2: cluster}, (), None)
    assert {one.name for one in candidates} == set(DEFAULT_POLICIES) - {"smetric"}
    assert left_out_of(cluster_of(MEASURED, 2), ()) == {}
    with pytest.raises(ConfigError, match="policy smetric: takes c_linear and c_attention"):
        candidates_of({2: cluster}, ["smetric"], None)
