"""The replay on the simulator's kernels against the judge's, which goes batch by batch and block by block."""

import contextlib
import io
import math
import re
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from oracles.random_clusters import cases, cluster_of
from oracles.random_snapshots import snapshots
from oracles.reference_simulator import BatchCoefficients, Limits
from oracles.served import serve
from oracles.snapshots import first_token

from agentctl.errors import InputError, UsageError
from agentctl.estimators.sfs import Probe, Sfs, estimate_ttft
from agentctl.estimators.sfs_snapshot import SeenRequest, Snapshot


@settings(max_examples=400)
@given(snapshots())
def test_the_replay_equals_the_judge_to_the_bit_where_arithmetic_is_exact(case):
    snapshot, limits, joining = case
    now, probe = joining[-1]
    expected = first_token(snapshot, limits, joining)
    assert estimate_ttft(snapshot, probe, now, before=joining[:-1]) == expected - now


@settings(max_examples=80)
@given(cases())
def test_who_comes_last_gets_its_first_token_when_the_replay_says(case):
    """On an engine that was looked at while it ran, without a prefix cache: nothing is left to assume."""
    limits = replace(case.limits[0], prefix_caching=False)
    run = serve(case.requests, limits, None, 0, noise=0.0, stalls=0.0, concurrency=case.concurrency)
    (snapshot, probe), last = run.seen[-1], run.results[run.order[-1]]
    assume(last.status == "done")  # a predicted output is cut to what the engine can hold, a true one refused
    assert estimate_ttft(snapshot, probe) == last.first_token - last.arrival


# --- by hand: batches take 1 s, blocks hold 16 tokens

LIMITS = Limits(101, max_num_batched_tokens=100, batch_time=BatchCoefficients(b0=1.0))
POOL = cluster_of([LIMITS]).pools[0]
DECODING = SeenRequest(31, 50, "d", emitted_tokens=2, computed_tokens=32)
SHORT = Probe(20, 5)


def pool_with(**limits):
    return cluster_of([replace(LIMITS, **limits)]).pools[0]


def test_an_idle_engine_takes_one_batch_for_a_short_prompt_and_three_for_a_long_one():
    idle = Snapshot(POOL, 10.0, 100)
    assert estimate_ttft(idle, SHORT) == 1.0
    assert estimate_ttft(idle, Probe(250, 5)) == 3.0
    assert estimate_ttft(idle, Probe(250, 5, hit_tokens=160)) == 1.0


def test_the_batch_in_flight_is_waited_for_and_one_that_is_overdue_ends_now():
    flying = replace(DECODING, in_flight_tokens=1)
    for started, rest in ((9.75, 0.75), (9.0, 0.0), (2.0, 0.0)):
        busy = Snapshot(POOL, 10.0, 90, (flying,), batch_started_s=started)
        assert estimate_ttft(busy, SHORT) == rest + 1.0


def test_a_prompt_waits_for_those_before_it_in_the_queue():
    """100 tokens a batch: 99 of the first waiting request, its last 51 and 48 of the other's, and so on."""
    busy = Snapshot(POOL, 10.0, 90, (DECODING,), (SeenRequest(150, 5), SeenRequest(150, 5)))
    assert estimate_ttft(busy, SHORT) == 4.0


def test_a_full_pool_is_waited_for_until_its_holder_ends():
    """The holder emits 48 more tokens, one a second; it takes one of the three free blocks for the next."""
    tight = Snapshot(pool_with(kv_blocks=7), 10.0, 3, (DECODING,))
    assert estimate_ttft(tight, Probe(60, 5)) == 49.0
    assert estimate_ttft(tight, Probe(32, 5)) == 1.0


def test_a_prediction_that_was_outlived_is_doubled_until_it_is_not():
    """Predicted 1, emitted 2: four in all, so that two more are to come."""
    outlived = replace(DECODING, output_tokens=1)
    assert estimate_ttft(Snapshot(pool_with(kv_blocks=7), 10.0, 3, (outlived,)), Probe(60, 5)) == 3.0


def test_what_the_engine_can_never_serve_never_has_a_first_token():
    assert estimate_ttft(Snapshot(POOL, 10.0, 100), Probe(2000, 5)) == math.inf
    held_by_others = Snapshot(POOL, 10.0, 1)
    assert estimate_ttft(held_by_others, Probe(60, 5)) == math.inf


