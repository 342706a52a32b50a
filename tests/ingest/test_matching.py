"""Rows of several layers matched by key: against dictionaries, and the order of attempts by hand."""

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from agentctl.ingest.matching import match

ROWS = st.lists(st.tuples(st.integers(-1, 2), st.integers(0, 2), st.integers(0, 3)), max_size=12)


def matched(rows, n_layers=3):
    """match of (key, layer, arrival) rows."""
    columns = np.array(rows, dtype=np.int64).reshape(-1, 3)
    return match(columns[:, 0], columns[:, 1], columns[:, 2], n_layers)


@given(ROWS)
def test_requests_are_those_that_dictionaries_find(rows):
    seen = defaultdict(list)
    for row, (key, layer, arrival) in enumerate(rows):
        seen[key if key >= 0 else ("alone", row), layer].append((arrival, row))
    requests = defaultdict(lambda: [-1, -1, -1])
    for (key, layer), found in seen.items():
        for from_end, (_, row) in enumerate(sorted(found, reverse=True)):
            requests[key, from_end][layer] = row
    got = matched(rows)
    assert sorted(map(tuple, got.rows.tolist())) == sorted(map(tuple, requests.values()))


@given(ROWS)
def test_every_row_is_in_one_request_and_owners_are_in_order(rows):
    got = matched(rows)
    used = got.rows[got.rows >= 0]
    assert sorted(used.tolist()) == list(range(len(rows)))
    assert np.all(np.diff(got.owner) > 0)


def test_attempts_are_matched_from_the_last_one_backwards():
    gateway = [(0, 0, 10)]
    router = [(0, 1, 11), (0, 1, 15), (0, 1, 20)]
    engine = [(0, 2, 16), (0, 2, 21)]
    got = matched([*gateway, *router, *engine])
    assert got.rows.tolist() == [[0, 3, 5], [-1, 1, -1], [-1, 2, 4]]
    assert got.attempt.tolist() == [2, 0, 1]


def test_rows_of_the_same_instant_keep_their_order():
    got = matched([(0, 0, 5), (0, 0, 5), (0, 1, 5), (0, 1, 5)])
    assert got.rows.tolist() == [[0, 2, -1], [1, 3, -1]]


def test_rows_without_a_key_stay_alone():
    got = matched([(-1, 0, 1), (-1, 1, 1)])
    assert got.rows.tolist() == [[0, -1, -1], [-1, 1, -1]]
    assert got.key.tolist() == [-1, -1] and got.attempt.tolist() == [0, 0]
