"""What may be wrong with a line, and what it costs: itself, counted and placed, and nothing else."""

import json
from pathlib import Path

import polars as pl
import pytest

from agentctl.errors import BadRecordsError, InputError
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.ingest.quarantine import MAX_PLACES
from agentctl.trace import Trace

TABLES = ("requests.parquet", "prefix_nodes.parquet")


def row(k: int, **changes) -> dict:
    """Request k of one session that grows by a block of 16 tokens a turn."""
    prompt = 16 * (k + 1) + 5
    ids = list(range(100, 100 + k + 2))
    return {"timestamp": 10 * k, "input_length": prompt, "output_length": 9, "hash_ids": ids} | changes


def good(n: int = 4, start: int = 0) -> list[str]:
    return [json.dumps(row(k)) for k in range(start, start + n)]


def run(tmp_path: Path, lines, bad: int = 1, name="log.jsonl", **options) -> tuple[Trace, dict]:
    """Ingest with a budget of `bad` records; returns the dataset and the document."""
    folder = tmp_path / f"in{len(list(tmp_path.iterdir()))}"
    folder.mkdir()
    data = lines if isinstance(lines, bytes) else ("\n".join(lines) + "\n").encode()
    (folder / name).write_bytes(data)
    options = {"max_bad": bad, "block_tokens": 16} | options
    report = ingest([folder / name], folder / "a.trace", IngestOptions(**options))
    return report.trace, report.document


def places(trace: Trace) -> list[dict]:
    path = trace.path.parent / "a.quarantine.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()[1:]] if path.exists() else []


def chains(trace: Trace) -> list[list[int] | None]:
    tree, found = trace.tree, []
    for tip in trace.requests(["tip_node"])["tip_node"]:
        chain, node = [], tip
        while node:
            chain.append(int(tree.hash[node]))
            node = tree.parent[node]
        found.append(None if tip is None else chain[::-1])
    return found


def is_set_aside(tmp_path: Path, line: str | bytes, reason: str) -> None:
    """`line` as the third of five is one bad record at its place; the other four are all there."""
    text = line if isinstance(line, bytes) else line.encode()
    before = [line.encode() for line in good(2)]
    data = b"\n".join([*before, text, *(line.encode() for line in good(2, 2))]) + b"\n"
    trace, document = run(tmp_path, data)
    (place,) = places(trace)
    assert (place["line"], place["reason"]) == (3, reason)
    assert (place["byte_offset"], place["length"]) == (len(b"\n".join(before)) + 1, len(text))
    assert trace.requests(["source_row"])["source_row"].to_list() == [1, 2, 4, 5]
    assert chains(trace) == [row(k)["hash_ids"] for k in range(4)]
    records, (file,) = document["records"], document["files"]
    assert (records["read"], records["rows"], records["quarantined"]) == (5, 4, 1)
    assert records["quarantined_by_reason"] == {reason: 1}
    assert (file["lines"], file["record_lines"], file["quarantined_lines"]) == (5, 4, 1)


def test_1_a_line_cut_in_the_middle(tmp_path):
    is_set_aside(tmp_path, json.dumps(row(9))[:40], "not_json")


@pytest.mark.parametrize("line", ["null", "[1, 2]", '"text"', "17", "true", "[]"])
def test_2_a_line_that_is_no_object_never_becomes_a_row_of_nulls(tmp_path, line):
    is_set_aside(tmp_path, line, "wrong_type")


@pytest.mark.parametrize("value", ["12", 12.0, "12.0"])
def test_3_a_whole_number_may_be_written_as_text_or_with_a_point(tmp_path, value):
    trace, _ = run(tmp_path, [*good(2), json.dumps(row(2, output_length=value))])
    assert trace.requests(["output_tokens"])["output_tokens"].to_list() == [9, 9, 12]
    assert not places(trace)


@pytest.mark.parametrize("value", [1.5, "1.5", "twelve", True, [12]])
def test_3_a_number_that_is_not_whole_is_never_rounded(tmp_path, value):
    is_set_aside(tmp_path, json.dumps(row(2, output_length=value)), "wrong_type")


def test_3_a_prompt_length_of_null_is_none(tmp_path):
    is_set_aside(tmp_path, json.dumps(row(2, input_length=None)), "wrong_type")


def test_4_ids_are_exact_over_64_bits(tmp_path):
    ids = [2**63, 2**63 + 1, 2**64 - 1, 2**53 + 1]
    trace, _ = run(tmp_path, [json.dumps(row(2, hash_ids=ids)), json.dumps(row(2, hash_ids=[*ids[:3], 7]))])
    assert chains(trace) == [ids, [*ids[:3], 7]]


