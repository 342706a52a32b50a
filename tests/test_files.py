"""A result appears whole or not at all, whatever happens while it is written."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.errors import OutputError
from agentctl.files import atomic_file, atomic_folder, canonical_json, lock

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def write_file(path: Path, content: str, force: bool = False) -> None:
    with atomic_file(path, force=force) as temporary:
        temporary.write_text(content)


def write_folder(path: Path, content: str, force: bool = False) -> None:
    with atomic_folder(path, mark="part", force=force) as temporary:
        (temporary / "part").write_text(content)


WRITERS = [(write_file, lambda path: path), (write_folder, lambda path: path / "part")]


@pytest.fixture(params=WRITERS, ids=["file", "folder"])
def writer(request):
    return request.param


def only(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def test_a_finished_write_is_there_and_nothing_else_is(tmp_path, writer):
    write, content_of = writer
    write(tmp_path / "out", "new")
    assert content_of(tmp_path / "out").read_text() == "new"
    assert only(tmp_path) == ["out"]


def test_an_older_result_is_kept_unless_told_otherwise(tmp_path, writer):
    write, content_of = writer
    write(tmp_path / "out", "old")
    with pytest.raises(OutputError, match="already exists") as caught:
        write(tmp_path / "out", "new")
    assert caught.value.hint == "--force replaces it"
    assert content_of(tmp_path / "out").read_text() == "old"
    write(tmp_path / "out", "new", force=True)
    assert content_of(tmp_path / "out").read_text() == "new"
    assert only(tmp_path) == ["out"]


@pytest.mark.parametrize("context", [atomic_file, atomic_folder])
def test_a_failed_write_leaves_the_older_result_and_no_rubbish(tmp_path, context):
    out = tmp_path / "out"
    {atomic_file: write_file, atomic_folder: write_folder}[context](out, "old")
    before = out.stat().st_ino
    mark = {"mark": "part"} if context is atomic_folder else {}
    with pytest.raises(ZeroDivisionError), context(out, force=True, **mark):
        raise ZeroDivisionError
    assert out.stat().st_ino == before
    assert only(tmp_path) == ["out"]


def test_a_killed_write_leaves_the_older_result_and_does_not_stop_the_next_one(tmp_path, writer):
    write, content_of = writer
    write(tmp_path / "out", "old")
    code = f"""
        import os, signal
        from pathlib import Path
        from agentctl.files import atomic_{"file" if write is write_file else "folder"} as context
        with context(Path("out"), force=True{"" if write is write_file else ", mark='part'"}) as temporary:
            os.kill(os.getpid(), signal.SIGKILL)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert content_of(tmp_path / "out").read_text() == "old"
    write(tmp_path / "out", "new", force=True)
    assert content_of(tmp_path / "out").read_text() == "new"
    assert only(tmp_path) == ["out"], "what the killed run left is gone too"


@pytest.mark.parametrize("can", [True, False])
def test_an_older_folder_is_replaced_whether_or_not_names_can_be_exchanged(tmp_path, monkeypatch, can):
    """At every change that Python makes to the file system there is a folder of that name, if they can."""
    if not can:
        monkeypatch.setattr("agentctl.files._exchange", lambda *_: False)
    write_folder(tmp_path / "out", "old")
    seen = []
    rename, remove = Path.rename, shutil.rmtree
    monkeypatch.setattr(Path, "rename", lambda *a: (rename(*a), seen.append((tmp_path / "out").exists()))[0])
    monkeypatch.setattr(
        shutil, "rmtree", lambda *a, **k: (remove(*a, **k), seen.append((tmp_path / "out").exists()))
    )
    write_folder(tmp_path / "out", "new", force=True)
    assert all(seen) == can and seen
    assert (tmp_path / "out" / "part").read_text() == "new"
    assert only(tmp_path) == ["out"]


def test_a_result_that_a_killed_run_had_moved_aside_comes_back(tmp_path):
    write_folder(tmp_path / "out", "old")
    (tmp_path / "out").rename(tmp_path / ".out.4711.old")  # killed before the new one had the name
    with pytest.raises(OutputError, match="already exists"):
        write_folder(tmp_path / "out", "new")
    assert (tmp_path / "out" / "part").read_text() == "old"
    assert only(tmp_path) == ["out"]


