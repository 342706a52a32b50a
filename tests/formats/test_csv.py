"""CSV text: quotes, line ends, and stray quotes that cost one line."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.errors import InputError
from agentctl.formats import _csv
from agentctl.formats._csv import read_csv
from agentctl.formats.base import Reading, ReadOptions
from agentctl.ingest import source as source_module
from agentctl.ingest.quarantine import Quarantine
from agentctl.ingest.source import Source


def parse(path, text: str | bytes) -> tuple[list[dict[str, str]], list[int], Reading]:
    """Records, the lines they begin on, and the reading with its counts."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    reading = Reading(Source(str(path)), Quarantine("log"), ReadOptions())
    records, lines = [], []
    for table in read_csv(reading, []):
        names = list(table.cells)
        records += [dict(zip(names, cells, strict=True)) for cells in zip(*table.cells.values(), strict=True)]
        lines += table.lines.tolist()
    return records, lines, reading


def faults(reading: Reading) -> list[tuple[int, str]]:
    return [(place.line, place.reason) for place in reading.quarantine.places]


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log.csv"


def test_quoted_cells_hold_commas_quotes_and_line_breaks(log):
    records, lines, reading = parse(log, 'a,b\n"1,2","say ""hi"""\n"x\ny\nz",3\n4,5\n')
    assert records == [{"a": "1,2", "b": 'say "hi"'}, {"a": "x\ny\nz", "b": "3"}, {"a": "4", "b": "5"}]
    assert lines == [2, 3, 6]
    assert (reading.n_header_lines, reading.n_continuation_lines) == (1, 2)


def test_cells_above_the_limit_of_pythons_csv_module_are_read(log):
    big = "x" * 400_000
    records, _, reading = parse(log, f'a,b\n"{big}, {big}",1\n{big},2\n')
    assert [len(record["a"]) for record in records] == [800_002, 400_000]
    assert not reading.quarantine.count


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("last", ["", "end"])
def test_line_ends_and_blank_lines_change_nothing(log, end, last):
    text = end.join(["", "a,b", "", "1,2", "  ", '"3",4']) + (end if last else "")
    records, lines, reading = parse(log, b"\xef\xbb\xbf" + text.encode())
    assert records == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert (lines, reading.n_blank_lines, faults(reading)) == ([4, 6], 3, [])


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ('"stray,2', "bad_quotes"),
        ('1,"2" x', "bad_quotes"),
        ('1 "x",2', "bad_quotes"),
        ("1", "cell_count"),
        ("1,2,3", "cell_count"),
        ('"1"', "cell_count"),
    ],
)
def test_a_bad_line_costs_one_line(log, bad, reason):
    _, lines, reading = parse(log, f'a,b\n1,2\n{bad}\n3,4\n"5",6\n')
    assert faults(reading) == [(3, reason)]
    assert lines == [2, 4, 5]
    place = reading.quarantine.places[0]
    assert (place.byte_offset, place.length) == (8, len(bad))


def test_two_stray_quotes_do_not_swallow_what_is_between_them(log):
    _, lines, reading = parse(log, 'a,b\n"1,2\n3,4\n5,6\n7,8"\n9,10\n')
    assert lines == [3, 4, 6]
    assert [line for line, _ in faults(reading)] == [2, 5]


def test_a_stray_quote_before_the_end_of_a_long_file_costs_one_line(log, monkeypatch):
    monkeypatch.setattr(source_module, "CHUNK_BYTES", 1 << 12)
    monkeypatch.setattr(source_module, "SAMPLE_BYTES", 1 << 10)
    monkeypatch.setattr(_csv, "MAX_RECORD_BYTES", 1 << 14)
    text = "a,b\n" + "1,2\n" * 1000 + '"oops,2\n' + "3,4\n" * 20_000
    records, lines, reading = parse(log, text)
    assert faults(reading) == [(1002, "bad_quotes")]
    assert len(records) == 21_000
    assert lines[-1] == 21_002


def test_a_record_across_the_border_of_two_chunks_is_read(log, monkeypatch):
    monkeypatch.setattr(source_module, "CHUNK_BYTES", 1 << 10)
    monkeypatch.setattr(source_module, "SAMPLE_BYTES", 1 << 10)
    line = "line\n"
    text = "a,b\n" + "".join(f'"{line * (k % 50)}",{k}\n' for k in range(300))
    records, _, reading = parse(log, text)
    assert [record["b"] for record in records] == [str(k) for k in range(300)]
    assert records[49]["a"] == "line\n" * 49
    assert not reading.quarantine.count


def test_a_line_that_is_no_text_costs_one_line(log):
    records, _, reading = parse(log, b"a,b\n1,2\n\xff,2\n3,\0\n4,5\n")
    assert [record["a"] for record in records] == ["1", "4"]
    assert faults(reading) == [(3, "invalid_utf8"), (4, "invalid_utf8")]


def test_the_header_of_a_file_put_together_with_cat_is_counted_not_read(log):
    _, lines, reading = parse(log, "a,b\n1,2\na,b\n3,4\n")
    assert lines == [2, 4]
    assert (reading.n_header_lines, faults(reading)) == (2, [])


def test_two_columns_of_a_needed_name_are_an_error(log):
    log.write_text("a,a\n1,2\n")
    with pytest.raises(InputError, match="two columns are called 'a'"):
        list(read_csv(Reading(Source(str(log)), Quarantine("log"), ReadOptions()), ["a"]))


cells = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0\r"), max_size=6)


@given(
    st.lists(st.tuples(cells, cells, st.sampled_from(["x", "1", 'q"q'])), min_size=1, max_size=12),
    st.booleans(),
)
def test_what_pythons_csv_module_writes_is_read_back(tmp_path_factory, rows, all_quoted):
    buffer = io.StringIO()
    writer = csv.writer(
        buffer, quoting=csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL, lineterminator="\n"
    )
    writer.writerow(["one", "two", "three"])
    writer.writerows(rows)
    records, _, reading = parse(tmp_path_factory.mktemp("csv") / "log", buffer.getvalue())
    assert [tuple(record.values()) for record in records] == [row for row in rows]
    assert not reading.quarantine.count
