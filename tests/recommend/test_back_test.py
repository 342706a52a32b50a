"""V1 in a recommendation: the logged run simulated, and what follows for the claim."""

from dataclasses import replace

import pytest
from oracles.simulated_log import PROFILE, scaled, written

from agentctl.cluster import cluster_of
from agentctl.recommend import recommend


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return written(tmp_path_factory.mktemp("log"), n=150)


@pytest.fixture(scope="module")
def unplaced(tmp_path_factory):
    return written(tmp_path_factory.mktemp("unplaced"), n=150, engine=False)


def result(trace, profile=PROFILE, engines=(2,), **more):
    return recommend(
        trace, profile=profile, engines=engines, policies=("round-robin", "lmetric"), slos=("ttft p90 < 2s",),
        replicates=2, sensitivity=False, **more,
    )  # fmt: skip


def v1(found):
    return next(check for check in found.document["validity"] if check["id"] == "V1")


def test_a_simulator_that_reproduces_the_log_passes(log):
    found = result(log)
    assert v1(found)["status"] == "OK"
    assert "same as in the log" in v1(found)["finding"] and "placed as logged" in v1(found)["finding"]
    assert found.document["back_test"]["status"] == "OK"
    assert "V1" not in found.document["verdict"]["statement"].partition(". ")[0]  # V2: the log is short


def test_a_profile_of_a_slower_engine_makes_no_claim(log):
    found = result(log, scaled(1.4))
    assert v1(found)["status"] == "FAIL" and found.exit_code == 3
    assert found.document["verdict"]["status"] == "declined"
    assert "V1" in found.document["verdict"]["statement"]
    assert any(text.startswith("V1 failed: ") for text in found.document["warnings"])


def test_the_logs_own_number_of_engines_is_simulated_whatever_sizes_are_tried(log):
    assert v1(result(log, engines=(3, 4)))["status"] == "OK"


def test_without_placement_the_current_policy_is_simulated(unplaced):
    without = v1(result(unplaced))
    assert without["status"] == "WARN" and without["finding"].startswith("UNVALIDATED: ")
    assert "--current" in without["finding"]
    assert v1(result(unplaced, current="lmetric"))["status"] == "OK"
    assert "placed by round-robin" in v1(result(unplaced, current="round-robin"))["finding"]


def test_sizes_that_are_tried_do_not_say_how_many_engines_there_were(unplaced):
    assert "UNVALIDATED" in v1(result(unplaced, engines=(2, 3), current="lmetric"))["finding"]
    given = result(unplaced, engines=(2, 3), current="lmetric", cluster=cluster_of(PROFILE, 2))
    assert v1(given)["status"] == "OK"


def test_strict_makes_no_claim_without_a_back_test(unplaced):
    found = result(unplaced, strict=True)
    assert found.exit_code == 3 and "V1" in found.document["verdict"]["statement"]


def test_a_profile_that_reproduces_another_log_only_is_not_back_tested(log):
    only = replace(PROFILE, max_num_seqs=64, provenance={"predictive_only": True})
    cluster = cluster_of(PROFILE, 2)
    found = result(log, only, cluster=cluster)
    assert "predictive_only" in v1(found)["finding"] and v1(found)["status"] == "WARN"
