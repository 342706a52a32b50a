"""Different numbers are those that np.unique finds."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from agentctl.distinct import distinct


@given(
    arrays(st.sampled_from([np.int64, np.int32, np.uint32]), st.integers(0, 40), elements=st.integers(0, 9))
)
def test_distinct_numbers_are_what_unique_finds_and_keep_their_type(keys):
    found = distinct(keys)
    np.testing.assert_array_equal(found, np.unique(keys))
    assert found.dtype == keys.dtype
