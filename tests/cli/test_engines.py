"""`recommend --engine`: wherever runs are computed, the same bytes."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

TRACE = Path(__file__).parents[2] / "sample_traces" / "weka_small.jsonl.gz"
ASKED = (
    "recommend", TRACE, "--profile", "h100-qwen3-8b", "--engines", 2, "--policies", "round-robin,lmetric",
    "--replicates", 3, "-o", "run", "-q",
)  # fmt: skip
HAS_RAY = importlib.util.find_spec("ray") is not None
NO_RAY = 'ray is not installed: pip install "agentctl[ray]"'


def written(agentctl, *where) -> dict[str, bytes]:
    shutil.rmtree("run", ignore_errors=True)
    told = agentctl(*ASKED, *where)
    assert told.code == 0, told.err
    return {str(path): path.read_bytes() for path in sorted(Path("run").rglob("*")) if path.is_file()}


@pytest.fixture
def serial(agentctl):
    return written(agentctl, "--engine", "serial")


def test_processes_write_the_bytes_of_one_after_the_other(agentctl, serial):
    assert written(agentctl, "--workers", 2) == serial
    assert "run/result.json" in serial and "run/report.html" in serial


@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason=NO_RAY)
def test_ray_writes_the_bytes_of_one_after_the_other(agentctl, serial):
    assert written(agentctl, "--engine", "ray", "--workers", 2) == serial


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
def test_without_ray_it_is_said_how_to_get_it(agentctl):
    told = agentctl(*ASKED, "--engine", "ray")
    assert told.code == 2 and "agentctl[ray]" in told.err


def test_an_unknown_engine_is_named(agentctl):
    told = agentctl(*ASKED, "--engine", "threads")
    assert told.code == 2 and "processes or serial or ray" in told.err
