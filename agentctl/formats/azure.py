"""Azure LLM inference trace: one request a line, times and token counts only.

    TIMESTAMP,ContextTokens,GeneratedTokens
    2023-11-16 18:17:03.9799600,4808,10

Source: Azure/AzurePublicDataset, Splitwise (ISCA'24) and DynamoLLM (HPCA'25) traces; the multimodal trace of
2025 adds NumImages (images are not prompt tokens there; the column is not used).
Pitfalls: seven digits of fraction, kept whole (read as two digits, arrivals 1, 2 and 9 ms apart become equal:
kubernetes-sigs/inference-perf PR 782); no zone in the first files (--timezone, else UTC), but one in later
ones; no sessions, no block ids.
"""

from __future__ import annotations

from collections.abc import Iterator

from agentctl.formats._cells import instant, whole
from agentctl.formats._columns import Columns
from agentctl.formats._csv import read_csv
from agentctl.formats._local import LocalTime
from agentctl.formats.base import Batch, Reading, Sample

NAME = "azure"
TITLE = "Azure LLM inference trace CSV (TIMESTAMP, ContextTokens, GeneratedTokens)"
CARRIES = ("arrival_s", "prompt_tokens", "output_tokens")
LACKS = "No block ids or prompts, so no reuse; no sessions, latencies or placement."

_HEADER = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]


def recognises(sample: Sample) -> bool:
    return sample.csv_header in (_HEADER, [*_HEADER, "NumImages"])


def read(reading: Reading) -> Iterator[Batch]:
    reading.time_origin, local = "absolute", LocalTime(reading)
    for table in read_csv(reading, _HEADER):
        columns = Columns(reading, table.chunk, table.lines)
        times = columns.parse(instant, table.cells["TIMESTAMP"], "TIMESTAMP", required=True)
        columns.arrival([local.utc_ns(time) for time in times], "TIMESTAMP", "ns")
        prompt = columns.parse(whole, table.cells["ContextTokens"], "ContextTokens", required=True)
        output = columns.parse(whole, table.cells["GeneratedTokens"], "GeneratedTokens", required=True)
        columns.tokens("prompt_tokens", prompt, "ContextTokens", low=1)
        columns.tokens("output_tokens", output, "GeneratedTokens")
        yield columns.batch()