def test_only_the_rubbish_of_this_output_is_removed(tmp_path):
    others = [".out.b.abcdefgh.tmp", ".out.notes", ".outer.abcdefgh.tmp", ".out.conf.old"]
    for name in others:
        (tmp_path / name).touch()
    write_file(tmp_path / "out", "new")
    assert only(tmp_path) == sorted([*others, "out"])


def test_a_folder_that_agentctl_did_not_make_is_never_removed(tmp_path):
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "day.jsonl").write_text("precious")
    with pytest.raises(OutputError, match="agentctl did not make it"):
        write_folder(tmp_path / "logs", "new", force=True)
    assert (tmp_path / "logs" / "day.jsonl").read_text() == "precious"


def test_an_empty_folder_may_be_replaced(tmp_path):
    (tmp_path / "out").mkdir()
    write_folder(tmp_path / "out", "new", force=True)
    assert only(tmp_path) == ["out"]


@pytest.mark.parametrize("force", [False, True])
def test_a_file_does_not_replace_a_folder_nor_a_folder_a_file(tmp_path, force):
    write_file(tmp_path / "file", "old")
    write_folder(tmp_path / "folder", "old")
    with pytest.raises(OutputError, match=r"file: is a file; expected the name of a folder"):
        write_folder(tmp_path / "file", "new", force)
    with pytest.raises(OutputError, match=r"folder: is a folder; expected the name of a file"):
        write_file(tmp_path / "folder", "new", force)
    assert only(tmp_path) == ["file", "folder"]


def test_a_link_to_an_older_folder_is_replaced_and_its_target_kept(tmp_path):
    write_folder(tmp_path / "target", "old")
    (tmp_path / "out").symlink_to("target")
    write_folder(tmp_path / "out", "new", force=True)
    assert only(tmp_path) == ["out", "target"]
    assert (tmp_path / "target" / "part").read_text() == "old"


@pytest.mark.parametrize(
    ("name", "fact"),
    [("-", "standard output"), ("/dev/null", "no regular file"), ("o\udcff", "not UTF-8")],
    ids=["stdout", "device", "bytes"],
)
def test_what_is_no_name_of_a_file_is_refused(tmp_path, monkeypatch, writer, name, fact):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OutputError, match=fact):
        writer[0](Path(name), "new", force=True)
    assert only(tmp_path) == []


def test_an_error_names_the_output_and_not_our_temporary_files(tmp_path):
    with pytest.raises(OutputError) as caught:
        write_file(Path("/proc/out"), "new")
    assert caught.value.place == "/proc/out"


def test_a_full_disk_is_an_error_with_the_path_and_leaves_the_older_result(tmp_path):
    """A limit on the size of files stands for the disk: the system refuses the write in the same way."""
    code = """
        import resource, signal
        from pathlib import Path
        from agentctl.errors import OutputError
        from agentctl.files import atomic_file
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            with atomic_file(Path("out"), force=True) as temporary:
                temporary.write_bytes(bytes(5000))
        except OutputError as error:
            print(error.exit_code, error.place)
    """
    write_file(tmp_path / "out", "old")
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.stdout == "1 out\n"
    assert (tmp_path / "out").read_text() == "old"
    assert only(tmp_path) == ["out"]


def test_a_second_writer_is_refused_and_told_who_is_first(tmp_path):
    out = tmp_path / "out"
    with lock(out), pytest.raises(OutputError, match=r"another run \(process \d+\)"):
        write_file(out, "new")
    write_file(out, "new")


def test_the_lock_of_a_process_that_died_is_free(tmp_path):
    (tmp_path / ".out.lock").write_text("999999\n")
    write_file(tmp_path / "out", "new")
    assert only(tmp_path) == ["out"]


def test_permissions_are_those_of_any_new_file(tmp_path, writer):
    write, _ = writer
    write(tmp_path / "out", "new")
    (tmp_path / "plain").mkdir() if (tmp_path / "out").is_dir() else (tmp_path / "plain").touch()
    assert (tmp_path / "out").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_output_without_a_name_is_refused():
    with pytest.raises(OutputError, match="no name"):
        write_file(Path("/"), "new")


@given(st.dictionaries(st.text(), JSON, max_size=4))
def test_the_same_document_gives_the_same_bytes(document):
    turned = dict(reversed(document.items()))
    assert canonical_json(document) == canonical_json(turned)
    assert canonical_json(document).endswith(b"\n")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(ValueError, match="JSON"):
        canonical_json({"value": value})


def test_no_file_stays_open_after_many_writes(tmp_path):
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(20):
        write_file(tmp_path / "out", str(number), force=True)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
