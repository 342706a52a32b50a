"""Azure: seven digits of a second, and whose zone."""

import pytest

from agentctl.errors import InputError

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"


def test_the_rendering_gives_the_truth_that_it_carries(read, data, served):
    log = read(data / "formats" / "azure" / "trace.csv")
    assert (log.report.format, log.report.time_origin, log.report.tz_assumed) == ("azure", "absolute", "UTC")
    assert log.column("prompt_tokens") == [true["input_tokens"] for true in served]
    assert log.column("output_tokens") == [true["output_tokens"] for true in served]
    for got, true in zip(log.rows, served, strict=True):
        assert got["arrival_ns"] / 1e9 == pytest.approx(true["arrival_unix_s"], abs=1e-6)


def test_the_public_trace_is_read_to_the_last_digit(read, data):
    log = read(data / "azure" / "code_first_200.csv")
    assert len(log.rows) == 200
    # 2023-11-16 18:17:03.9799600 UTC
    assert log.rows[0]["arrival_ns"] == 1_700_158_623_979_960_000
    assert (log.rows[0]["prompt_tokens"], log.rows[0]["output_tokens"]) == (4808, 10)


def test_arrivals_a_few_milliseconds_apart_stay_apart(read):
    """kubernetes-sigs/inference-perf PR 782: cut to two digits, 1, 2, 9 and 11 ms became 0, 0, 0, 10 ms."""
    times = ["0010000", "0020000", "0090000", "0110001"]
    log = read("\n".join([HEADER, *(f"2023-11-16 18:17:03.{t},5,1" for t in times)]))
    start = log.rows[0]["arrival_ns"] - 1_000_000
    assert [ns - start for ns in log.column("arrival_ns")] == [1_000_000, 2_000_000, 9_000_000, 11_000_100]


@pytest.mark.parametrize(
    ("time", "ns"),
    [
        ("2024-05-10 00:00:00.009930+00:00", 1_715_299_200_009_930_000),
        ("2024-05-10 02:00:00.009930+02:00", 1_715_299_200_009_930_000),
        ("2024-05-10T00:00:00.00993Z", 1_715_299_200_009_930_000),
        ("2024-05-09 17:30:00-0630", 1_715_299_200_000_000_000),
    ],
)
def test_a_zone_in_the_file_is_honoured(read, time, ns):
    log = read(f"{HEADER}\n{time},5,1\n")
    assert log.column("arrival_ns") == [ns]
    assert log.report.tz_assumed is None


def test_the_images_of_the_multimodal_trace_are_not_tokens(read):
    log = read(f"{HEADER},NumImages\n2024-05-10 00:00:00,5,1,3\n")
    assert (log.report.format, log.column("prompt_tokens")) == ("azure", [5])


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("noon,5,1", ("wrong_type", "TIMESTAMP")),
        (",5,1", ("missing_field", "TIMESTAMP")),
        ("2023-02-30 00:00:00,5,1", ("wrong_type", "TIMESTAMP")),
        ("1969-12-31 00:00:00,5,1", ("out_of_range", "TIMESTAMP")),
        ("2023-11-16 00:00:00,0,1", ("out_of_range", "ContextTokens")),
        ("2023-11-16 00:00:00,-4,1", ("out_of_range", "ContextTokens")),
        ("2023-11-16 00:00:00,1.5,1", ("wrong_type", "ContextTokens")),
        ("2023-11-16 00:00:00,0x10,1", ("wrong_type", "ContextTokens")),
        ("2023-11-16 00:00:00,,1", ("missing_field", "ContextTokens")),
        ("2023-11-16 00:00:00,5,", ("missing_field", "GeneratedTokens")),
        ("2023-11-16 00:00:00,5", ("cell_count", None)),
        ("2023-11-16 00:00:00,5,1,9", ("cell_count", None)),
    ],
)
def test_a_bad_line_costs_one_line(read, line, fault):
    good = "2023-11-16 00:00:00,5,1"
    log = read("\n".join([HEADER, good, line, good, ""]))
    assert log.faults == [(3, *fault)]
    assert log.column("source_row") == [2, 4]
    assert (log.report.n_lines, log.report.n_header_lines, log.report.n_quarantined_lines) == (4, 1, 1)


def test_whole_numbers_may_be_written_as_floats(read):
    assert read(f"{HEADER}\n2023-11-16 00:00:00,5.0,1.\n").column("prompt_tokens") == [5]


def test_a_header_without_a_needed_column_is_an_error_that_guesses(read):
    with pytest.raises(InputError, match="no column 'GeneratedTokens'") as error:
        read("TIMESTAMP,ContextTokens,Generated Tokens\n", format="azure")
    assert error.value.hint == "is it 'Generated Tokens'?"
