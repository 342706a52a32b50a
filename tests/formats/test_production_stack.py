"""Router log of the vLLM production-stack: placements, text and JSON, retries and split requests.

| column | carried | |
| --- | --- | --- |
| arrival | yes | when the router got it, which the rendering puts a process time of 1 ms too early |
| request_id, session, instance | yes | all 358, failures too |
| tokens, latencies, status, model, tenant, prompts | no | |
"""

import json

from agentctl.ingest.build import ingest

LOG = "formats/production_stack/router.log.gz"
ID = "698d51a1-9d8a-121c-e581-499d7b701668"


def line(at="1794474012.043457", process="0.0009", session="s", url="http://10.42.7.4:8000", id=ID, end=""):
    time = f" at {at}, process time = {process}" if at else ""
    return (
        f"[2026-11-12 09:00:12,044] INFO: Routing request {id} with session id {session} to {url}{time}{end}"
        " (request.py:600:vllm_router.services.request_service.request)\n"
    )


def test_the_rendering_gives_the_truth_that_it_carries(read, data, truth):
    log = read(data / LOG)
    assert log.report.format == "production_stack" and log.report.time_origin == "absolute"
    assert log.report.tz_assumed is None
    assert [name.replace("-", "") for name in log.column("request_id")] == [t["request_id"] for t in truth]
    assert log.column("join_id") == log.column("request_id")
    assert log.column("session_id") == [t["session_id"] for t in truth]
    for row, true in zip(log.rows, truth, strict=True):
        assert 0.0008 < true["arrival_unix_s"] - row["arrival_ns"] / 1e9 < 0.0016  # the process time
    by_session = {}
    for row in log.rows:
        by_session.setdefault(row["session_id"], set()).add(row["instance"])
    assert all(len(engines) == 1 for engines in by_session.values())  # session routing
    assert {row["instance"] for row in log.rows} == {f"10.42.7.{k}:8000" for k in (4, 5, 6, 7)}


def test_the_dataset_has_the_sessions_and_no_more_than_the_log(data, truth, tmp_path):
    trace = ingest([data / LOG], tmp_path / "a.trace").trace
    table = trace.requests(["request_id", "session_id", "session_source", "turn_index", "gap_s", "ttft_s"])
    assert [name.replace("-", "") for name in table["request_id"]] == [t["request_id"] for t in truth]
    assert list(table["session_id"]) == [t["session_id"] for t in truth]
    assert set(table["session_source"]) == {"header"}
    assert table["ttft_s"].null_count() == len(table) == table["gap_s"].null_count()


def test_the_json_form_and_colours_give_the_same_rows(read, data):
    plain = read(line())
    coloured = read("\x1b[32;20m" + line().replace("INFO:", "INFO:\x1b[0m"))
    record = {"timestamp": "2026-11-12 09:00:12,044", "level": "INFO", "logger": "vllm_router"}
    record |= {"message": line().removeprefix("[2026-11-12 09:00:12,044] INFO: "), "lineno": 600}
    assert plain.rows == coloured.rows == read([record]).rows
    assert plain.report.format == "production_stack"
    assert plain.column("arrival_ns") == [1794474012_043457000 - 900_000]


def test_a_session_may_have_blanks_and_none_is_none(read):
    log = read(line(session="my to do") + line(session="None") + line().replace(" with session id s", ""))
    assert log.column("session_id") == ["my to do", None, None]


def test_a_split_request_is_placed_on_the_engine_that_prefilled_it(read):
    prefill = line(at="100.5", process="0.5", session="None", url="http://prefill:8000/")
    decode = line(at="100.5021", process="0.0021", session="None", url="http://decode:8000/")
    other = line(at="100.6", process="0.0010", session="None", id="other")
    log = read(prefill + other + decode)
    assert log.column("instance") == ["prefill:8000", "10.42.7.4:8000"]
    assert log.column("arrival_ns") == [100_000_000_000, 100_599_000_000]
    assert log.report.dropped == {"decode_of_a_split_request": 1}


def test_an_id_that_a_caller_uses_again_is_not_the_second_half_of_a_split_request(read):
    log = read(line(at="100.5") + line(at="103.5"))
    assert log.column("arrival_ns") == [100_499_100_000, 103_499_100_000]


def test_a_retry_on_another_engine_is_a_row_of_its_own(read):
    first = line(at="100.5", url="http://a:1", end=" (attempt 1/3)")
    second = line(at="101.5", url="http://b:1", end=" (attempt 2/3)")
    log = read(first + second)
    assert log.column("request_id") == [ID, f"{ID}#2"]
    assert log.column("join_id") == [ID, ID]
    assert log.column("instance") == ["a:1", "b:1"]


def test_without_the_routers_own_time_the_time_of_the_line_stands_in(read):
    log = read(line(at=None))
    assert log.column("arrival_ns") == [1794474012_044000000]
    assert log.report.tz_assumed == "UTC"
    log = read(line() + line(at=None).replace("[2026-11-12 09:00:12,044] INFO: ", ""))
    assert log.faults == [(2, "missing_field", "at")]


def test_other_lines_are_counted_and_nothing_of_them_is_kept(read):
    start = "[2026-11-12 09:00:00,000] INFO: Scraping metrics from SECRET (engine_stats.py:1:x)\n"
    debug = "[2026-11-12 09:00:00,000] DEBUG: Routing request SECRET for model: m (request.py:1:x)\n"
    log = read(start + debug + "\n" + line() + "Traceback: SECRET\n")
    assert len(log.rows) == 1 and log.faults == []
    assert log.report.dropped == {}
    assert (log.report.n_lines, log.report.n_blank_lines, log.report.n_other_lines) == (5, 1, 3)
    assert "SECRET" not in json.dumps(log.rows)


def test_bytes_that_are_no_text_cost_their_line(read):
    log = read(line().encode() + b"\xff Routing request\n" + line(id="b").encode())
    assert log.faults == [(2, "invalid_utf8", None)] and len(log.rows) == 2
