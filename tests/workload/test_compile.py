"""Datasets made by hand, and what the simulator is told to replay."""

import numpy as np
import pytest
from oracles.datasets import write_dataset

from agentctl.errors import InputError, UsageError
from agentctl.workload import AFTER_END, AFTER_START, AT_ARRIVAL, compile_workload


def row(arrival, e2e=1.0, session="s", **more):
    return {
        "arrival_s": arrival, "e2e_s": e2e, "session_id": session, "prompt_tokens": 10, "output_tokens": 5,
        **more,
    }  # fmt: skip


def workload(tmp_path, rows, replay=None, **keys):
    return compile_workload(write_dataset(tmp_path / "t.trace", rows, **keys), replay)


def released(w):
    """(release, gap, deps) of every request."""
    q = w.requests
    deps = [q.deps[q.deps_start[r] : q.deps_start[r + 1]].tolist() for r in range(w.n_requests)]
    return list(zip(q.release.tolist(), q.gap.tolist(), deps, strict=True))


def test_a_turn_follows_the_end_of_the_one_before_after_the_logged_gap(tmp_path):
    w = workload(tmp_path, [row(0.0), row(3.0), row(7.5)])
    assert w.replay == "thinktime"
    assert released(w) == [(AT_ARRIVAL, 0, []), (AFTER_END, 2.0, [0]), (AFTER_END, 3.5, [1])]


def test_timestamps_are_replayed_where_no_gap_is_known(tmp_path):
    w = workload(tmp_path, [row(0.0, e2e=None, session="a"), row(3.0, e2e=None, session="b")])
    assert w.replay == "timestamps"
    assert released(w) == [(AT_ARRIVAL, 0, [])] * 2


def test_replay_timestamps_waits_for_nobody(tmp_path):
    assert released(workload(tmp_path, [row(0.0), row(3.0)], "timestamps")) == [(AT_ARRIVAL, 0, [])] * 2


def test_replay_causal_is_as_logged_but_not_before_the_end_of_the_turn_before(tmp_path):
    w = workload(tmp_path, [row(0.0), row(3.0)], "causal")
    assert released(w)[1] == (AT_ARRIVAL, 0, [0])
    assert w.requests.arrival[1] == 3.0


def test_an_overlapping_request_is_released_by_the_start_of_the_other(tmp_path):
    rows = [
        row(0.0, e2e=9.0),
        row(3.0, after_request_id="r0", gap_s=3.0, gap_kind="overlap"),
    ]
    assert released(workload(tmp_path, rows))[1] == (AFTER_START, 3.0, [0])


def test_the_main_line_waits_for_the_sub_agents_that_had_ended(tmp_path):
    rows = [
        row(0.0, e2e=1.0),
        row(1.5, e2e=2.0, agent_path="a"),  # ends at 3.5
        row(1.6, e2e=5.0, agent_path="b"),  # ends at 6.6, last of all
        row(1.7, e2e=50.0, agent_path="c"),  # still running when the main line goes on
        row(8.0),
        row(20.0),
    ]
    w = workload(tmp_path, rows)
    assert released(w)[4] == (AFTER_END, pytest.approx(1.4), [0, 1, 2])
    assert released(w)[5] == (AFTER_END, 11.0, [4])


def test_a_turn_without_any_known_end_before_it_falls_back_to_causal(tmp_path):
    w = workload(tmp_path, [row(0.0, e2e=None), row(3.0), row(9.0)])
    assert released(w) == [(AT_ARRIVAL, 0, []), (AT_ARRIVAL, 0, [0]), (AFTER_END, 5.0, [1])]
    assert w.counts == {"causal_fallback": 1}


def test_errors_are_left_out_and_bridged_by_the_logged_time(tmp_path):
    rows = [row(0.0), row(2.0, e2e=1.0, status="error", output_tokens=None), row(4.0), row(4.5, session="x")]
    w = workload(tmp_path, rows)
    assert w.request_ids == ["r0", "r2", "r3"]
    assert released(w)[1] == (AFTER_END, 3.0, [0])
    assert w.requests.parent.tolist() == [-1, 0, -1]
    assert w.counts == {"skipped_error": 1}


def test_aborted_requests_run_with_the_output_they_got_and_none_as_one(tmp_path):
    w = workload(tmp_path, [row(0.0, status="aborted", output_tokens=0), row(1.0, status="proxy_cache")])
    assert w.requests.output_tokens.tolist() == [1]
    assert w.counts == {"cut_short": 1, "output_0_as_1": 1, "skipped_proxy_cache": 1}


def test_missing_token_counts_name_the_flag_that_fills_them(tmp_path):
    with pytest.raises(InputError, match="1 of 2 requests have no output_tokens") as error:
        workload(tmp_path, [row(0.0), row(1.0, output_tokens=None)])
    assert "--map output_tokens=FIELD" in error.value.hint


def test_a_log_without_a_request_to_simulate_is_an_error(tmp_path):
    with pytest.raises(InputError, match="no request can be simulated"):
        workload(tmp_path, [row(0.0, status="error")])


def test_an_unknown_replay_is_refused(tmp_path):
    with pytest.raises(UsageError, match="replay is 'live'"):
        workload(tmp_path, [row(0.0)], "live")


def test_the_first_child_of_a_request_names_its_output(tmp_path):
    rows = [
        row(0.0, blocks=[1]),
        row(2.0, blocks=[1, 2], parent_request_id="r0"),
        row(4.0, blocks=[1, 3], parent_request_id="r0"),
    ]
    w = workload(tmp_path, rows, block_tokens=10)
    assert w.requests.confirmed_child.tolist() == [1, -1, -1]
    assert w.tree.depth[w.requests.tip].tolist() == [1, 2, 2]
    assert w.block_tokens == 10


def test_sessions_are_numbered_in_order_of_appearance(tmp_path):
    w = workload(tmp_path, [row(0.0, session="z"), row(1.0, session="a"), row(2.0, session="z")])
    assert w.session_ids == ["z", "a"]
    np.testing.assert_array_equal(w.requests.session, [0, 1, 0])
    np.testing.assert_array_equal(w.session_starts(), [0.0, 1.0])