def test_an_old_snapshot_is_played_up_to_now():
    """Five batches have run meanwhile; the sixth is in flight for half a second."""
    busy = Snapshot(POOL, 10.0, 90, (DECODING,))
    assert estimate_ttft(busy, SHORT, now=15.5) == 1.5
    ends = replace(DECODING, output_tokens=4)
    assert estimate_ttft(Snapshot(POOL, 10.0, 90, (ends,)), SHORT, now=15.5) == 1.0


def test_the_way_to_the_queue_counts():
    assert estimate_ttft(Snapshot(POOL, 10.0, 100), SHORT, ingress_s=0.25) == 1.25
    busy = Snapshot(POOL, 10.0, 90, (DECODING,))
    assert estimate_ttft(busy, SHORT, ingress_s=0.25) == 2.0  # it misses the batch that begins now


def test_requests_that_were_sent_count_until_a_snapshot_has_them():
    engine, long = Sfs(), Probe(400, 5)
    engine.observe(Snapshot(POOL, 10.0, 100))
    engine.sent("x", long, 10.0)
    engine.sent("y", long, 10.0)
    assert engine.pending == ("x", "y")
    assert engine.ttft(SHORT, 10.0) == 9.0
    engine.ended("y")
    assert engine.ttft(SHORT, 10.0) == 5.0
    engine.observe(Snapshot(POOL, 10.25, 100, waiting=(SeenRequest(400, 5, "x"),)))
    assert engine.pending == () and engine.ttft(SHORT, 10.25) == 5.0


def test_a_burst_is_spread_by_the_ledger_and_herds_without_it():
    """Six requests at one instant on two equal engines, each to the one that answers first."""

    def sent_to_first(with_ledger):
        engines = [Sfs(), Sfs()]
        for engine in engines:
            engine.observe(Snapshot(POOL, 10.0, 100))
        chosen = []
        for r in range(6):
            times = [engine.ttft(Probe(200, 5), 10.0) for engine in engines]
            chosen.append(times.index(min(times)))
            if with_ledger:
                engines[chosen[-1]].sent(str(r), Probe(200, 5), 10.0)
        return chosen

    assert sent_to_first(with_ledger=False) == [0] * 6
    assert sorted(sent_to_first(with_ledger=True)) == [0, 0, 0, 1, 1, 1]


def test_a_snapshot_that_comes_late_does_not_replace_a_newer_one():
    engine = Sfs()
    engine.observe(Snapshot(POOL, 11.0, 100))
    engine.observe(Snapshot(POOL, 10.0, 90, (DECODING,), (SeenRequest(150, 5),)))
    assert engine.ttft(SHORT, 11.0) == 1.0


def test_a_snapshot_is_too_old_after_a_second_unless_the_engine_had_nothing_to_do():
    engine = Sfs()
    with pytest.raises(InputError, match="no snapshot"):
        engine.ttft(SHORT, 10.0)
    engine.observe(Snapshot(POOL, 10.0, 100))
    assert engine.ttft(SHORT, 100.0) == 1.0
    engine.observe(Snapshot(POOL, 110.0, 90, (DECODING,)))
    assert engine.ttft(SHORT, 111.0) == 1.0
    with pytest.raises(InputError, match=r"1.500 s old; expected at most 1 s"):
        engine.ttft(SHORT, 111.5)


def test_a_probe_has_tokens_and_hits_no_more_than_its_prompt():
    for wrong in ((0, 5), (5, 0), (5, 5, 6), (5, 5, -1)):
        with pytest.raises(UsageError):
            Probe(*wrong)


def test_threads_do_not_disturb_each_other():
    busy = Snapshot(POOL, 10.0, 90, (DECODING,), tuple(SeenRequest(150, 5) for _ in range(30)))
    probes = [Probe(20 + 100 * k, 5) for k in range(4)]
    alone = [estimate_ttft(busy, probe) for probe in probes]
    found: dict[int, set[float]] = {}

    def ask(k):
        found[k] = {estimate_ttft(busy, probes[k]) for _ in range(300)}

    threads = [threading.Thread(target=ask, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {k: {alone[k]} for k in range(4)}


def test_the_example_of_the_page_prints_what_it_shows():
    page = (Path(__file__).parents[2] / "docs" / "ttft.md").read_text()
    (example, shown) = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL).groups()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(example, "first_token.py", "exec"), {})
    assert printed.getvalue() == shown
