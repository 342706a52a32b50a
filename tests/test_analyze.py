"""Every analyzer on every format, from the file to the sentence."""

from pathlib import Path

import pytest

from agentctl.analyze import analyze_trace
from agentctl.formats.base import Sample
from agentctl.ingest.build import ingest
from agentctl.ingest.options import IngestOptions
from agentctl.ingest.source import Source

DATA = Path(__file__).parent / "data"
NO_TIMES = {"agent_messages", "openhands", "openinference"}
NO_REQUESTS = {"ORIGIN.md", "sglang_server.log.gz"}  # the latter holds gauges alone
NO_LOGS = {"calibrate", "lps", "prior"}  # steps and models
FILES = [
    path
    for pattern in ("formats/*/*", "*/*.json*", "azure/*.csv")
    for path in sorted(DATA.glob(pattern))
    if path.name not in NO_REQUESTS and path.parent.name not in NO_TIMES | NO_LOGS
]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_format_is_analyzed_whatever_it_does_not_carry(file, tmp_path):
    source = Source(str(file))
    is_document = Sample(source.sample, whole=source.sample_is_all).is_document
    options = IngestOptions(year=2026, json_document=is_document)
    analysis = analyze_trace(ingest([file], tmp_path / "a.trace", options).trace)
    assert all(section.sentence.endswith(".") for section in analysis.sections)
    has_blocks = analysis.document["block_tokens"] is not None
    assert (analysis.document["reuse"]["reason"] is None) == has_blocks
