"""Formats are told apart by content: every sample is recognised by one reader, nothing by two."""

import json
from pathlib import Path

import pytest

from agentctl.errors import UnknownFormatError, UsageError
from agentctl.formats.base import Sample, reader_named, readers, recognise
from agentctl.ingest.source import Source

ROOT = Path(__file__).parents[2]
DATA = ROOT / "tests" / "data"
KNOWN = {
    "mooncake": [
        DATA / "formats/mooncake/trace_512.jsonl",
        DATA / "mooncake/dynamo_mooncake_tiny.jsonl",
        ROOT / "sample_traces/mooncake_conversation.jsonl.gz",
    ],
    "bailian": [DATA / "formats/bailian/trace_blksz_16.jsonl.gz"],
    "weka": [DATA / "weka/trace_0277.json.gz", ROOT / "sample_traces/weka_small.jsonl.gz"],
    "azure": [DATA / "formats/azure/trace.csv", DATA / "azure/code_first_200.csv"],
    "burstgpt": [DATA / "formats/burstgpt/trace.csv"],
    "envoy": [DATA / "formats/envoy/access.log.jsonl.gz"],
    "vllm_text": [
        DATA / "formats/vllm/vllm_server_v0.32.log.gz",
        DATA / "formats/vllm/vllm_server_old_v0.10_with_prompts.log.gz",
    ],
    "sglang_requests": [DATA / "formats/sglang/sglang_requests_level1_json.log.gz"],
    "sglang_metrics": [DATA / "formats/sglang/sglang-request-metrics-20261112_09.log.gz"],
    "sglang_server": [DATA / "formats/sglang/sglang_server.log.gz"],
    "vllm_spans": [DATA / "formats/vllm/vllm_otel_spans.otlp.jsonl.gz"],
    "litellm": [
        DATA / "formats/litellm/LiteLLM_SpendLogs.csv.gz",
        DATA / "formats/litellm/spendlogs_with_messages.jsonl.gz",
    ],
    "llmserving": sorted((DATA / "llmserving").glob("*.gz")),
    "openai_chat": [
        DATA / "formats/openai/chat_completions.jsonl.gz",
        *sorted((DATA / "openhands").glob("*.json.gz")),
    ],
    "openai_responses": [DATA / "formats/openai/responses.jsonl.gz"],
    "llmd_epp": [DATA / "formats/llmd_epp/epp.log"],
    "production_stack": [DATA / "formats/production_stack/router.log.gz"],
    "guidellm": [DATA / "load_tests/guidellm_benchmarks.json"],
    "inference_perf": sorted((DATA / "load_tests").glob("per_request*")),
    "vllm_bench": [DATA / "load_tests/vllm_bench.json"],
    "aiperf": [DATA / "formats/aiperf/profile_export.jsonl.gz"],
    "claude_code": [DATA / "coding_agents/claude_code_session.jsonl"],
    "codex": [DATA / "coding_agents/codex_rollout.jsonl"],
    "tracelab": [DATA / "coding_agents/tracelab_round_trace.jsonl"],
    "dynamo": sorted((DATA / "formats/dynamo").iterdir()),
    "otlp_genai": [DATA / "formats/otel/genai_client_spans.otlp.jsonl.gz"],
    "openinference": sorted((DATA / "openinference").glob("*.json")),
    "otel_replay": sorted((DATA / "otel_replay").glob("*.json")),
    "langfuse": [
        DATA / "formats/langfuse/observations.jsonl.gz",
        DATA / "langfuse/langgraph-python-2025-08-22.trace.json.gz",
        DATA / "langfuse/pydantic-ai-tools-2025-12-04.trace.json.gz",
    ],
}
LOGS = sorted(
    path
    for folder in (DATA, ROOT / "sample_traces")
    for path in folder.rglob("*")
    if path.is_file() and path.suffix != ".md" and path.stat().st_size
)


def matches(path: Path) -> list[str]:
    source = Source(str(path))
    sample = Sample(source.sample, whole=source.sample_is_all)
    return [name for name, reader in readers().items() if reader.recognises(sample)]


