"""Runs side by side, wherever: same results, same errors, nothing left behind."""

import multiprocessing
import os
import signal
import time

import pytest

from agentctl.engines import Serial, engine_of, in_order
from agentctl.engines.forked import Forked, n_cores
from agentctl.errors import AgentctlError, ConfigError, UsageError


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_results_come_in_the_order_of_the_items(workers):
    def slow_for_small(n):
        time.sleep(0.02 * (n == 0))
        return n * n

    assert list(in_order(slow_for_small, range(5), Forked(workers))) == [0, 1, 4, 9, 16]


@pytest.mark.parametrize("engine", [Serial(), Forked(2)])
def test_every_item_comes_once_with_its_place(engine):
    assert sorted(engine.map(str, [7, 8, 9])) == [(0, "7"), (1, "8"), (2, "9")]


def test_nothing_to_do_is_nothing_done():
    assert list(in_order(str, [], Forked(4))) == []


def test_an_error_of_a_worker_is_the_error_of_the_call_and_ends_the_others():
    def fail(n):
        if n == 0:
            raise ConfigError("is wrong", place="c.toml")
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"c\.toml: is wrong"):
        list(in_order(fail, range(2), Forked(2)))
    assert time.monotonic() - began < 30
    assert not multiprocessing.active_children()


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost(tmp_path):
    def once_killed(n):
        if n == 3 and not (tmp_path / "killed").exists():
            (tmp_path / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return -n

    assert list(in_order(once_killed, range(8), Forked(2))) == [-n for n in range(8)]
    assert (tmp_path / "killed").exists() and not multiprocessing.active_children()


def test_an_item_that_kills_every_worker_ends_in_an_error():
    def always(n):
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(AgentctlError, match="a worker process was killed 3 times"):
        list(in_order(always, range(2), Forked(2)))


def test_at_least_one_core_works():
    assert n_cores() >= 1 and Forked().workers == n_cores()


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("threads", None, None), "processes or serial or ray"),
        (("processes", None, "host:1"), "Ray cluster"),
        (("serial", 2, None), "cannot be chosen"),
        (("ray", 2, "host:1"), "cannot be chosen"),
    ],
)
def test_options_that_do_not_go_together(asked, words):
    with pytest.raises(UsageError, match=words):
        engine_of(*asked)


def test_a_node_with_another_version_is_refused():
    pytest.importorskip("ray", reason='ray is not installed: pip install "agentctl[ray]"')
    from agentctl.engines.ray_core import _run

    with pytest.raises(AgentctlError, match=r"has agentctl .*; expected 0\.0\.1"):
        _run("0.0.1", [], None)
