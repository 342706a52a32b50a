"""Work side by side: same results, same errors, nothing left behind."""

import multiprocessing
import time

import pytest

from agentctl.errors import ConfigError
from agentctl.recommend.parallel import in_order, n_workers


@pytest.mark.parametrize("workers", [1, 2, 9])
def test_results_come_in_the_order_of_the_items(workers):
    def slow_for_small(n):
        time.sleep(0.02 * (n == 0))
        return n * n

    assert list(in_order(slow_for_small, range(5), workers)) == [0, 1, 4, 9, 16]


def test_nothing_to_do_is_nothing_done():
    assert list(in_order(str, [], 4)) == []


def test_an_error_of_a_worker_is_the_error_of_the_call_and_ends_the_others():
    def fail(n):
        if n == 0:
            raise ConfigError("is wrong", place="c.toml")
        time.sleep(60)

    began = time.monotonic()
    with pytest.raises(ConfigError, match=r"c\.toml: is wrong"):
        list(in_order(fail, range(2), 2))
    assert time.monotonic() - began < 30
    assert not multiprocessing.active_children()


def test_at_least_one_core_works():
    assert n_workers() >= 1
