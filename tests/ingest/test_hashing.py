"""The salt and the chains that need it."""

import os
import stat

import numpy as np
import pytest
from oracles import chained

from agentctl.errors import InputError, UsageError
from agentctl.ingest.hashing import BLOCK, HashOptions, read_salt, token_blocks


@pytest.fixture
def output(tmp_path):
    return tmp_path / "a.trace"


def test_a_salt_is_made_once_readable_by_its_owner_alone(tmp_path, output):
    path = tmp_path / "salt"
    before = os.umask(0)
    try:
        salt = read_salt(path, output)
    finally:
        os.umask(before)
    assert len(salt) == 32 and path.read_bytes() == salt
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_salt(path, output) == salt


def test_two_salts_differ(tmp_path, output):
    assert read_salt(tmp_path / "a", output) != read_salt(tmp_path / "b", output)
    assert HashOptions().salt != HashOptions().salt


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_salt_that_others_can_reach_is_refused(tmp_path, output, mode):
    path = tmp_path / "salt"
    read_salt(path, output)
    path.chmod(mode)
    with pytest.raises(InputError, match="read by others"):
        read_salt(path, output)


@pytest.mark.parametrize("size", [0, 31, 33, 5000])
def test_a_salt_of_another_size_is_refused(tmp_path, output, size):
    path = tmp_path / "salt"
    path.write_bytes(b"x" * size)
    path.chmod(0o600)
    with pytest.raises(InputError, match="exactly 32 bytes"):
        read_salt(path, output)


def test_a_salt_inside_the_dataset_is_refused_even_by_a_detour(tmp_path, output):
    (tmp_path / "link").symlink_to(output)
    for path in (output / "salt", tmp_path / "x" / ".." / "a.trace" / "salt", tmp_path / "link" / "salt"):
        with pytest.raises(UsageError, match="inside the dataset"):
            read_salt(path, output)
    assert not output.exists()


def test_a_salt_that_cannot_be_made_is_an_error_of_ours(tmp_path, output):
    with pytest.raises(InputError, match="cannot be used as a salt"):
        read_salt(tmp_path / "no such folder" / "salt", output)


def test_the_id_of_a_salt_tells_salts_apart_and_is_not_the_salt():
    one = HashOptions(salt=b"a" * 32, is_ephemeral=False)
    other = HashOptions(salt=b"b" * 32, is_ephemeral=False)
    assert one.salt_id != other.salt_id and len(one.salt_id) == 16
    assert HashOptions().salt_id == "ephemeral"
    assert "aaaa" not in repr(one) and b"a".hex() * 8 not in str(one.describe())


def test_blocks_of_token_ids_are_full_chained_and_salted():
    lists = [list(range(40)), list(range(32)), [*range(31), 99], None, []]
    ids = token_blocks(lists, 16, b"s" * 32)
    assert np.diff(ids.starts).tolist() == [2, 2, 2, 0, 0]
    assert ids.unknown.tolist() == [False, False, False, True, False]
    first, second, third = ids.values[0:2], ids.values[2:4], ids.values[4:6]
    assert (first == second).all() and first[0] == third[0] and first[1] != third[1]
    text = np.arange(32, dtype="<u4").tobytes()
    assert first.tolist() == chained.chain(b"s" * 32, BLOCK, 0, text, 64, 64)
    assert not set(token_blocks(lists, 16, b"t" * 32).values.tolist()) & set(ids.values.tolist())