@pytest.mark.parametrize("bad", [2**64, -1, None, [1], 1.5, True, {}])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_4_one_wrong_id_costs_the_line_and_leaves_no_hole_in_a_chain(tmp_path, bad, place):
    ids = [100, 101, 102]
    ids[place] = bad
    is_set_aside(tmp_path, json.dumps(row(1, hash_ids=ids)), "bad_block_id")


def test_5_hexadecimal_ids_are_the_numbers_that_they_write(tmp_path):
    as_text, as_numbers = ["ff", "0x100", "ffffffffffffffff"], [255, 256, 2**64 - 1]
    lines = [json.dumps(row(1, hash_ids=as_text)), json.dumps(row(1, hash_ids=as_numbers))]
    trace, _ = run(tmp_path, lines)
    assert chains(trace) == [as_numbers, as_numbers]


@pytest.mark.parametrize("ids", [["ff", 1, 2], [1, "ff", 2], ["xyz", "1", "2"], ["", "1", "2"], "ff"])
def test_5_numbers_and_text_do_not_mix_in_a_chain(tmp_path, ids):
    is_set_aside(tmp_path, json.dumps(row(1, hash_ids=ids)), "bad_block_id")


def test_5_an_empty_list_is_a_row_whose_reuse_is_unknown_not_zero(tmp_path):
    trace, document = run(tmp_path, [*good(2), json.dumps(row(2, hash_ids=[])), *good(1, 3)])
    assert chains(trace)[2] is None
    assert trace.requests(["n_blocks"])["n_blocks"][2] is None
    assert any("reuse is unknown" in warning for warning in document["warnings"])


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity"])
def test_6_not_a_number_is_no_number(tmp_path, value):
    line = json.dumps(row(2)).replace('"output_length": 9', f'"output_length": {value}')
    is_set_aside(tmp_path, line, "not_json")


@pytest.mark.parametrize(
    "changes",
    [
        {"input_length": -5}, {"input_length": 0}, {"output_length": -1}, {"output_length": 10**12},
        {"output_length": 10**40}, {"timestamp": -1}, {"timestamp": 10**30}, {"timestamp": 1e308},
    ],
)  # fmt: skip
def test_6_a_number_out_of_range_is_set_aside(tmp_path, changes):
    is_set_aside(tmp_path, json.dumps(row(2, **changes)), "out_of_range")


def test_6_a_list_that_does_not_fit_its_prompt_is_set_aside(tmp_path):
    lines = [*good(2), json.dumps(row(2, hash_ids=[100, 101, 102, 103, 104, 105])), *good(2, 2)]
    trace, document = run(tmp_path, lines)
    assert [(place["line"], place["reason"]) for place in places(trace)] == [(3, "block_count")]
    assert document["records"]["rows"] == 4


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (json.dumps(row(2)).encode()[:-1] + b', "model": "\xff"}', "invalid_utf8"),
        (json.dumps(row(2)).encode()[:-1] + b', "model": "a\0b"}', "not_json"),
        (json.dumps(row(2)).encode()[:-1] + b', "model": "\\ud800"}', "lone_surrogate"),
        (json.dumps(row(2)).encode()[:-1] + b', "session_id": "\\udc00x"}', "lone_surrogate"),
    ],
)
def test_7_text_that_is_no_text_is_set_aside(tmp_path, line, reason):
    is_set_aside(tmp_path, line, reason)


def test_7_an_escaped_nul_is_kept(tmp_path):
    lines = [json.dumps(row(k, session_id="a\0b")) for k in range(3)]
    trace, _ = run(tmp_path, lines, sessions="explicit")
    assert trace.requests(["session_id"])["session_id"].to_list() == ["a\0b"] * 3


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b"\n", b"\r\n"),
        lambda text: b"\xef\xbb\xbf" + text,
        lambda text: text.removesuffix(b"\n"),
        lambda text: text + b"\n  \n\r\n",
        lambda text: b"\xef\xbb\xbf" + text.replace(b"\n", b"\r\n").removesuffix(b"\r\n"),
    ],
    ids=["CRLF", "byte order mark", "no final newline", "blank lines at the end", "all of it"],
)
def test_8_line_ends_and_marks_change_no_byte_of_the_tables(tmp_path, change):
    text = ("\n".join(good()) + "\n").encode()
    clean, _ = run(tmp_path, text)
    other, document = run(tmp_path, change(text))
    for name in TABLES:
        assert (clean.path / name).read_bytes() == (other.path / name).read_bytes()
    (file,) = document["files"]
    assert file["lines"] == file["record_lines"] + file["blank_lines"]


def test_8_blank_lines_between_change_only_the_numbers_of_the_lines(tmp_path):
    clean, _ = run(tmp_path, good())
    other, _ = run(tmp_path, ["", *(line for text in good() for line in (text, "  "))])
    assert other.requests(["source_row"])["source_row"].to_list() == [2, 4, 6, 8]
    names = ["source_row", "request_id", "session_id", "parent_request_id", "after_request_id"]
    one, two = (pl.read_parquet(trace.path / TABLES[0]).drop(names) for trace in (clean, other))
    assert one.equals(two, null_equal=True)


