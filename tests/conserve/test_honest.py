"""The paper's conversations in the simulator of clusters: the same sessions, every wait in the latency."""

import numpy as np
import pytest

from agentctl.conserve.conversations import Tokens, draw, published
from agentctl.conserve.costs import A40, transfer_s
from agentctl.conserve.honest import (
    KV_BYTES,
    Told,
    honest,
    honest_systems,
    paper_cluster,
    run_once,
    told,
    workload_of,
)
from agentctl.conserve.study import study
from agentctl.isolated import isolated
from agentctl.pool_power import power_of

RATE = 2.0
SYSTEMS = {system.name: system for system in honest_systems((0.0, 0.1))}


@pytest.fixture(scope="module")
def tokens():
    return published()


@pytest.fixture(scope="module")
def rows(tokens):
    found = honest(tokens, (1.0, RATE), (0.0, 0.1), 2)
    return {(row.system.name, row.rate): row for row in found}


@pytest.fixture(scope="module")
def paper(tokens):
    return study(tokens, (RATE,), (0.1,), 2)


def test_the_workload_is_the_draw_of_paper_mode(tokens):
    sessions, workload = draw(tokens, RATE, 3), workload_of(tokens, RATE, 3)
    requests, tree = workload.requests, workload.tree
    np.testing.assert_array_equal(requests.arrival[requests.turn == 0], sessions.at)
    np.testing.assert_array_equal(requests.output_tokens.reshape(256, 5), sessions.output)
    grown = np.diff(requests.prompt_tokens.reshape(256, 5)) - sessions.output[:, :-1]
    np.testing.assert_array_equal(grown, sessions.fresh[:, 1:])
    np.testing.assert_array_equal(tree.depth[requests.tip], requests.prompt_tokens // 16)
    assert (tree.parent[1:] < np.arange(1, tree.parent.size)).all()
    # chains of one session are beginnings of each other, and no two sessions share a block
    for session in (0, 100, 255):
        tips = requests.tip[requests.session == session].astype(np.int64)
        assert (np.diff(tips) >= 0).all()
        assert tips[-1] - tips[0] == tree.depth[tips[-1]] - tree.depth[tips[0]]
    assert (tree.first_row[requests.tip] <= np.arange(256 * 5)).all()
    assert tree.depth[requests.tip.reshape(256, 5)[:, -1]].sum() == tree.parent.size - 1


def test_a_session_alone_takes_what_the_batch_times_say():
    """Two prompts of 1,600 and 1,600 + 20 + 80 tokens; the second finds 100 blocks and what of the output
    fills another: 1,616 of 1,619 tokens."""
    one = Tokens("one", np.array([[1600, 80]]), np.array([[20, 5]]), {})
    workload, cluster = workload_of(one.with_tools(3.0), 1.0, 0), paper_cluster(4)
    alone = isolated(workload, cluster)
    first = A40.b0 + 1600 * A40.b_prefill
    tail = 1700 - 1616
    ttfet = first + 19 * A40.h0 + 3.0 + max(A40.b0 + tail * A40.b_prefill, A40.h0)
    assert alone.ttfet_s[0] == pytest.approx(ttfet, rel=1e-12)
    assert alone.tbt_last_turn_s[0] == pytest.approx(A40.h0, rel=1e-12)


def test_a_transfer_takes_what_the_authors_measured(tokens):
    cluster = paper_cluster(3)
    assert power_of(cluster.pools[0]) is not None and not isinstance(power_of(cluster.pools[0]), str)
    for size in (2000, 15_290, 40_000):
        line = cluster.network.latency_s + size * KV_BYTES / cluster.network.bytes_per_s
        assert line == pytest.approx(transfer_s(size), rel=1e-9)


def test_no_wrong_turns_are_conserve_per_turn_to_the_bit(rows):
    for rate in (1.0, RATE):
        zero, per_turn = rows["errors-0", rate], rows["conserve-per-turn", rate]
        np.testing.assert_array_equal(zero.values, per_turn.values)


def test_kv_moves_once_a_session_and_once_a_turn_in_full_disaggregation(rows):
    assert rows["conserve", RATE].mean("moves_per_session") == 1.0
    assert rows["collocated", RATE].mean("moves_per_session") == 0.0
    assert rows["disaggregated", RATE].mean("moves_per_session") == pytest.approx(5.0, abs=0.02)
    assert rows["errors-0.1", RATE].mean("moves_per_session") == pytest.approx(1.4, abs=0.1)


def test_by_the_papers_clock_both_programs_say_the_same_of_conserve_and_order_the_systems_alike(rows, paper):
    own = {name: rows[name, RATE].mean("own_clock_ttfet_x_p95") for name in SYSTEMS}
    for name in ("conserve", "conserve-per-turn", "conserve-quantile"):
        assert own[name] == pytest.approx(paper.row(name, RATE).mean("ttfet_x_p95"), rel=0.05)
    assert own["conserve"] < own["collocated"] < own["errors-0.1"] < own["disaggregated"] / 3


def test_counted_from_sending_collocated_engines_come_first_at_every_rate(rows, paper):
    for rate in (1.0, RATE):
        order = [
            rows[name, rate].by_seed("ttfet_x_p95")
            for name in ("collocated", "conserve", "errors-0.1", "disaggregated")
        ]
        assert (np.diff(order, axis=0) > 0).all()
    counted = paper.row("conserve", RATE).mean("counted_ttfet_x_p95")
    assert rows["conserve", RATE].mean("ttfet_x_p95") == pytest.approx(counted, rel=0.05)


def test_a_wait_at_the_router_is_in_the_latency(tokens):
    workload = workload_of(tokens, RATE, 0)
    outcome = run_once(workload, SYSTEMS["conserve"], 0)
    alone = isolated(workload, paper_cluster(3))
    found = told(outcome, alone)
    assert found.waited_p95_s > 30.0
    assert found.ttfet_x_p95 > 3 * found.own_clock_ttfet_x_p95
    assert not any(np.isnan(found))
    assert len(found) == len(Told._fields)


def test_tools_keep_kv_and_make_room_scarce(tokens):
    with_tools = honest(tokens.with_tools(5.0), (1.0,), (), 1)
    without = honest(tokens, (1.0,), (), 1)
    waited = [{row.system.name: row.mean("waited_p95_s") for row in found} for found in (without, with_tools)]
    assert waited[1]["conserve"] > 2 * waited[0]["conserve"]
