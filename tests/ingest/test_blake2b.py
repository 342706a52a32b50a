"""The kernel against hashlib, to the byte."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from oracles import chained

from agentctl.ingest.blake2b import chain, keyed_state

SALT = bytes(range(32))
PERSON = b"agentctl block\0\0"


@settings(max_examples=150)
@given(
    salt=st.binary(min_size=1, max_size=64),
    data=st.binary(max_size=700),
    first=st.integers(1, 300),
    step=st.integers(1, 300),
    parent=st.integers(0, 2**64 - 1),
)
def test_the_kernel_chains_as_hashlib_does(salt, data, first, step, parent):
    digests, sizes = chain(keyed_state(salt, PERSON), parent, np.frombuffer(data, np.uint8), first, step)
    assert digests.tolist() == chained.chain(salt, PERSON, parent, data, first, step)
    assert sizes.sum() == len(data) and (sizes > 0).all()


@pytest.mark.parametrize("size", [1, 63, 64, 112, 119, 120, 121, 127, 128, 129, 247, 248, 249, 1000])
def test_pieces_around_the_ends_of_compressions(size):
    data = bytes(k * 7 % 251 for k in range(size))
    digests, _ = chain(keyed_state(SALT, PERSON), 1, np.frombuffer(data, np.uint8), size, size)
    assert digests.tolist() == chained.chain(SALT, PERSON, 1, data, size, size)


def test_keys_and_persons_keep_chains_apart():
    data = np.frombuffer(b"x" * 64, np.uint8)
    states = [
        keyed_state(salt, person) for salt in (SALT, SALT[::-1]) for person in (PERSON, b"agentctl message")
    ]
    assert len({int(chain(state, 0, data, 64, 64)[0][0]) for state in states}) == 4
