"""BurstGPT: requests of a campus service on Azure OpenAI, with their failures.

    Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type
    5,sess-1,2.5,ChatGPT,472,18,490,Conversation log

Source: HPMLL/BurstGPT. `Timestamp` s since midnight of the first day; `Elapsed time` s, the whole response
(the first releases have neither it nor `Session ID`); `Total tokens` = request + response.
Pitfalls: rows without response tokens are failures (the repository offers its files with and "without fails",
the difference being these rows): they get status error, and request tokens 0 on them means not recorded.
Only rows of `Conversation log` have a session; `Session ID` is empty on `API log` rows. A total that is not
the sum says that a column is not what its name says: the row is set aside.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from agentctl.formats._cells import number, whole
from agentctl.formats._columns import Columns
from agentctl.formats._csv import Table, read_csv
from agentctl.formats.base import Batch, Reading, Sample

NAME = "burstgpt"
TITLE = "BurstGPT CSV (Timestamp, [Session ID, Elapsed time,] Model, Request/Response/Total tokens, Log Type)"
CARRIES = ("arrival_s", "e2e_s", "prompt_tokens", "output_tokens", "session_id", "model", "status")
LACKS = "No block ids or prompts, so no reuse; no first-token times or placement; sessions of chats alone."

_HEADER = ["Timestamp", "Model", "Request tokens", "Response tokens", "Total tokens", "Log Type"]


def recognises(sample: Sample) -> bool:
    return set(_HEADER) <= set(sample.csv_header)


def read(reading: Reading) -> Iterator[Batch]:
    for table in read_csv(reading, _HEADER):
        yield _batch(reading, table)


def _batch(reading: Reading, table: Table) -> Batch:
    columns, cells = Columns(reading, table.chunk, table.lines), table.cells
    columns.arrival(columns.parse(number, cells["Timestamp"], "Timestamp", required=True), "Timestamp", "s")
    prompt, output, total = (
        columns.parse(whole, cells[name], name, required=True)
        for name in ("Request tokens", "Response tokens", "Total tokens")
    )
    failed = [n == 0 for n in output]
    differs = [None not in (p, o, t) and p + o != t for p, o, t in zip(prompt, output, total, strict=True)]
    columns.reject(np.array(differs), "total_differs", "Total tokens")
    known = [None if fault and n == 0 else n for n, fault in zip(prompt, failed, strict=True)]
    columns.tokens("prompt_tokens", known, "Request tokens", low=1)
    columns.tokens("output_tokens", output, "Response tokens")
    columns.put("status", ["error" if fault else "ok" for fault in failed])
    columns.text("model", cells["Model"])
    if "Session ID" in cells:
        columns.text("session_id", cells["Session ID"])
    if "Elapsed time" in cells:
        columns.seconds("e2e_s", columns.parse(number, cells["Elapsed time"], "Elapsed time"), "Elapsed time")
    return columns.batch()
