"""Fault 20: SIGKILL of every command that writes. The older output is there, or the new one; never a part."""

from __future__ import annotations

import random
import shutil
import time
from pathlib import Path

import pytest
from oracles.killed import Killer
from oracles.writing import COMMANDS, contents, names

QUICK = ("calibrate", "report", "synth")  # killed at every moment; they write as the others do


def moments(n_touches: int, name: str) -> list[int]:
    """Three of the last ones, where files get their names, and two others."""
    if name in QUICK:
        return list(range(1, n_touches + 1))
    dice, first = random.Random(name), max(n_touches - 8, 2)
    late, early = range(first, n_touches + 1), range(1, first)
    return sorted([*dice.sample(late, 3), *dice.sample(early, min(2, len(early)))])


def put_back(kept: Path, output: Path) -> None:
    """The older output, as it was."""
    if kept.is_file():
        shutil.copy(kept, output)
    else:
        shutil.rmtree(output, ignore_errors=True)
        shutil.copytree(kept, output)


@pytest.mark.parametrize("name", COMMANDS)
def test_20_a_command_that_is_killed_leaves_the_older_output_and_can_be_run_again(
    folder: Path, killer: Killer, name: str
) -> None:
    command = COMMANDS[name]
    output = folder / command.output
    clean = killer.run(command.again, folder)
    assert clean.code == command.code, clean.err
    new, left = contents(output), names(folder)
    assert new
    assert killer.run(command.before, folder).code == command.code
    old = contents(output)
    assert old and old != new
    kept = output.rename(folder.parent / "older")
    n_killed = 0
    put_back(kept, output)
    n_touches = killer.run(command.again, folder).n_touches
    for touch in moments(n_touches, name):
        put_back(kept, output)
        killed = killer.run(command.again, folder, touch=touch)
        n_killed += killed.code == -9
        found = contents(output)
        assert found is not None, f"killed before touch {touch}: nothing is there"
        assert found in (old, new), f"killed before touch {touch}"
        again = killer.run(command.again, folder)
        assert again.code == command.code, again.err
        assert contents(output) == new
        assert names(folder) == left, f"what was killed before touch {touch} left something behind"
    assert n_killed == len(moments(n_touches, name))


def test_20_ingest_is_killed_at_ten_random_times(folder: Path, killer: Killer) -> None:
    """By the clock: also while compiled code runs, which touches nothing that Python sees."""
    command, dice = COMMANDS["ingest with workers"], random.Random(20)
    output, log = folder / command.output, folder / "log"
    rows = (
        f'{{"timestamp": {k}, "input_length": 40, "output_length": 5, "hash_ids": [{k}, 7, {k % 9}]}}\n'
        for k in range(30_000)
    )
    log.write_text("".join(rows))
    arguments = ["ingest", "log", "-o", command.output, "--force", "-q", "--block-tokens", "16"]
    began = time.monotonic()
    assert killer.run(arguments, folder).code == 0
    took = time.monotonic() - began
    new, left = contents(output), names(folder)
    assert killer.run(command.before, folder).code == 0
    kept, old, n_killed = output.rename(folder.parent / "older"), contents(folder.parent / "older"), 0
    while n_killed < 10:
        put_back(kept, output)
        killed = killer.run(arguments, folder, seconds=dice.uniform(0.1, 0.9) * took)
        assert contents(output) in ((old, new) if killed.code else (new,))
        n_killed += killed.code == -9
        took *= 1.0 if killed.code else 0.8  # the machine is faster than it was
    assert killer.run(arguments, folder).code == 0
    assert contents(output) == new and names(folder) == left


def test_20_a_first_run_that_is_killed_leaves_nothing_under_the_name(folder: Path, killer: Killer) -> None:
    command = COMMANDS["synth"]
    n_touches = killer.run(command.again, folder).n_touches
    new = contents(folder / command.output)
    for touch in range(1, n_touches + 1):
        fresh = folder / str(touch)
        fresh.mkdir()
        killer.run(command.again, fresh, touch=touch)
        assert contents(fresh / command.output) in (None, new)
        assert killer.run(command.again, fresh).code == 0
        assert names(fresh) == [command.output]