@pytest.mark.parametrize("deep", ['{"a":' * 5000 + "1" + "}" * 5000, "[" * 5000 + "]" * 5000])
@pytest.mark.parametrize("field", ["hash_ids", "other"])
def test_9_deep_nesting_is_set_aside_without_a_traceback(tmp_path, deep, field):
    line = (
        json.dumps(row(2)).replace('"hash_ids": [100, 101, 102, 103]', '"x": 0')[:-1]
        + f', "{field}": {deep}}}'
    )
    is_set_aside(tmp_path, line, "nested_too_deep")


@pytest.mark.parametrize("format_name", [None, "mooncake"])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("document", [[row(k) for k in range(500)], {"id": "x", "requests": [row(1)] * 500}])
def test_10_a_json_document_given_as_lines_is_one_error_that_names_the_flag(
    tmp_path, document, indent, format_name
):
    if isinstance(document, dict) and indent is None:
        document = [document]
    with pytest.raises(InputError) as error:
        run(tmp_path, json.dumps(document, indent=indent).encode(), format=format_name)
    assert error.value.exit_code == 1
    assert error.value.hint is not None and "--json-document" in error.value.hint


def test_10_many_bad_lines_are_counted_and_a_thousand_placed(tmp_path):
    trace, document = run(tmp_path, [*good(2), *["oops"] * 5000, *good(2, 2)], bad=5000, format="mooncake")
    assert document["records"]["quarantined"] == 5000
    assert len(places(trace)) == MAX_PLACES == 1000
    first = json.loads((trace.path.parent / "a.quarantine.jsonl").read_text().splitlines()[0])
    assert first == {"quarantined": 5000, "reasons": {"not_json": 5000}}


def test_10_a_budget_that_is_too_small_stops_with_totals_and_the_first_places(tmp_path):
    with pytest.raises(BadRecordsError) as error:
        run(tmp_path, [*good(2), *["oops"] * 5000, "null"], bad=5000, format="mooncake")
    assert "5,001 of 5,003 records are bad (not_json 5,000, wrong_type 1)" in error.value.message
    assert error.value.message.count("log.jsonl:") == 5


MAP = {"arrival_ms": "timestamp", "request_id": "id", "prompt_tokens": "input_length", "hash_ids": "hash_ids"}


def named(k: int, name: str, **changes) -> str:
    return json.dumps({"id": name} | row(k) | changes)


def test_11_a_request_id_that_occurs_twice_is_reported_and_dropped(tmp_path):
    lines = [named(0, "a"), named(1, "b"), named(1, "b"), named(2, "a", timestamp=20)]
    trace, document = run(tmp_path, lines, map=MAP)
    assert trace.requests(["request_id"])["request_id"].to_list() == ["a", "b"]
    assert document["records"]["dropped"] == {"duplicate_request_id": 2}
    assert document["records"]["read"] == 4


def test_11_or_kept_under_a_name_of_its_own_when_asked(tmp_path):
    lines = [named(0, "a"), named(1, "b"), named(1, "b")]
    trace, document = run(tmp_path, lines, map=MAP, duplicates="keep")
    assert trace.requests(["request_id"])["request_id"].to_list() == ["a", "b", "b#2"]
    assert document["records"]["dropped"] == {}


@pytest.mark.parametrize("duplicates", ["drop", "keep"])
def test_11_what_is_kept_does_not_depend_on_the_order_of_the_files(tmp_path, duplicates):
    (tmp_path / "one").write_text("\n".join([named(0, "a"), named(1, "b")]) + "\n")
    (tmp_path / "two").write_text("\n".join([named(1, "b", output_length=3), named(2, "c")]) + "\n")
    options = IngestOptions(map=MAP, block_tokens=16, duplicates=duplicates)
    for name, files in (("ab", ["one", "two"]), ("ba", ["two", "one"])):
        ingest([tmp_path / file for file in files], tmp_path / f"{name}.trace", options)
    for name in (*TABLES, "dataset.json"):
        assert (tmp_path / "ab.trace" / name).read_bytes() == (tmp_path / "ba.trace" / name).read_bytes()


def test_12_unknown_fields_and_another_order_of_fields_change_no_byte_of_the_tables(tmp_path):
    clean, _ = run(tmp_path, good())
    extra = {"aaa": {"deep": [1, {"hash_ids": [9]}]}, "zzz": None, "text": "x" * 1000, "ünï": 1e300}
    rows = [{**extra, **dict(reversed(row(k).items()))} for k in range(4)]
    other, document = run(tmp_path, [json.dumps(row) for row in rows], bad=0)
    assert document["records"]["rows"] == 4
    for name in TABLES:
        assert (clean.path / name).read_bytes() == (other.path / name).read_bytes()
