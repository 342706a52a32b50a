"""Every analyzer on every format, from the file to the sentence."""

from pathlib import Path

import pytest

from agentctl.analyze import analyze_trace
from agentctl.ingest.build import ingest

DATA = Path(__file__).parent / "data"
FILES = sorted(DATA.glob("formats/*/*")) + sorted(DATA.glob("*/*.json*")) + sorted(DATA.glob("azure/*.csv"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_format_is_analyzed_whatever_it_does_not_carry(file, tmp_path):
    analysis = analyze_trace(ingest([file], tmp_path / "a.trace").trace)
    assert all(section.sentence.endswith(".") for section in analysis.sections)
    has_blocks = analysis.document["block_tokens"] is not None
    assert (analysis.document["reuse"]["reason"] is None) == has_blocks
