"""`--engine`: wherever something is computed, the same bytes."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path

import pytest

SAMPLES = Path(__file__).parents[2] / "sample_traces"
TRACE = SAMPLES / "weka_small.jsonl.gz"
ON = ("--profile", "h100-qwen3-8b", "--engines", 2)
LOGS = (SAMPLES / "mooncake_conversation.jsonl.gz", SAMPLES / "mooncake_20min.jsonl.gz")
ASKED = {
    "recommend": (
        *("recommend", TRACE, *ON, "--policies", "round-robin,lmetric", "--replicates", 3),
        *("-o", "run", "-q"),
    ),
    "sweep": (
        *("simulate", TRACE, *ON, "--policy", "lmetric", "--policy", "round-robin"),
        *("--vary", "max_num_seqs=8,64", "-o", "run", "-q"),
    ),
    "ingest": ("ingest", *LOGS, "--block-tokens", 512, "-o", "run", "-q"),
    "analyze": ("analyze", TRACE, "--html", "run/a.html", "-q", "--force"),
}  # fmt: skip
HAS_RAY = importlib.util.find_spec("ray") is not None
NO_RAY = 'ray is not installed: pip install "agentctl[ray]"'
EVERY = pytest.mark.parametrize("what", ASKED)


def written(agentctl, what: str, *where) -> dict[str, bytes]:
    shutil.rmtree("run", ignore_errors=True)
    if what == "analyze":
        Path("run").mkdir()
    told = agentctl(*ASKED[what], *where)
    assert told.code == 0, told.err
    found = {str(path): path.read_bytes() for path in sorted(Path("run").rglob("*")) if path.is_file()}
    assert found
    return found


@EVERY
def test_processes_write_the_bytes_of_one_after_the_other(agentctl, what):
    serial = written(agentctl, what, "--engine", "serial")
    assert written(agentctl, what, "--workers", 2) == serial


@pytest.mark.slow
@pytest.mark.skipif(not HAS_RAY, reason=NO_RAY)
@EVERY
def test_ray_writes_the_bytes_of_one_after_the_other(agentctl, what):
    serial = written(agentctl, what, "--engine", "serial")
    assert written(agentctl, what, "--engine", "ray", "--workers", 2) == serial


@pytest.mark.skipif(HAS_RAY, reason="ray is installed")
@EVERY
def test_without_ray_it_is_said_how_to_get_it(agentctl, what):
    told = agentctl(*ASKED[what], "--engine", "ray")
    assert told.code == 2 and "agentctl[ray]" in told.err


@EVERY
def test_an_unknown_engine_is_named(agentctl, what):
    told = agentctl(*ASKED[what], "--engine", "threads")
    assert told.code == 2 and "processes or serial or ray" in told.err


def test_a_single_run_is_not_divided(agentctl):
    told = agentctl("simulate", TRACE, *ON, "--workers", 2)
    assert told.code == 2 and "a single run is not divided" in told.err


def test_standard_input_is_read_beside_files_that_workers_read(process, tmp_path):
    lines = [
        f'{{"timestamp": {k}, "input_length": 20, "output_length": 1, "hash_ids": [{k}, {k + 100}]}}\n'
        for k in range(60)
    ]
    for name, part in (("b.jsonl", lines[20:40]), ("c.jsonl", lines[40:])):
        (tmp_path / name).write_text("".join(part))
    asked = ("ingest", "-", "b.jsonl", "c.jsonl", "--block-tokens", "16", "-q", "--json")
    one = process(*asked, "-o", "a.trace", stdin="".join(lines[:20]).encode())
    two = process(*asked, "-o", "b.trace", "--workers", "2", stdin="".join(lines[:20]).encode())
    assert one.code == two.code == 0, two.err
    for name in ("requests.parquet", "prefix_nodes.parquet"):
        assert (tmp_path / "a.trace" / name).read_bytes() == (tmp_path / "b.trace" / name).read_bytes()
