"""The order of lines and files does not matter: the same requests, sessions and chains, whatever is first.

Where two requests arrive at the very same time, the order of the file decides which comes first; that is all.
"""

import gzip
import random
from pathlib import Path

import polars as pl
import pytest

from agentctl.ingest.build import ingest

FORMATS = Path(__file__).parents[1] / "data" / "formats"
LOGS = {
    "aiperf": "aiperf/profile_export.jsonl.gz",
    "azure": "azure/trace.csv",
    "bailian": "bailian/trace_blksz_16.jsonl.gz",
    "burstgpt": "burstgpt/trace.csv",
    "dynamo": "dynamo/dynamo-request-trace.000000.jsonl.gz",
    "envoy": "envoy/access.log.jsonl.gz",
    "langfuse": "langfuse/observations.jsonl.gz",
    "mooncake": "mooncake/trace_512.jsonl",
    "openai_chat": "openai/chat_completions.jsonl.gz",
    "otlp_genai": "otel/genai_client_spans.otlp.jsonl.gz",
    "vllm_spans": "vllm/vllm_otel_spans.otlp.jsonl.gz",
}
NAMES = ("request_id", "session_id", "parent_request_id", "after_request_id")
FILES = ("dataset.json", "requests.parquet", "prefix_nodes.parquet")


def lines_of(name: str) -> tuple[bytes, list[bytes]]:
    """Header of a table, and the lines."""
    data = (FORMATS / LOGS[name]).read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    lines = text.splitlines(keepends=True)
    return (lines[0], lines[1:]) if LOGS[name].endswith("csv") else (b"", lines)


def made(files: list[tuple[str, bytes]], folder: Path) -> tuple[pl.DataFrame, pl.DataFrame, dict]:
    """Requests without their places in files, nodes, and what dataset.json says of them all."""
    folder.mkdir()
    for name, text in files:
        (folder / name).write_bytes(text)
    trace = ingest([folder / name for name, _ in files], folder / "a.trace").trace
    requests = pl.read_parquet(folder / "a.trace" / "requests.parquet").drop("source_file", "source_row")
    if requests["arrival_s"].is_duplicated().any():
        requests = requests.sort("arrival_s", "prompt_tokens", "output_tokens").drop("tip_node")
    if requests["request_id"][0].startswith("log"):  # the log has no names of its own
        number = {name: str(k) for k, name in enumerate(requests["request_id"])}
        requests = requests.with_columns(pl.col(NAMES).cast(pl.String).replace(number))
    nodes = pl.read_parquet(folder / "a.trace" / "prefix_nodes.parquet")
    if "tip_node" not in requests.columns:
        nodes = nodes.select("depth").sort("depth")
    return requests, nodes, {key: trace.meta[key] for key in ("sessions", "records", "time", "coverage")}


def same(one: tuple, other: tuple) -> bool:
    return one[0].equals(other[0]) and one[1].equals(other[1]) and one[2] == other[2]


@pytest.mark.parametrize("name", LOGS)
def test_lines_in_any_order_give_the_same_requests_sessions_and_chains(name, tmp_path):
    header, lines = lines_of(name)
    in_order = made([("log", header + b"".join(lines))], tmp_path / "in_order")
    shuffled = random.Random(name).sample(lines, len(lines))
    assert shuffled != lines
    assert same(made([("log", header + b"".join(shuffled))], tmp_path / "shuffled"), in_order)
    assert same(made([("log", header + b"".join(lines[::-1]))], tmp_path / "reversed"), in_order)


@pytest.mark.parametrize("name", LOGS)
def test_a_log_dealt_out_to_files_gives_the_same_and_files_in_any_order_the_same_bytes(name, tmp_path):
    header, lines = lines_of(name)
    whole = made([("log", header + b"".join(lines))], tmp_path / "whole")
    dealt = [(f"log{k}", header + b"".join(lines[k::3])) for k in range(3)]
    assert same(made(dealt, tmp_path / "dealt"), whole)
    assert same(made([dealt[2], dealt[0], dealt[1]], tmp_path / "again"), whole)
    for file in FILES:
        one, other = (tmp_path / folder / "a.trace" / file for folder in ("dealt", "again"))
        assert one.read_bytes() == other.read_bytes()
