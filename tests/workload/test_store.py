"""What is stored is read back as it was, or not at all."""

import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from oracles.datasets import write_dataset

from agentctl.sim import content as content_module
from agentctl.sim.content import compile_content
from agentctl.workload import compile as compile_module
from agentctl.workload import compile_workload, resample, scale_load, store

KEY = {"kind": "test", "n": 1}
ARRAYS = {"a": np.arange(7), "b": np.array([[1, 2], [3, 4]], np.int32), "nothing": np.empty(0, np.float64)}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "agentctl" / "workloads"


def only_file(cache: Path) -> Path:
    (file,) = cache.iterdir()
    return file


def test_an_entry_comes_back_with_its_facts_and_arrays():
    store.save(KEY, {"name": "x", "none": None}, ARRAYS)
    entry = store.load(KEY)
    assert entry.facts == {"name": "x", "none": None}
    assert list(entry.arrays) == list(ARRAYS)
    for name, values in ARRAYS.items():
        np.testing.assert_array_equal(entry.arrays[name], values)
        assert entry.arrays[name].dtype == values.dtype


def test_what_is_written_to_an_array_stays_here():
    store.save(KEY, {}, ARRAYS)
    store.load(KEY).arrays["a"][0] = 99
    assert store.load(KEY).arrays["a"][0] == 0


def test_another_key_has_no_entry():
    store.save(KEY, {}, ARRAYS)
    assert store.load({**KEY, "n": 2}) is None


def test_a_file_under_the_name_of_another_key_is_not_taken_for_it(cache):
    store.save(KEY, {}, ARRAYS)
    file = only_file(cache)
    store.save({**KEY, "n": 2}, {}, {"a": np.zeros(7, np.int64)})
    (other,) = set(cache.iterdir()) - {file}
    other.replace(file)
    assert store.load(KEY) is None


@pytest.mark.parametrize("at", [0, 20, 100, 200, 300, -1])
def test_a_flipped_bit_makes_it_no_entry(cache, at):
    store.save(KEY, {}, ARRAYS)
    file = only_file(cache)
    damaged = bytearray(file.read_bytes())
    damaged[at] ^= 1
    file.write_bytes(damaged)
    assert store.load(KEY) is None
    store.save(KEY, {}, ARRAYS)
    assert store.load(KEY) is not None


@pytest.mark.parametrize("change", [lambda b: b"", lambda b: b[:100], lambda b: b[:-1], lambda b: b + b"\0"])
def test_a_cut_or_longer_file_is_no_entry(cache, change):
    store.save(KEY, {}, ARRAYS)
    file = only_file(cache)
    file.write_bytes(change(file.read_bytes()))
    assert store.load(KEY) is None


def test_files_and_folder_are_private(cache):
    store.save(KEY, {}, ARRAYS)
    assert cache.stat().st_mode & 0o777 == 0o700
    assert only_file(cache).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("which", ["folder", "file"])
def test_what_others_could_have_written_is_not_read(cache, which):
    store.save(KEY, {}, ARRAYS)
    (cache if which == "folder" else only_file(cache)).chmod(0o777)
    assert store.load(KEY) is None


def test_a_link_is_not_followed(cache, tmp_path):
    store.save(KEY, {}, ARRAYS)
    file = only_file(cache)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert store.load(KEY) is None


def test_a_cache_that_cannot_be_written_is_no_cache(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    store.save(KEY, {}, ARRAYS)
    assert store.load(KEY) is None


def test_a_full_disk_leaves_nothing(cache, monkeypatch):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store, "_write", full)
    store.save(KEY, {}, ARRAYS)
    assert list(cache.iterdir()) == []


def test_the_entries_used_longest_ago_go_when_there_are_too_many(cache, monkeypatch):
    keys = [{**KEY, "n": n} for n in range(3)]
    for age, key in enumerate(keys):
        before = set(cache.iterdir()) if cache.exists() else set()
        store.save(key, {}, ARRAYS)
        (new,) = set(cache.iterdir()) - before
        os.utime(new, (time.time() - 100 + age,) * 2)
    size = new.stat().st_size
    assert store.load(keys[0]) is not None  # now the one used last
    monkeypatch.setattr(store, "LIMIT", 3 * size)
    store.save({**KEY, "n": 3}, {}, ARRAYS)
    assert [store.load(key) is not None for key in keys] == [True, False, True]
    assert store.load({**KEY, "n": 3}) is not None


