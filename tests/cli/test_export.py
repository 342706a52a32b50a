"""`agentctl export` as a user meets it."""

from __future__ import annotations

import gzip
import json


def test_a_trace_is_written_said_and_can_be_read_by_the_command_that_is_named(agentctl, weka, tmp_path):
    done = agentctl("export", weka, "--anonymize", "-o", "shared.jsonl.gz")
    assert done.code == 0, done.err
    assert done.out.startswith("155 requests in 14 sessions written as bailian, times to 1 s;")
    assert "next: agentctl ingest shared.jsonl.gz --block-tokens 64 -o NAME.trace" in done.err
    assert len(gzip.decompress((tmp_path / "shared.jsonl.gz").read_bytes()).splitlines()) == 155
    again = agentctl("ingest", "shared.jsonl.gz", "--block-tokens", 64, "-o", "again.trace")
    assert again.out.startswith("155 requests in 14 sessions (14 of two or more requests), read as bailian")


def test_with_json_the_document_says_what_the_file_lacks(agentctl, weka):
    done = agentctl("export", weka, "--anonymize", "-o", "x.jsonl", "--format", "mooncake", "--json", "-q")
    document = json.loads(done.out)
    assert (document["schema"], document["format"], done.err) == ("agentctl/export/1", "mooncake", "")
    assert document["left_out"] == {}


def test_the_mooncake_layout_needs_its_sessions_taken_as_they_are(agentctl, weka):
    done = agentctl("export", weka, "--anonymize", "-o", "x.jsonl", "--format", "mooncake")
    assert "next: agentctl ingest x.jsonl --block-tokens 64 --sessions explicit -o NAME.trace" in done.err


def test_without_anonymize_nothing_is_written(agentctl, weka, tmp_path):
    done = agentctl("export", weka, "-o", "x.jsonl")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: export: writes anonymised traces only; expected --anonymize\n\nhint: ")
    assert not (tmp_path / "x.jsonl").exists()


def test_a_name_in_use_is_noticed_before_the_logs_are_read(agentctl, tmp_path):
    (tmp_path / "x.jsonl").write_text("mine")
    done = agentctl("export", "gone.jsonl", "--anonymize", "-o", "x.jsonl")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: x.jsonl: already exists")


def test_a_resolution_that_is_none_is_a_usage_error(agentctl, weka):
    done = agentctl("export", weka, "--anonymize", "-o", "x.jsonl", "--time-resolution", 0)
    assert done.code == 2 and "--time-resolution: is '0'; expected at least 0.001" in done.err
