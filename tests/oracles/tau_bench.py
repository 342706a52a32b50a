"""One tau-bench workload as two formats with block ids carry it, with its true sessions and parents."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from oracles.tries import Trie, plant

FORMATS = Path(__file__).parents[1] / "data/formats"
RENDERINGS = {"bailian/trace_blksz_16.jsonl.gz": 16, "mooncake/trace_512.jsonl": 512}  # file: tokens a block


class Rendering(NamedTuple):
    truth: list[dict[str, str]]  # rows of truth.csv without the errors, which these formats leave out
    session: np.ndarray
    parent_row: np.ndarray  # -1: none
    arrival: np.ndarray  # s
    prompt: np.ndarray
    output: np.ndarray
    trie: Trie
    block_tokens: int

    def number(self, name: str) -> np.ndarray:
        """A column of the truth, NaN where it is empty."""
        return np.array([float(row[name] or "nan") for row in self.truth])


def read_lines(path: Path) -> list[dict[str, Any]]:
    data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return [json.loads(line) for line in data.splitlines()]


def rendering(file: str) -> Rendering:
    rows = read_lines(FORMATS / file)
    answers = csv.DictReader((FORMATS / "truth.csv").read_text().splitlines())
    truth = [row for row in answers if row["status"] != "error"]
    assert [row["input_length"] for row in rows] == [int(row["input_tokens"]) for row in truth]
    row_of = {row["request_id"]: i for i, row in enumerate(truth)}
    return Rendering(
        truth=truth,
        session=np.unique([row["session_id"] for row in truth], return_inverse=True)[1],
        parent_row=np.array([row_of.get(row["parent_request_id"], -1) for row in truth]),
        arrival=np.array([float(row["arrival_unix_s"]) for row in truth]),
        prompt=np.array([row["input_length"] for row in rows]),
        output=np.array([row["output_length"] for row in rows]),
        trie=plant([row["hash_ids"] for row in rows]),
        block_tokens=RENDERINGS[file],
    )
