"""Every command that writes a file or a folder, small enough to be run a few dozen times.

The inputs lie in a folder beside the one that the commands run in: `../given/day.trace`.
"""

from __future__ import annotations

import hashlib
import shutil
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from oracles.samples import as_lines

from agentctl.cli.main import main

ROOT = Path(__file__).parents[2]
ON = ("--profile", "h100-qwen3-8b", "--engines", "2")
TWO = ("--policies", "round-robin,lmetric", "--replicates", "2", "--no-sensitivity", "--engine", "serial")


class Writing(NamedTuple):
    """`arguments` write `output` (with --force), as do `older` ones, with another content."""

    arguments: tuple[str, ...]
    older: tuple[str, ...]
    output: str
    code: int = 0

    @property
    def again(self) -> list[str]:
        return [*self.arguments, "--force", "-q"]

    @property
    def before(self) -> list[str]:
        return [*self.older, "--force", "-q"]


def _of(
    words: tuple[str, ...], older: tuple[str, ...], newer: tuple[str, ...], output: str, flag: str = "-o"
):
    return Writing((*words, *newer, flag, output), (*words, *older, flag, output), output)


COMMANDS = {
    "ingest": _of(
        ("ingest", "../given/log.jsonl", "--block-tokens", "16"),
        ("--sessions", "none"),
        ("--max-bad", "9"),
        "out.trace",
    ),
    "ingest with workers": _of(
        ("ingest", "../given/log.jsonl", "../given/more.jsonl", "--workers", "2", "--block-tokens", "16"),
        ("--sessions", "none"),
        ("--max-bad", "9"),
        "out.trace",
    ),
    "analyze": _of(
        ("analyze", "../given/day.trace"), ("--first-turn-share", "0.4"), (), "out.html", "--html"
    ),
    "simulate": _of(("simulate", "../given/day.trace", *ON), ("--policy", "lmetric"), (), "out"),
    "recommend": _of(("recommend", "../given/day.trace", *ON, *TWO), ("--seed", "2"), (), "out"),
    "calibrate": _of(
        ("calibrate", "prior", "--model", "../given/model.json", "--gpu", "h100-sxm"),
        ("--tp", "4"),
        ("--tp", "2"),
        "out.toml",
    ),
    "export": _of(
        ("export", "../given/day.trace", "--anonymize"), ("--format", "mooncake"), (), "out.jsonl.gz"
    ),
    "synth": _of(("synth", "agentic", "--sessions", "9", "--rate", "4"), ("--seed", "2"), (), "out.trace"),
    "study": _of(
        ("study", "conserve", "--rates", "1", "--errors", "0.1"),
        ("--draws", "2"),
        ("--draws", "1"),
        "out.html",
        "--html",
    ),
    "report": Writing(
        ("report", "../given/run", "--html", "out.html"),
        ("report", "../given/other", "--html", "out.html"),
        "out.html",
    ),
    "validate": _of(
        ("validate", "../given/measured.jsonl.gz", *ON[:2]), ("--engines", "1"), ("--strict",), "out"
    )._replace(code=3),
}


def make_inputs(given: Path) -> None:
    """What the commands read, in the folder `given`."""
    for name, first in (("log", 0), ("more", 40)):
        rows = (
            {"timestamp": 700 * k, "input_length": 40 + k % 8, "output_length": 5, "hash_ids": [k, 7, 9]}
            for k in range(first, first + 40)
        )
        (given / f"{name}.jsonl").write_bytes(as_lines(rows))
    shutil.copy(ROOT / "tests/data/prior/qwen3-32b.json", given / "model.json")
    shutil.copy(ROOT / "tests/data/llmserving/measured_llama.jsonl.gz", given / "measured.jsonl.gz")
    day = str(given / "day.trace")
    run(["ingest", str(ROOT / "sample_traces/weka_small.jsonl.gz"), "-o", day])
    run(["simulate", day, *ON, "-o", str(given / "run")])
    run(["simulate", day, *ON, "--policy", "lmetric", "-o", str(given / "other")])


def run(arguments: list[str]) -> None:
    with redirect_stdout(StringIO()):
        assert main([*arguments, "-q"]) == 0


def contents(path: Path) -> dict[str, str] | None:
    """Digests of a file, or of all files of a folder, by name; None when there is nothing."""
    if not path.exists():
        return None
    files = [path] if path.is_file() else [file for file in sorted(path.rglob("*")) if file.is_file()]
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())
