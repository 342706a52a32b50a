"""A handle shows compiled code what the tuple behind it shows."""

from typing import NamedTuple

import numpy as np
import pytest
from numba import config, njit
from numpy.typing import NDArray

from agentctl.sim.handle import handle_of

if config.DISABLE_JIT:
    pytest.skip("handles exist in compiled code only", allow_module_level=True)


class Pair(NamedTuple):
    counts: NDArray[np.int64]
    grid: NDArray[np.float64]


@njit
def _add(pair, by):
    pair.counts[0] += by
    pair.grid[1, 2] += pair.counts[0]
    return pair.counts.size


@njit
def by_handle(pair, by):
    handle = handle_of(pair)
    return _add(handle, by) + _add(handle, by)


def test_arrays_behind_a_handle_are_read_and_changed_in_place():
    pair = Pair(np.array([40, 0, 0]), np.zeros((2, 3)))
    assert by_handle(pair, 1) == 6
    assert pair.counts.tolist() == [42, 0, 0]
    assert pair.grid[1, 2] == 41 + 42


def test_two_tuples_have_a_handle_each():
    @njit
    def both(first, second):
        one, two = handle_of(first), handle_of(second)
        return _add(one, 1) + _add(two, 10)

    pairs = [Pair(np.zeros(n, np.int64), np.zeros((2, 3))) for n in (1, 2)]
    assert both(*pairs) == 3
    assert [int(pair.counts[0]) for pair in pairs] == [1, 10]


def test_a_field_that_the_tuple_lacks_is_an_error_of_the_compiler_that_names_it():
    @njit
    def wrong(pair):
        return handle_of(pair).sizes

    with pytest.raises(Exception, match="Unknown attribute 'sizes' of type Pair"):
        wrong(Pair(np.zeros(1, np.int64), np.zeros((2, 3))))
