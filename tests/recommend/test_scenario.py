"""What a changed assumption makes of a cluster and of a workload."""

import dataclasses
import math

import numpy as np
import pytest

from agentctl.cluster import cluster_of
from agentctl.errors import ConfigError
from agentctl.profile import load_profile
from agentctl.recommend.scenario import Scenario, cluster_in, covariance_of, drawn_coefficients

PROFILE = load_profile("h100-qwen3-8b")
CLUSTER = cluster_of(PROFILE, 4)
C = PROFILE.batch_time
NAMES = ["b0", "b_prefill"]
MATRIX = [[(0.1 * C.b0) ** 2, 0.0], [0.0, (0.2 * C.b_prefill) ** 2]]


def with_covariance(names=NAMES, matrix=MATRIX):
    return dataclasses.replace(PROFILE, fit={"covariance": {"names": names, "matrix": matrix}})


def test_without_a_change_the_cluster_is_the_same():
    assert cluster_in(Scenario(replicate=3, ties=2, think=2.0), CLUSTER, 0) == CLUSTER


def test_a_slower_world_is_slower_in_every_coefficient():
    slow = cluster_in(Scenario(slow=1.5), CLUSTER, 0).pools[0].profile.batch_time
    for key, value in C._asdict().items():
        if key != "model":
            assert getattr(slow, key) == pytest.approx(1.5 * value)


def test_ages_of_what_the_router_knows_are_scaled_and_fresh_ones_stay_fresh():
    router = dataclasses.replace(CLUSTER.router, metrics_interval_s=0.4, index_delay_s=0.0)
    changed = cluster_in(Scenario(staleness=2.0), dataclasses.replace(CLUSTER, router=router), 0).router
    assert (changed.metrics_interval_s, changed.index_delay_s) == (0.8, 0.0)


def test_a_lost_engine_and_more_gateways():
    changed = cluster_in(Scenario(lost=1, gateways=4), CLUSTER, 0)
    assert (changed.n_engines, changed.router.gateways) == (3, 4)


def test_draws_have_the_covariance_that_they_are_drawn_from_and_are_never_negative():
    profile = with_covariance()
    drawn = [drawn_coefficients(profile, 0, n) for n in range(1, 2001)]
    b0, prefill = (np.array([getattr(c, name) for c in drawn]) for name in NAMES)
    assert b0.mean() == pytest.approx(C.b0, rel=0.01)
    assert b0.std() == pytest.approx(0.1 * C.b0, rel=0.06)
    assert prefill.std() == pytest.approx(0.2 * C.b_prefill, rel=0.06)
    assert min(min(c[1:]) for c in drawn) >= 0
    assert {c.b_decode for c in drawn} == {C.b_decode}  # it has no error there


def test_the_same_draw_is_the_same_for_all():
    assert drawn_coefficients(with_covariance(), 0, 7) == drawn_coefficients(with_covariance(), 0, 7)
    assert drawn_coefficients(with_covariance(), 0, 7) != drawn_coefficients(with_covariance(), 1, 7)


def test_one_slope_for_all_tokens_moves_prefill_and_decode_together():
    drawn = drawn_coefficients(with_covariance(["b_token"], [[(0.1 * C.b_prefill) ** 2]]), 0, 1)
    assert drawn.b_prefill == drawn.b_decode != C.b_prefill


@pytest.mark.parametrize(
    ("names", "matrix", "words"),
    [
        (NAMES, [[math.nan, 0.0], [0.0, 1.0]], "no finite number"),
        (NAMES, [["x", 0.0], [0.0, 1.0]], "no finite number"),
        (NAMES, [[1.0, 0.0]], "not square"),
        (NAMES, [[1.0, 0.0], [0.5, 1.0]], "not the covariance of anything"),
        (NAMES, [[1.0, 2.0], [2.0, 1.0]], "not the covariance of anything"),
        (["b0", "b9"], MATRIX, "names other coefficients"),
        (["b0", "b0"], MATRIX, "names other coefficients"),
    ],
)
def test_what_is_no_covariance_is_refused_with_its_place_and_a_cure(names, matrix, words):
    with pytest.raises(ConfigError) as caught:
        covariance_of(with_covariance(names, matrix))
    assert words in caught.value.message
    assert "[batch_time.fit] covariance" in caught.value.message


def test_a_calibration_that_is_always_negative_somewhere_is_refused():
    names = ["b0", "b_prefill", "b_decode", "b_context", "b_attention", "h0", "h_seq"]
    huge = (np.eye(7) * 1e6 - 1e6 / 7.001).tolist()  # their sum is almost 0
    with pytest.raises(ConfigError, match="always negative"):
        drawn_coefficients(with_covariance(names, huge), 0, 1)
