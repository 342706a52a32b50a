"""Columns of times: what is read at once is read as cell by cell."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.formats._cells import decimal, nanoseconds
from agentctl.formats._clock import Clock
from agentctl.formats._columns import Columns
from agentctl.formats._mapping import Field
from agentctl.formats.base import Reading, ReadOptions
from agentctl.ingest.quarantine import Quarantine

NOW = 1794474012.25
odd = st.sampled_from(
    [math.nan, 5.0, 999999999.9999999, 1e10, 1e12, "", None, "2026-11-12T09:00:12Z", 1794474012]
)


def read(batches):
    """(times, faults) of columns of cells that one clock reads one after the other."""
    quarantine, found = Quarantine("log"), []
    reading = Reading(None, quarantine, ReadOptions())
    clock = Clock(Field("arrival", "$.t", None), reading)
    for cells in batches:
        columns = Columns(reading, None, np.arange(len(cells)))
        found.append(clock.read(columns, cells, required=False))
        columns.put("arrival_ns", found[-1])
        columns.batch()
    return found, [(place.line, place.reason) for place in quarantine.places]


@given(st.lists(st.floats(1e9, 1e10, exclude_max=True) | odd, min_size=1, max_size=6))
def test_seconds_at_once_are_those_one_by_one(cells):
    at_once = read([[NOW], cells])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Clock, "_read_at_once", lambda *_: None)
        assert read([[NOW], cells]) == at_once


@given(st.floats(1e9, 1e10, exclude_max=True))
def test_a_float_is_the_decimal_that_it_is_written_as(seconds):
    (_, (time,)), faults = read([[NOW], [seconds]])
    assert (time, faults) == (nanoseconds(decimal(seconds), "s"), [])
