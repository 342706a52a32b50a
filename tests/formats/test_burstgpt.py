"""BurstGPT: failures, optional sessions, totals."""

import pytest

HEADER = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
GOOD = "5,s1,2.5,ChatGPT,472,18,490,Conversation log"


def test_the_rendering_gives_the_truth_that_it_carries(read, data, truth):
    log = read(data / "formats" / "burstgpt" / "trace.csv")
    assert (log.report.format, log.report.time_origin) == ("burstgpt", "relative")
    midnight = truth[0]["arrival_unix_s"] // 86400 * 86400
    for got, true in zip(log.rows, truth, strict=True):
        assert got["arrival_ns"] / 1e9 == pytest.approx(true["arrival_unix_s"] - midnight, abs=1.01e-3)
        assert got["prompt_tokens"] == true["input_tokens"]
        assert got["output_tokens"] == (true["output_tokens"] if true["status"] == "ok" else 0)
        assert got["e2e_s"] == pytest.approx(true["e2e_s"], abs=1.01e-3)
        assert got["session_id"] in (None, true["session_id"])
        assert (got["status"] == "ok") == (true["status"] == "ok")
    assert 0 < sum(session is not None for session in log.column("session_id")) < len(log.rows)


def test_the_first_release_without_sessions_is_read(read):
    log = read(
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,230,1317,API log\n"
    )
    assert log.column("arrival_ns") == [5_000_000_000, 45_000_000_000]
    assert log.column("model") == ["ChatGPT", "GPT-4"]


def test_a_row_without_response_tokens_is_a_failure(read):
    log = read(f"{HEADER}\n{GOOD}\n1106,,,ChatGPT,0,0,0,API log\n1107,,1.0,ChatGPT,12,0,12,API log\n")
    assert log.column("status") == ["ok", "error", "error"]
    assert log.column("prompt_tokens") == [472, None, 12]  # 0 was not recorded
    assert log.column("output_tokens") == [18, 0, 0]
    assert log.column("session_id") == ["s1", None, None]
    assert log.column("e2e_s") == [2.5, None, 1.0]


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("5,s1,2.5,ChatGPT,472,18,491,Conversation log", ("total_differs", "Total tokens")),
        ("5,s1,2.5,ChatGPT,0,18,18,Conversation log", ("out_of_range", "Request tokens")),
        ("5,s1,-1,ChatGPT,4,18,22,Conversation log", ("out_of_range", "Elapsed time")),
        ("5,s1,nan,ChatGPT,4,18,22,Conversation log", ("wrong_type", "Elapsed time")),
        ("-5,s1,1,ChatGPT,4,18,22,Conversation log", ("out_of_range", "Timestamp")),
        ("x,s1,1,ChatGPT,4,18,22,Conversation log", ("wrong_type", "Timestamp")),
        (",s1,1,ChatGPT,4,18,22,Conversation log", ("missing_field", "Timestamp")),
        ("5,s1,1,ChatGPT,,18,18,Conversation log", ("missing_field", "Request tokens")),
    ],
)
def test_a_bad_line_costs_one_line(read, line, fault):
    log = read("\n".join([HEADER, GOOD, line, GOOD, ""]))
    assert log.faults == [(3, *fault)]
    assert len(log.rows) == 2
