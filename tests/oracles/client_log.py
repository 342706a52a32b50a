"""The recorded client log of a tiny engine as a trace: what a prober saw of vLLM behind its HTTP server."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from agentctl.ingest.build import IngestOptions, ingest
from agentctl.trace import Trace

FILE = Path(__file__).parents[1] / "data" / "calibrate" / "vllm_cpu_client.jsonl.gz"
MAP = {
    "request_id": "id", "session_id": "session", "arrival_s": "at", "prompt_tokens": "in",
    "output_tokens": "out", "ttft_s": "ttft", "e2e_s": "e2e", "cached_tokens": "cached",
}  # fmt: skip


def client_rows() -> list[dict[str, Any]]:
    """Without the warm-up."""
    rows = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]
    return [row for row in rows if row["tag"] != "warm"]


def client_trace(folder: Path) -> Trace:
    """The prober waits for answers before it goes on: one session. Its held-out load, block V, arrives by the
    clock."""
    path = folder / "client.jsonl"
    with path.open("w") as file:
        for number, row in enumerate(client_rows()):
            out = {"id": f"{row['tag']}-{number}", "at": row["t0"], "in": row["plen"], "out": row["mx"],
                   "ttft": row["ts"][0], "e2e": row["ts"][-1],
                   "cached": row["usage"]["prompt_tokens_details"]["cached_tokens"]}  # fmt: skip
            file.write(json.dumps(out | ({} if row["tag"] == "V" else {"session": "prober"})) + "\n")
    return ingest([path], folder / "client.trace", IngestOptions(format="generic", map=MAP)).trace