def test_an_entry_larger_than_all_that_is_allowed_is_not_kept(cache, monkeypatch):
    monkeypatch.setattr(store, "LIMIT", 10)
    store.save(KEY, {}, ARRAYS)
    assert list(cache.iterdir()) == []


def test_what_a_killed_run_left_goes_after_an_hour(cache):
    store.save(KEY, {}, ARRAYS)
    old, young = cache / "new-old.tmp", cache / "new-young.tmp"
    for file in (old, young):
        file.write_bytes(b"half")
    os.utime(old, (time.time() - 7200,) * 2)
    store.save(KEY, {}, ARRAYS)
    assert (old.exists(), young.exists()) == (False, True)


WRITER = """
import sys, numpy as np
from agentctl.workload import store
for n in range(100):
    store.save({"kind": "race"}, {}, {"a": np.full(5000, int(sys.argv[1]))})
    entry = store.load({"kind": "race"})
    assert entry is not None and set(entry.arrays["a"]) <= {1, 2}
    assert len(set(entry.arrays["a"])) == 1
"""


def test_two_processes_may_write_the_same_entry():
    writers = [subprocess.Popen([sys.executable, "-c", WRITER, str(n)]) for n in (1, 2)]
    assert [writer.wait() for writer in writers] == [0, 0]


# What is stored of a workload


@pytest.fixture
def trace(tmp_path, monkeypatch):
    monkeypatch.setattr(compile_module, "WORTH_STORING", 0)
    monkeypatch.setattr(content_module, "WORTH_STORING", 0)
    rows = [
        {"arrival_s": 3.0 * n, "e2e_s": 1.0, "session_id": f"sé{n % 2}", "output_tokens": 5,
         "blocks": list(range(100 * (n % 2), 100 * (n % 2) + n + 1))}
        for n in range(8)
    ]  # fmt: skip
    rows[3]["status"] = "error"
    return write_dataset(tmp_path / "t.trace", rows, block_tokens=4)


def same(a, b) -> bool:
    arrays = zip(a.requests, b.requests, strict=True)
    names = ("request_ids", "session_ids", "replay", "counts", "block_tokens", "trace_digest")
    return all(np.array_equal(x, y) for x, y in arrays) and all(getattr(a, n) == getattr(b, n) for n in names)


@pytest.mark.parametrize("replay", [None, "timestamps", "causal", "thinktime", "closed-loop"])
def test_a_workload_read_is_the_workload_compiled(trace, replay, monkeypatch):
    compiled = compile_workload(trace, replay)
    contents = compile_content(compiled, 2)
    monkeypatch.setattr(compile_module, "_compile", None)  # nothing is compiled again
    monkeypatch.setattr(content_module, "_compile", None)
    read = compile_workload(trace, replay)
    assert same(read, compiled)
    for mine, theirs in zip(compile_content(read, 2), contents, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_damaged_entry_is_compiled_again(trace, cache):
    compiled = compile_workload(trace)
    only_file(cache).write_bytes(b"agentctl/arrays/1 nonsense\n")
    assert same(compile_workload(trace), compiled)
    assert only_file(cache).stat().st_size > 1000


def test_other_code_compiles_again(trace, cache, monkeypatch):
    compile_workload(trace)
    monkeypatch.setattr(store, "code_of", lambda *files: "of another version")
    compile_workload(trace)
    assert len(list(cache.iterdir())) == 2


def test_the_content_of_other_requests_is_not_taken_from_the_trace(trace, cache):
    workload = compile_workload(trace)
    compile_content(workload, 2)
    stored = set(cache.iterdir())
    later = workload.requests._replace(tip=workload.requests.tip[::-1].copy())
    for other in (scale_load(workload, 2.0), resample(workload, 1), replace(workload, requests=later)):
        afresh = content_module._compile(other, 2, 2, 1)
        for mine, theirs in zip(compile_content(other, 2), afresh, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert set(cache.iterdir()) == stored


def test_the_tree_of_a_stored_workload_is_the_traces(trace):
    tree = compile_workload(trace).tree
    for name in ("parent", "depth", "hash", "first_row"):
        np.testing.assert_array_equal(getattr(tree, name), getattr(trace.tree, name))
