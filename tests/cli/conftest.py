"""The command line as a user meets it: arguments in; stdout, stderr and exit code out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

PROGRAM = [sys.executable, "-m", "agentctl.cli.main"]
ROOT = Path(__file__).parents[2]


@dataclass
class Finished:
    code: int
    out: str
    err: str


@pytest.fixture
def agentctl(tmp_path: Path) -> Callable[..., Finished]:
    """Run `agentctl ARGUMENTS` in an empty folder, without the developer's own settings."""

    def run(*arguments: object, stdin: bytes = b"", **environment: str) -> Finished:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")}
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            cwd=tmp_path,
            env={**clean, "NO_COLOR": "1", **environment},
            input=stdin,
            capture_output=True,
            timeout=120,
        )
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def weka() -> Path:
    """14 small agent sessions, as they were published."""
    return ROOT / "sample_traces" / "weka_small.jsonl.gz"


@pytest.fixture
def program() -> list[str]:
    return PROGRAM