@pytest.mark.parametrize(("name", "path"), [(name, path) for name, paths in KNOWN.items() for path in paths])
def test_each_sample_is_recognised_by_its_own_reader_alone(name, path):
    assert matches(path) == [name]
    assert recognise(Source(str(path)), {}) is readers()[name]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.name)
def test_no_file_of_the_test_data_is_recognised_by_two_readers(path):
    assert len(matches(path)) <= 1


def test_every_reader_says_what_it_is_and_that_it_does_not_know_an_empty_text():
    for name, reader in readers().items():
        assert reader is reader_named(name)
        assert reader.TITLE
        for text in (b"", b"\n\n", b"plain words\n", b'{"a": 1}\n', b"a,b\n1,2\n"):
            assert not reader.recognises(Sample(text, whole=True)), (name, text)


MOONCAKE_ROW = {"timestamp": 1, "input_length": 5, "output_length": 1, "hash_ids": [1]}


def test_a_few_bad_lines_do_not_hide_a_format(tmp_path):
    path = tmp_path / "log"
    path.write_text("\n".join(["not json", "null", '{"timestamp": 4}', *[json.dumps(MOONCAKE_ROW)] * 5, ""]))
    assert recognise(Source(str(path)), {}).NAME == "mooncake"


def test_a_mapping_asks_for_the_generic_reader(tmp_path):
    path = tmp_path / "log"
    path.write_text(json.dumps(MOONCAKE_ROW) + "\n")
    assert recognise(Source(str(path)), {"arrival_ms": "timestamp"}).NAME == "generic"


def test_a_mapping_and_a_format_that_knows_its_fields_contradict_each_other(read):
    with pytest.raises(UsageError, match="cannot be mapped"):
        read([MOONCAKE_ROW], format="mooncake", column_map={"arrival_ms": "timestamp"})
    log = read([MOONCAKE_ROW], format="generic", column_map={"arrival_ms": "timestamp"})
    assert log.column("arrival_ns") == [1_000_000]


def test_two_formats_that_match_are_an_error_that_names_both(tmp_path, monkeypatch):
    monkeypatch.setattr(readers()["azure"], "recognises", lambda sample: True)
    path = tmp_path / "log"
    path.write_text(json.dumps(MOONCAKE_ROW) + "\n")
    with pytest.raises(UnknownFormatError, match="could be azure or mooncake") as error:
        recognise(Source(str(path)), {})
    assert error.value.hint == "--format azure decides"


def test_an_unknown_text_is_an_error_that_says_how_to_read_it_all_the_same(tmp_path):
    path = tmp_path / "log"
    path.write_text('{"SECRET": 1}\n')
    with pytest.raises(UnknownFormatError, match="in no format that agentctl recognises") as error:
        recognise(Source(str(path)), {})
    assert error.value.hint is not None and "--map" in error.value.hint
    assert "SECRET" not in error.value.message


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(MOONCAKE_ROW, indent=2),
        json.dumps([MOONCAKE_ROW, MOONCAKE_ROW]),
        json.dumps([MOONCAKE_ROW, MOONCAKE_ROW], indent=2),
        "[\n" + ",\n".join([json.dumps(MOONCAKE_ROW)] * 3) + "\n]\n",
    ],
)
@pytest.mark.parametrize("format_name", [None, "mooncake", "weka", "bailian"])
def test_a_json_document_given_as_lines_is_one_error_that_names_the_flag(read, text, format_name):
    with pytest.raises(UnknownFormatError) as error:
        read(text, format=format_name)
    assert error.value.hint is not None and "--json-document" in error.value.hint


def test_a_json_array_is_read_as_a_document(read):
    log = read(json.dumps([MOONCAKE_ROW, {**MOONCAKE_ROW, "timestamp": 2}], indent=2), json_document=True)
    assert (log.report.format, log.column("arrival_ns")) == ("mooncake", [1_000_000, 2_000_000])
    assert log.report.n_lines == log.report.n_record_lines == 2


@pytest.mark.parametrize("text", ["[1, 2", '{"a": 1}\n{"a": 2}\n', ""])
def test_text_that_is_no_single_document_is_an_error(read, text):
    with pytest.raises(UnknownFormatError if text else Exception):
        read(text, format="mooncake", json_document=True)
