"""SGLang's server log without a request log: batches only, which become events (see _sglang_batches.py).

    [2026-11-12 09:00:12 TP0] Prefill batch, #new-seq: 1, #new-token: 1281, #cached-token: 0, ...

It holds no requests and makes no trace alone: give a request log of the same server or its gateway beside
it. Its events calibrate (sizes and times of batches) and say the hit rate. Where requests are logged into the
same file, sglang_requests reads both, and so does this reader.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentctl.formats import sglang_requests
from agentctl.formats._text import COLOUR
from agentctl.formats.base import Batch, Reading, Sample

NAME = "sglang_server"
TITLE = "SGLang server log (Prefill batch, Decode batch): events beside a request log"
CARRIES = ()
LACKS = "No requests at all: batches become events of a dataset that a request log beside it makes."
ROLE = "engine"

_OURS = re.compile(rb"\] (?:Prefill|Decode) batch(?:\.| \[[0-9]+\])?,? #")


def recognises(sample: Sample) -> bool:
    return _OURS.search(COLOUR.sub(b"", sample.text)) is not None and not sglang_requests.recognises(sample)


def read(reading: Reading) -> Iterator[Batch]:
    yield from sglang_requests.read(reading)
