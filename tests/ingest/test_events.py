"""Gauges of engines: spooled, put in order, and read back from the dataset."""

import pyarrow.parquet as pq

from agentctl.ingest import events as module
from agentctl.ingest.build import ingest
from agentctl.ingest.events import Events, write_events
from agentctl.schema import EVENTS
from agentctl.trace import EVENTS_FILE


def spool(path, rows) -> None:
    events = Events(path)
    for line, (ts, values) in enumerate(rows, start=1):
        events.add(ts, "gauge", line, **values)
    events.close()


def test_events_of_several_files_come_in_order_of_time_and_ties_in_order_of_files_and_lines(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "_BUFFERED", 2)
    monkeypatch.setattr(module, "_ROW_GROUP", 3)
    spool(
        tmp_path / "a",
        [(5_000_000_000, {"running": n}) for n in range(3)] + [(1_000_000_000, {"running": 3})],
    )
    spool(tmp_path / "b", [(5_000_000_000, {"kv_usage": 0.5, "instance": "e"})])
    write_events(
        tmp_path / "out", [("A", tmp_path / "a"), ("B", tmp_path / "b")], time_origin_ns=3_000_000_000
    )
    table = pq.read_table(tmp_path / "out")
    assert table.schema.equals(EVENTS)
    rows = table.to_pylist()
    assert [(row["ts_s"], row["source_file"], row["source_row"], row["running"]) for row in rows] == [
        (-2.0, "A", 4, 3), (2.0, "A", 1, 0), (2.0, "A", 2, 1), (2.0, "A", 3, 2), (2.0, "B", 1, None),
    ]  # fmt: skip
    assert (rows[-1]["kv_usage"], rows[-1]["instance"], rows[0]["kv_usage"]) == (0.5, "e", None)


def test_an_impossible_time_is_no_event(tmp_path):
    events = Events(tmp_path / "a")
    assert [events.add(ts, "gauge", 1) for ts in (-1, 1 << 62, 1 << 80, 0)] == [False, False, False, True]
    assert events.n == 1


def test_events_may_lie_years_from_the_first_request(tmp_path):
    year = 365 * 86_400
    spool(tmp_path / "a", [(year * 10**9 + 500_000_000, {"running": 1})])
    write_events(tmp_path / "out", [("A", tmp_path / "a")], time_origin_ns=4 * year * 10**9)
    assert pq.read_table(tmp_path / "out")["ts_s"].to_pylist() == [0.5 - 3 * year]


def test_a_file_without_events_leaves_no_spool(tmp_path):
    events = Events(tmp_path / "a")
    events.close()
    assert events.n == 0 and not (tmp_path / "a").exists()


def test_a_dataset_of_a_log_without_events_has_none(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text('{"timestamp": 5, "input_length": 20, "output_length": 3}\n')
    trace = ingest([log], tmp_path / "a.trace").trace
    assert not (trace.path / EVENTS_FILE).exists()
    assert trace.events().is_empty() and trace.events().columns == EVENTS.names
