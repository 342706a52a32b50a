"""The generic reader: the same table as CSV, JSON lines and Parquet; times that are never guessed."""

import csv
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from agentctl.errors import InputError, UsageError
from agentctl.schema import REQUESTS

MAP = {"arrival": "started", "prompt_tokens": "usage.in", "output_tokens": "usage.out"}
ROWS = [
    {"started": 1794474012.043457, "usage": {"in": 1281, "out": 26}, "user": "a", "ttft": 191.073},
    {"started": 1794474021.982272, "usage": {"in": 1309, "out": 0}, "user": "b", "ttft": None},
]


def as_csv(rows: list[dict]) -> str:
    flat = [
        {key: value for key, value in row.items() if key != "usage"}
        | {f"usage.{key}": value for key, value in row.get("usage", {}).items()}
        for row in rows
    ]
    out = io.StringIO()
    writer = csv.DictWriter(out, list(flat[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def as_parquet(rows: list[dict]) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), out)
    return out.getvalue()


def as_lines(rows: list[dict]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


@pytest.mark.parametrize("write", [as_csv, as_lines, as_parquet])
def test_csv_json_lines_and_parquet_give_the_same_rows(read, write):
    columns = MAP | {"session_id": "user", "ttft_ms": "ttft"}
    log = read(write(ROWS), column_map=columns)
    assert (log.report.format, log.report.time_origin, log.report.tz_assumed) == ("generic", "absolute", None)
    assert log.column("arrival_ns") == [1_794_474_012_043_457_000, 1_794_474_021_982_272_000]
    assert log.column("prompt_tokens") == [1281, 1309]
    assert log.column("output_tokens") == [26, 0]
    assert log.column("session_id") == ["a", "b"]
    assert log.column("ttft_s") == [pytest.approx(0.191073), None]
    assert log.column("source_row") == ([1, 2] if write is not as_csv else [2, 3])


@pytest.mark.parametrize(
    "started",
    [1794474012, 1794474012000, 1794474012000000, 1794474012000000000, "1794474012.0", 1794474012e3],
)
@pytest.mark.parametrize("write", [as_csv, as_lines, as_parquet])
def test_the_unit_of_an_epoch_time_is_told_from_its_size(read, write, started):
    log = read(write([{"started": started, "n": 5}]), column_map={"arrival": "started", "prompt_tokens": "n"})
    assert log.column("arrival_ns") == [1_794_474_012_000_000_000]


@pytest.mark.parametrize("started", [0.5, 12.5, 32412, 10**11])
def test_a_number_that_could_be_anything_is_an_error_that_names_the_explicit_form(read, started):
    with pytest.raises(UsageError, match="cannot be told") as error:
        read(as_lines([{"ts": started}]), column_map={"arrival": "ts"})
    assert error.value.hint is not None and "--map arrival_ms=ts" in error.value.hint
    assert str(started) not in error.value.message


def test_rows_without_a_time_say_nothing_about_the_unit_of_the_others(read):
    log = read([{}, {}, ROWS[0]], column_map=MAP, format="generic")
    assert log.column("arrival_ns") == [1_794_474_012_043_457_000]
    assert [reason for _, reason, _ in log.faults] == ["missing_field", "missing_field"]


@pytest.mark.parametrize(("column", "ns"), [("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1)])
def test_times_from_the_start_of_the_log_need_their_unit_and_are_exact(read, column, ns):
    log = read(as_lines([{"ts": 0}, {"ts": 32412}]), column_map={f"arrival_{column}": "ts"})
    assert log.report.time_origin == "relative"
    assert log.column("arrival_ns") == [0, 32412 * ns]
    assert read("ts,a\n12.043,\n", column_map={"timestamp_s": "ts"}).column("arrival_ns") == [12_043_000_000]


@pytest.mark.parametrize(
    ("started", "ns", "assumed"),
    [
        ("2024-01-01T00:00:00.1234567Z", 1_704_067_200_123_456_700, None),
        ("2024-01-01 01:00:00+01:00", 1_704_067_200_000_000_000, None),
        ("2024-01-01 00:00:00", 1_704_067_200_000_000_000, "UTC"),
    ],
)
@pytest.mark.parametrize("write", [as_csv, as_lines, as_parquet])
def test_dates_are_read_with_their_zone_or_as_utc(read, write, started, ns, assumed):
    log = read(write([{"started": started, "n": 1}]), column_map={"arrival": "started"})
    assert (log.column("arrival_ns"), log.report.tz_assumed) == ([ns], assumed)


def test_timestamps_of_a_parquet_file_are_exact(read):
    out = io.BytesIO()
    times = pa.array([1_794_474_012_043_457_123, None], pa.timestamp("ns", "Europe/Berlin"))
    ids = pa.array([[2**64 - 1, 5], [5]], pa.list_(pa.uint64()))
    pq.write_table(pa.table({"t": times, "ids": ids, "n": pa.array([20.0, float("nan")])}), out)
    log = read(out.getvalue(), column_map={"arrival": "t", "block_ids": "ids", "input_tokens": "n"})
    assert log.column("arrival_ns") == [1_794_474_012_043_457_123]
    assert log.column("chain") == [[2**64 - 1, 5]]
    assert log.faults == [(2, "missing_field", "t")]


@pytest.mark.parametrize(
    ("rows", "bad"),
    [
        ([1794474012, 1794474013, 1794474013000], 3),  # ms among s
        ([1794474012, 1794474013, 5], 3),
        ([1794474012, 1794474013, "2024-01-01 00:00:00"], 3),
        (["2024-01-01 00:00:00", "2024-01-01 00:00:01", 1704067200], 3),
    ],
)
def test_a_time_of_another_kind_costs_its_record(read, rows, bad):
    log = read(as_lines([{"ts": row} for row in rows]), column_map={"arrival": "ts"})
    assert log.faults == [(bad, "mixed_times", "ts")]


def test_the_origin_does_not_change_within_a_log(read):
    log = read(as_lines([{"ts": 1.0}, {"ts": 2.0}, {"ts": 1794474012}]), column_map={"arrival_s": "ts"})
    assert log.report.time_origin == "relative"
    assert log.faults == [(3, "mixed_times", "ts")]


def test_block_ids_are_read_from_json_text_in_a_cell(read):
    rows = 'ts,ids,n\n0,"[1, 2]",32\n1,,32\n2,"[3",32\n3,[4],16\n'
    log = read(rows, column_map={"arrival_s": "ts", "hash_ids": "ids", "prompt_tokens": "n"})
    assert log.column("chain") == [[1, 2], None, [4]]
    assert log.faults == [(4, "wrong_type", "ids")]


def test_block_ids_without_prompt_lengths_are_kept(read):
    log = read(as_lines([{"ts": 0, "ids": [1, 2]}]), column_map={"arrival_s": "ts", "hash_ids": "ids"})
    assert (log.column("chain"), log.column("prompt_tokens")) == ([[1, 2]], [None])


def test_a_key_with_dots_is_found_before_the_path_that_it_looks_like(read):
    rows = [{"ts": 0, "a.b": 5}, {"ts": 0, "a": {"b": 6}}, {"ts": 0, "a": None}]
    log = read(as_lines(rows), column_map={"arrival_s": "ts", "prompt_tokens": "a.b"})
    assert log.column("prompt_tokens") == [5, 6, None]


def test_everything_else_on_a_line_is_skipped_unread(read):
    line = '{"ts": 0, "text": "\\u0000 canary", "huge": 1e999, "nested": {"usage": [1, {"a": []}]}, "n": 4}\n'
    log = read(line, column_map={"arrival_s": "ts", "prompt_tokens": "n"})
    assert log.column("prompt_tokens") == [4]
    assert "canary" not in repr(log.rows)


def test_links_turns_and_gaps_become_what_ingest_asks_of_readers(read):
    columns = {
        "arrival_s": "t", "request_id": "id", "parent_request_id": "up", "turn_index": "turn",
        "gap_ms": "gap",
    }  # fmt: skip
    rows = [{"t": 0, "id": "x", "turn": 0}, {"t": 1, "id": "y", "up": "x", "turn": 1, "gap": 250}]
    log = read(as_lines(rows), column_map=columns)
    assert log.column("link") == log.column("request_id") == ["x", "y"]
    assert log.column("parent_link") == [None, "x"]
    assert (log.column("turn_number"), log.column("think_s")) == ([0, 1], [None, 0.25])


def test_an_end_gives_the_duration(read):
    rows = [{"t": "2024-01-01 00:00:00", "end": "2024-01-01 00:00:02.5"}, {"t": "2024-01-01 00:00:00"}]
    assert read(as_lines(rows), column_map={"arrival": "t", "end": "end"}).column("e2e_s") == [2.5, None]
    back = read(as_lines([{"t": 5, "end": 4}]), column_map={"arrival_s": "t", "end_s": "end"})
    assert back.faults == [(1, "out_of_range", "end")]
    with pytest.raises(UsageError, match="same origin"):
        read(as_lines([{"t": 5, "end": 1794474012}]), column_map={"arrival_s": "t", "end": "end"})


def test_status_is_read_from_words_or_from_the_http_code(read):
    words = [{"t": 0, "s": word} for word in ("ok", "SUCCESS", "cancelled", None, "fine")]
    log = read(as_lines(words), column_map={"arrival_s": "t", "status": "s"})
    assert log.column("status") == ["ok", "ok", "aborted", None]
    assert log.faults == [(5, "unknown_status", "s")]
    codes = [{"t": 0, "c": code} for code in (200, 499, 500, 429, 504, None)]
    log = read(as_lines(codes), column_map={"arrival_s": "t", "http_status": "c"})
    assert log.column("status") == ["ok", "aborted", "error", "rejected", "timeout", None]
    assert log.column("http_status") == [200, 499, 500, 429, 504, None]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"n": 0}, "out_of_range"), ({"n": -3}, "out_of_range"), ({"n": 1.5}, "wrong_type"),
        ({"n": "x"}, "wrong_type"), ({"n": [1]}, "wrong_type"), ({"n": 10**12}, "out_of_range"),
        ({"ts": -1}, "out_of_range"), ({"ts": "later"}, "wrong_type"), ({"ts": None}, "missing_field"),
        ({"d": -1}, "out_of_range"), ({"d": "soon"}, "wrong_type"), ({"m": {"a": 1}}, "wrong_type"),
        ({"f": "maybe"}, "wrong_type"),
    ],
)  # fmt: skip
def test_a_bad_value_costs_its_record_only(read, row, reason):
    columns = {"arrival_s": "ts", "prompt_tokens": "n", "ttft_s": "d", "model": "m", "stream": "f"}
    good = {"ts": 1, "n": 4, "d": 0.5, "m": "big", "f": True}
    log = read(as_lines([good, good | row, good]), column_map=columns)
    ((line, found, _),) = log.faults
    assert (line, found) == (2, reason)
    assert log.column("stream") == [True, True]


@pytest.mark.parametrize(
    ("columns", "message", "hint"),
    [
        ({"arrivel": "ts"}, "'arrivel' is no column", "did you mean arrival?"),
        (
            {"arrival_s": "ts", "promt_tokens": "n"},
            "'promt_tokens' is no column",
            "did you mean prompt_tokens?",
        ),
        ({"prompt_tokens": "n"}, "no field is mapped to arrival", "arrival_s=FIELD"),
        ({"arrival_s": "ts", "ttft": "d"}, "ttft needs its unit", None),
        ({"arrival_s": "ts", "timestamp_ms": "ts"}, "arrival is mapped twice", None),
        ({"arrival_s": "ts", "parent_request_id": "p"}, "needs request_id", None),
        ({"arrival_s": "ts", "model": "a", "tenant": "a.b"}, "lies inside another mapped field", None),
        ({"arrival_s": "ts", "tenant": "a.b", "model": "a"}, "holds another mapped field", None),
    ],
)
def test_a_mapping_that_makes_no_sense_is_a_usage_error(read, columns, message, hint):
    with pytest.raises(UsageError, match=message) as error:
        read(as_lines([{"ts": 0}]), column_map=columns)
    assert hint is None or hint in str(error.value.hint)


@pytest.mark.parametrize("write", [as_csv, as_parquet])
def test_a_column_that_the_table_lacks_is_an_error_that_guesses(read, write):
    with pytest.raises(InputError, match="no column 'stated'") as error:
        read(write(ROWS), column_map={"arrival": "stated"})
    assert error.value.hint == "is it 'started'?"


def test_a_field_that_is_always_empty_is_a_warning(read):
    log = read(as_lines([{"ts": 0}]), column_map={"arrival_s": "ts", "prompt_tokens": "n"})
    assert log.report.warnings == ["log: 'n' (prompt_tokens) is empty on every record"]


def test_every_column_that_can_be_mapped_lands_in_the_schema(read):
    from agentctl.formats._mapping import COUNTS, DURATIONS, TEXT

    names = [*COUNTS, *TEXT, *(f"{stem}_s" for stem in DURATIONS)]
    row = {"ts": 0} | {name: 1 for name in names}
    log = read(as_lines([row]), column_map={"arrival_s": "ts"} | {name: name for name in names})
    moved = {"turn_index": "turn_number", "parent_request_id": "parent_link", "gap_s": "think_s"}
    for name in names:
        assert log.rows[0][moved.get(name, name)] in (1, "1", 1.0), name
        assert name in REQUESTS.names


def test_a_damaged_parquet_file_is_an_error_without_its_content(read):
    whole = as_parquet([{"ts": 0.0, "secret": "canary" * 50}])
    with pytest.raises(InputError, match="cannot be read as Parquet") as error:
        read(whole[:-20], column_map={"arrival_s": "ts"})
    assert "canary" not in str(error.value)


def test_parquet_without_a_mapping_says_what_to_do(read):
    with pytest.raises(InputError) as error:
        read(as_parquet(ROWS))
    assert error.value.hint is not None and "--map" in error.value.hint
