"""Inputs of every command that writes, made once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from oracles.killed import Killer
from oracles.writing import make_inputs


@pytest.fixture(scope="session")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("faults") / "given"
    folder.mkdir()
    make_inputs(folder)
    return folder


@pytest.fixture
def folder(given: Path, tmp_path: Path) -> Path:
    """An empty folder beside `given`."""
    (tmp_path / "given").symlink_to(given)
    (tmp_path / "here").mkdir()
    return tmp_path / "here"


@pytest.fixture(scope="session")
def killer() -> Iterator[Killer]:
    with Killer() as started:
        yield started
