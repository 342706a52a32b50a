"""Runs that are kept: the same from a file as from the simulator, and only under the same circumstances."""

import dataclasses

import pytest

from agentctl.cluster import cluster_of
from agentctl.errors import OutputError
from agentctl.policies.base import load_policy
from agentctl.profile import load_profile
from agentctl.recommend.runs import RUNS_FILE, Runs, candidate_digest, kept_runs, key_of
from agentctl.recommend.scenario import Scenario
from agentctl.recommend.search import Candidate, Measured

CLUSTER = cluster_of(load_profile("h100-qwen3-8b"), 4)
ONE = Measured(
    *(0.1 + n / 7 if n % 3 else None for n in range(len(Measured._fields) - 2)), requests=9, rejected=1
)


def fill(runs, n):
    for k in range(n):
        runs.add(f"key{k}", "lmetric on 4", Scenario(replicate=k), 1.0, ONE)


def test_a_run_is_the_same_from_the_file(tmp_path):
    with pytest.raises(KeyboardInterrupt), kept_runs(tmp_path / "run") as runs:
        fill(runs, 3)
        raise KeyboardInterrupt
    with kept_runs(tmp_path / "run") as again:
        assert again.resumed == 3
        assert again.get("key1") == ONE
        assert [type(value) for value in again.get("key1")] == [type(value) for value in ONE]
        assert again.get("key9") is None


def test_a_line_that_a_kill_cut_in_two_is_left_out_and_the_rest_stays(tmp_path):
    with pytest.raises(KeyboardInterrupt), kept_runs(tmp_path / "run") as runs:
        fill(runs, 3)
        raise KeyboardInterrupt
    beside = tmp_path / ".run.runs"
    beside.write_bytes(beside.read_bytes()[:-5] + b"\nno json\n[]\n")
    with kept_runs(tmp_path / "run") as again:
        assert again.resumed == 2
        assert beside.read_bytes().count(b"\n") == 2


def test_a_comparison_that_ended_leaves_its_runs_in_the_folder_alone(tmp_path):
    with kept_runs(tmp_path / "run") as runs:
        fill(runs, 2)
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / RUNS_FILE).write_bytes(runs.content())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]
    with kept_runs(tmp_path / "run") as again:  # with --force
        assert again.resumed == 2
        fill(again, 1)
        assert again.content().count(b"\n") == 1  # what nobody asked for any more goes


def test_two_comparisons_do_not_write_into_the_same_file(tmp_path):
    with (
        kept_runs(tmp_path / "run"),
        pytest.raises(OutputError, match="another run"),
        kept_runs(tmp_path / "run"),
    ):
        pass


def test_a_candidate_is_known_by_all_that_changes_its_runs_and_by_nothing_else():
    def digest(name="smetric", params=None, cluster=CLUSTER, settings=()):
        return candidate_digest(Candidate(name, load_policy("smetric", params), cluster, settings))

    pool = CLUSTER.pools[0]

    def other(**changes):
        return dataclasses.replace(CLUSTER, pools=(dataclasses.replace(pool, **changes),))

    assert digest() == digest(name="smetric:slack=1", settings=(("max_num_seqs", 256),))
    assert digest() == digest(cluster=other(profile=dataclasses.replace(pool.profile, name="renamed")))
    different = [
        digest(params={"slack": 2.0}),
        digest(cluster=other(max_num_seqs=64)),
        digest(cluster=other(engines=5)),
        digest(cluster=other(profile=dataclasses.replace(pool.profile, kv_bytes_per_token=1))),  # of tiers
        digest(cluster=dataclasses.replace(CLUSTER, router=dataclasses.replace(CLUSTER.router, gateways=2))),
    ]
    assert len({digest(), *different}) == 6


def test_a_key_tells_scenarios_and_loads_apart():
    keys = {
        key_of("study", "candidate", Scenario(), 0),
        key_of("study", "candidate", Scenario(), 1),
        key_of("study", "candidate", Scenario(replicate=1), 0),
        key_of("study", "candidate", Scenario(draw=1), 0),
        key_of("other", "candidate", Scenario(), 0),
        key_of("study", "other", Scenario(), 0),
    }
    assert len(keys) == 6


def test_without_a_folder_nothing_is_kept():
    with kept_runs(None) as runs:
        fill(runs, 2)
    assert isinstance(runs, Runs) and runs.resumed == 0
