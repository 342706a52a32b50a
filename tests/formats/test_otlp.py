"""OTLP-JSON as several readers share it: what is a span, what its values are, and how lines add up."""

import json
from pathlib import Path

import msgspec
import pytest

from agentctl.formats import _otlp
from agentctl.formats.base import Reading, ReadOptions, Sample
from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Source


def span(name="want", **changes) -> dict:
    start = {"traceId": "aa", "spanId": "bb", "name": name, "startTimeUnixNano": "5", "endTimeUnixNano": 7}
    return {**start, "attributes": [{"key": "a", "value": {"intValue": "12"}}], **changes}


def export(*spans, scope="s", service="svc") -> dict:
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": service}}]}
    return {
        "resourceSpans": [{"resource": resource, "scopeSpans": [{"scope": {"name": scope}, "spans": spans}]}]
    }


class Walk:
    def __init__(self, path: Path, lines: list) -> None:
        path.write_text(
            "".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines)
        )
        source = Source(str(path))
        self.reading = Reading(source, Quarantine("log"), ReadOptions())
        batches = _otlp.spans(self.reading, lambda found: found.span.name == "want")
        self.found = [found for _, batch in batches for found in batch]
        self.faults = [(p.line, p.reason, p.json_path) for p in self.reading.quarantine.places]
        self.n_lines = source.n_lines


@pytest.fixture
def walk(tmp_path):
    return lambda lines: Walk(tmp_path / "log", lines)


def test_spans_come_with_their_resource_scope_and_place(walk):
    found = walk([export(span(), span("other"), span()), export(span(), scope="t", service="x")]).found
    assert [(f.line, f.scope, _otlp.text(f.resource["service.name"])) for f in found] == [
        (1, "s", "svc"), (1, "s", "svc"), (2, "t", "x"),
    ]  # fmt: skip
    assert found[1].path == "$.resourceSpans[0].scopeSpans[0].spans[2]"
    assert _otlp.whole(found[0].attributes["a"]) == 12


def test_a_line_may_be_one_span_alone(walk):
    log = walk([span(), span("other"), span(spanId="cc")])
    assert [(f.line, f.span.spanId, f.path) for f in log.found] == [(1, "bb", "$"), (3, "cc", "$")]
    assert log.reading.dropped == {"other_span": 1} and log.reading.n_dropped_lines == 1


def test_lines_that_hold_no_span_that_is_wanted_are_counted_once_each(walk):
    log = walk(
        [
            export(span(), span("other")),
            export(span("other"), span("other")),
            export(),
            {"resourceSpans": []},
            {"resourceLogs": [{"secret": 1}]},
            {"resourceMetrics": []},
        ]
    )
    assert len(log.found) == 1 and log.faults == []
    assert log.reading.dropped == {"other_span": 3, "no_spans": 4}
    assert log.reading.n_dropped_lines == 5 == log.n_lines - 1


def test_a_bad_span_costs_itself_and_a_bad_line_its_line(walk):
    log = walk(
        [export(span(), span(attributes=[{"value": {}}]), span(name=5)), "{", {"a": 1}, export(span())]
    )
    assert [f.line for f in log.found] == [1, 4]
    assert log.faults == [
        (2, "not_json", None),
        (1, "missing_field", "$.resourceSpans[0].scopeSpans[0].spans[1].attributes[0]"),
        (1, "wrong_type", "$.resourceSpans[0].scopeSpans[0].spans[2].name"),
        (3, "missing_field", "$.resourceSpans"),
    ]


def raw(value) -> msgspec.Raw:
    return msgspec.Raw(json.dumps(value).encode())


@pytest.mark.parametrize(
    ("read", "value", "expected"),
    [
        (_otlp.whole, {"intValue": "12"}, 12),
        (_otlp.whole, {"intValue": 12}, 12),
        (_otlp.whole, {"stringValue": "12"}, 12),
        (_otlp.whole, {"doubleValue": 12.0}, 12),
        (_otlp.whole, {"intValue": "0"}, 0),
        (_otlp.number, {"doubleValue": 0.5}, 0.5),
        (_otlp.number, {"intValue": "3"}, 3.0),
        (_otlp.number, {"doubleValue": 0}, 0.0),
        (_otlp.text, {"stringValue": "x"}, "x"),
        (_otlp.text, {"intValue": "7"}, "7"),
        (_otlp.text, {"stringValue": ""}, None),
        (_otlp.truth, {"boolValue": False}, False),
        (_otlp.truth, {"stringValue": "True"}, True),
        (_otlp.texts, {"arrayValue": {"values": [{"stringValue": "a"}, {"stringValue": "b"}]}}, ["a", "b"]),
        (_otlp.texts, {"stringValue": "a"}, ["a"]),
        (_otlp.texts, {"arrayValue": {}}, []),
        (_otlp.json_text, {"stringValue": '[{"b": 1}]'}, b'[{"b": 1}]'),
    ],
)  # fmt: skip
def test_values_are_read_by_kind(read, value, expected):
    assert read(raw(value)) == expected


@pytest.mark.parametrize("read", [_otlp.whole, _otlp.number, _otlp.text, _otlp.truth, _otlp.json_text])
def test_an_absent_attribute_is_unknown(read):
    assert read(None) is None


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (_otlp.whole, {"doubleValue": 1.5}),
        (_otlp.whole, {"stringValue": "many"}),
        (_otlp.number, {"stringValue": "fast"}),
        (_otlp.whole, []),
        (_otlp.text, {"stringValue": 5}),
        (_otlp.truth, {"stringValue": "perhaps"}),
        (_otlp.texts, {"arrayValue": [1]}),
    ],
)
def test_a_value_of_another_kind_is_an_error_without_the_value(read, value):
    with pytest.raises(ValueError) as error:
        read(raw(value))
    assert str(error.value) == ""


def test_structured_values_become_the_json_that_they_mean():
    structured = {
        "arrayValue": {
            "values": [
                {
                    "kvlistValue": {
                        "values": [
                            {"key": "role", "value": {"stringValue": "user"}},
                            {"key": "n", "value": {"intValue": "9007199254740993"}},
                            {"key": "parts", "value": {"arrayValue": {"values": [{"doubleValue": 0.5}, {}]}}},
                        ]
                    }
                }
            ]
        }
    }
    assert json.loads(_otlp.json_text(raw(structured))) == [
        {"role": "user", "n": 9007199254740993, "parts": [0.5, None]}
    ]


def test_an_attribute_named_in_a_text_is_no_attribute():
    inner = json.dumps(json.dumps({"key": "gen_ai.latency.e2e"}))
    attribute = {"key": "x", "value": {"stringValue": json.loads(inner)}}
    text = json.dumps({"resourceSpans": [{"attributes": [attribute]}]}).encode()
    assert _otlp.is_otlp(Sample(text))
    assert _otlp.attribute_names(Sample(text)) == {"x"}
