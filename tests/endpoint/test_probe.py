"""Probing a server of known coefficients: they come back; and a server that misbehaves is found out."""

import asyncio

import pytest
from oracles.endpoint_server import TEMPLATE, Server
from oracles.virtual_time import run

from agentctl.calibrate_endpoint import Asked, measured_from
from agentctl.endpoint.measured import Measured, dialect_of, read_measured
from agentctl.endpoint.rows import read_rows, rows_of
from agentctl.errors import InputError, OutputError, UsageError
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.endpoint_fit import fit_endpoint

TRUE = BatchTime(
    b0=5e-3,
    b_prefill=3e-5,
    b_decode=1e-4,
    b_context=3e-7,
    b_context_mixed=5e-7,
    b_attention=1e-8,
    b_past=4e-7,
)
PLAN = Asked(100, max_context=2048, max_width=6).plan(2048)


def probed(path, requests=100, key=None, prompts="auto", stall_s=5.0, seconds=None, asked_s=300.0, **server):
    """What was measured of such a server, and the server."""
    asked = Asked(requests, asked_s, prompts=prompts, max_context=2048, max_width=6)

    async def go():
        async with Server(TRUE, **server) as endpoint:
            older = read_measured(path) if path.exists() else None
            task = measured_from(
                f"{endpoint.url}/v1", path, asked, key, older=older, stall_s=stall_s, cpu_time=lambda: 0.0
            )
            return await (task if seconds is None else asyncio.wait_for(task, seconds)), endpoint

    return run(go())


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """What was measured of a server without faults, and the file."""
    path = tmp_path_factory.mktemp("probe") / "m.jsonl"
    return probed(path)[0], path


def test_the_coefficients_of_the_server_come_back(whole):
    measured = whole[0]
    read = read_rows(measured)
    fitted = fit_endpoint(read.rows)
    assert read.set_aside == {} and read.read == PLAN.n_requests == len(measured.requests)
    assert (fitted.budget, fitted.budget_status) == (512, "found")
    assert fitted.values["delta"] == pytest.approx(0.003, rel=1e-3)
    for name in ("b0", "b_prefill", "b_decode", "b_context", "b_context_mixed", "b_attention", "b_past"):
        assert fitted.values[name] == pytest.approx(getattr(TRUE, name), rel=1e-3), name


def test_what_was_measured_reads_back_as_it_was_written(whole):
    measured, path = whole
    again = read_measured(path)
    assert read_rows(again) == read_rows(measured) and again.attempts == 1


def test_no_prompt_no_answer_and_no_key_is_written(tmp_path):
    _, server = probed(tmp_path / "m.jsonl", key="secret", fault="need-key")
    head, *rows = (tmp_path / "m.jsonl").read_text().splitlines()
    assert "Bearer secret" in server.headers[0]
    assert "secret" not in head and "127.0.0.1" not in head
    for word in ("secret", 'prompt"', "text", "127.0.0.1"):
        assert not any(word in row for row in rows)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"fault": "http", "status": 500}, "HTTP 500"),
        ({"fault": "http", "status": 404}, "no such path or model"),
        ({"fault": "http", "status": 400}, "the request was refused"),
        ({"fault": "http", "status": 429}, "too many requests"),
        ({"fault": "need-key"}, "HTTP 401: not allowed"),
        ({"fault": "redirect"}, "HTTP 307: it sends us elsewhere"),
        ({"fault": "not-streamed"}, "not streamed"),
        ({"fault": "stall"}, "no chunk came"),
        ({"fault": "slow-headers"}, "no chunk came"),
        ({"fault": "babble"}, "no chunk came"),
        ({"fault": "close"}, "ended before"),
        ({"fault": "garbage"}, "no sequence of events"),
        ({"fault": "huge-line"}, "no sequence of events"),
        ({"fault": "endless"}, "no sequence of events"),
        ({"fault": "error-event"}, "an error inside the stream"),
        ({"fault": "no-usage"}, "reports no usage"),
        ({"fault": "wrong-usage", "takes": ("ids", "completions", "extras")}, "the request was refused"),
        ({"fault": "no-list", "status": 302}, "HTTP 302: it sends us elsewhere"),
        ({"fault": "other-traffic"}, "serving 3 other requests"),
        ({"fault": "http", "status": 503, "good": 20}, "HTTP 503"),
        ({"fault": "garbage", "good": 20}, "no sequence of events"),
    ],
)
def test_a_server_that_cannot_be_probed_is_an_error_in_words(tmp_path, server, message):
    with pytest.raises(InputError, match=message) as refused:
        probed(tmp_path / "m.jsonl", **server)
    assert refused.value.hint or refused.value.expected
    assert "secret words" not in str(refused.value)


def test_usage_that_miscounts_token_ids_is_not_trusted(tmp_path):
    with pytest.raises(InputError, match="48 token ids were sent and usage says 144"):
        probed(tmp_path / "m.jsonl", prompts="tokens", fault="wrong-usage")


@pytest.mark.parametrize(
    ("fault", "reason", "missing"),
    [
        ("coalesce", "chunks are not tokens", "b_decode"),
        ("bunch", "chunks came in bunches", "b_decode"),
        ("buffer", "chunks came in bunches", "b_decode"),
        ("stop", "another output length than asked for", "b_decode"),
        ("no-cached", "hits not reported", None),
    ],
)
def test_what_cannot_be_trusted_is_set_aside_and_not_claimed(tmp_path, fault, reason, missing):
    measured, _ = probed(tmp_path / "m.jsonl", fault=fault, good=0 if fault == "bunch" else 3)
    read = read_rows(measured)
    fitted = fit_endpoint(read.rows)
    assert read.set_aside[reason] > 1
    if missing:
        assert missing in fitted.missing and fitted.coefficients[missing].value is None
    else:  # fresh prompts need no report: their hits are none
        assert fitted.missing == [] and {row.kind for row in read.rows} == {"cold", "plateau", "inject"}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("cached-more", "more cached than sent before"),
        ("few-completed", "another output length than asked for"),
        ("other-traffic", "other traffic"),
        ("cached-all", "more cached than sent before"),
    ],
)
def test_where_every_row_is_set_aside_nothing_is_fitted(tmp_path, fault, reason):
    measured, _ = probed(tmp_path / "m.jsonl", fault=fault, good=3)
    read = read_rows(measured)
    assert read.set_aside[reason] > 60
    with pytest.raises(InputError, match="usable rows are too few"):
        fit_endpoint(read.rows)


def test_words_of_impossible_length_are_set_aside(tmp_path):
    takes = ("text", "completions", "extras")
    measured, _ = probed(tmp_path / "m.jsonl", takes=takes, fault="vast-usage", good=5)
    assert read_rows(measured).set_aside["usage differs from what was sent"] > 60


def test_metrics_that_never_answer_do_not_eat_up_the_time(tmp_path):
    measured, _ = probed(tmp_path / "m.jsonl", fault="mute", good=3)
    assert len(measured.steps) == len(PLAN.steps)
    assert measured.seconds_spent < 20.0 and fit_endpoint(read_rows(measured).rows).missing == []


@pytest.mark.parametrize(
    "name", ["a\x1b[31m", "\ud800", "\u202egnp", "n" * 301, "", None, 7, "Bearer secret"]
)
def test_a_models_name_that_cannot_be_shown_is_not_taken_over(tmp_path, name):
    with pytest.raises(UsageError, match="no name that can be shown") as refused:
        probed(tmp_path / "m.jsonl", key="secret", name=name)
    assert refused.value.place == "--served-model" and "secret" not in str(refused.value)
    assert not (tmp_path / "m.jsonl").exists()


def test_a_disk_that_is_full_is_an_error_in_words(tmp_path, monkeypatch):
    class Full:
        def write(self, text):
            raise OSError(28, "No space left on device")

        def close(self):
            self.write("")

    opened = Measured.open

    def fill(self):
        opened(self)
        self._file = Full()

    monkeypatch.setattr(Measured, "open", fill)
    with pytest.raises(OutputError, match="No space left"):
        probed(tmp_path / "m.jsonl")


def test_a_last_line_that_lacks_its_end_alone_is_kept_and_the_next_row_begins_a_line(whole, tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text(whole[1].read_text().removesuffix("\n"))
    again = read_measured(path)
    again.open()
    again.close()
    assert read_measured(path).attempts == 2 and len(read_measured(path).steps) == len(whole[0].steps)


def test_a_few_failures_are_marked_and_the_run_goes_on(tmp_path):
    class Hiccup(Server):
        def is_bad(self, fault):
            return fault == "http" and len(self.seen) == 30

    async def go():
        async with Hiccup(TRUE, fault="http") as endpoint:
            asked = Asked(100, max_context=2048, max_width=6)
            path = tmp_path / "m.jsonl"
            return await measured_from(f"{endpoint.url}/v1", path, asked, cpu_time=lambda: 0.0)

    read = read_rows(run(go()))
    assert read.set_aside["HTTP error"] >= 1 and fit_endpoint(read.rows).missing == []


def test_an_interrupted_run_keeps_what_it_saw_and_goes_on_from_there(tmp_path):
    with pytest.raises(TimeoutError):
        probed(tmp_path / "m.jsonl", seconds=1.0)
    first = read_measured(tmp_path / "m.jsonl")
    assert 0 < len(first.steps) < len(PLAN.steps)
    assert [row["status"] for row in first.requests[-1:]] == ["cut"]
    measured, server = probed(tmp_path / "m.jsonl")
    done = sum(step.n_requests for step in PLAN.steps if step.name in first.steps)
    assert len(server.seen) == PLAN.n_requests - done and measured.attempts == 2
    assert fit_endpoint(read_rows(measured).rows).values["b0"] == pytest.approx(TRUE.b0, rel=1e-3)


def test_a_half_written_last_line_is_left_out_and_a_damaged_one_is_an_error(whole, tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text(whole[1].read_text() + '{"step":"mi')
    assert len(read_measured(path).requests) == len(whole[0].requests)
    path.write_text(path.read_text().replace('"step":', '"stop":', 1))
    with pytest.raises(InputError, match="no row of a probe"):
        read_measured(path)


def test_no_more_time_is_spent_than_was_allowed(tmp_path):
    measured, _ = probed(tmp_path / "m.jsonl", asked_s=2.0)
    last = max(row["sent"] + (row["end_s"] or 0.0) for row in measured.requests)
    assert last < 2.1
    assert {row["kind"] for row in measured.requests} >= {"cold", "plateau", "mixed"}


@pytest.mark.parametrize(
    ("takes", "api"),
    [
        (("text", "completions"), "completions"),
        (("text", "chat", "extras"), "chat"),
        (("text", "chat"), "chat"),
    ],
)
def test_words_are_sent_where_token_ids_are_not_taken(tmp_path, monkeypatch, takes, api):
    """That server's tokens are letters, and its chat's template is 23 of them."""
    monkeypatch.setattr("agentctl.calibrate_endpoint.new_salt", lambda: "salt")
    measured, server = probed(tmp_path / "m.jsonl", takes=takes)
    dialect = dialect_of(measured.header, "")
    assert (dialect.api, dialect.prompts) == (api, "text")
    assert dialect.extras == (("ignore_eos", "cache_salt") if "extras" in takes else ())
    assert dialect.tokens_per_word == pytest.approx(4.6, abs=0.5)
    assert dialect.tokens_around == pytest.approx(len(TEMPLATE) if api == "chat" else 0, abs=12)
    asked = {row["asked_tokens"]: row["prompt_tokens"] for row in measured.requests}
    assert asked[1024] == pytest.approx(1024, rel=0.06)
    fitted = fit_endpoint(read_rows(measured).rows)
    assert fitted.values["b_prefill"] == pytest.approx(TRUE.b_prefill, rel=1e-3)
    assert len(server.seen) <= 100


def test_a_letter_is_forced_where_half_characters_are_withheld(tmp_path):
    measured, server = probed(tmp_path / "m.jsonl", kind="llamacpp", fault="half")
    assert dialect_of(measured.header, "").bias_token == 64
    assert server.seen[-1]["logit_bias"] == {"64": 100}
    assert read_rows(measured).set_aside == {}
    assert measured.header["limits"] == {"max_model_len": 2048, "max_num_seqs": 4}


def test_what_the_server_says_of_its_cache_is_kept(tmp_path):
    said = 'block_size="16",num_gpu_blocks="500"'
    with pytest.raises(InputError):
        probed(tmp_path / "m.jsonl", limits=said, fault="http", good=5)
    measured = read_measured(tmp_path / "m.jsonl")
    assert measured.header["limits"] == {"max_model_len": 4096, "kv_blocks": 500, "block_tokens": 16}


def test_every_request_carries_the_salt_of_its_run(tmp_path):
    _, server = probed(tmp_path / "m.jsonl")
    assert len({body["cache_salt"] for body in server.seen}) == 2  # the trial's, and the attempt's
    assert all(body["ignore_eos"] for body in server.seen)


def test_a_decode_with_withheld_chunks_does_not_spoil_its_plateau(whole):
    """llama.cpp sends no chunk for half a character: the neighbours' gaps still tell the time."""
    measured = whole[0]
    spoilt = [dict(row) for row in measured.rows()]
    one = next(row for row in spoilt if row["step"] == "plateau-6-512")
    one["chunks_s"] = one["chunks_s"][:5] + one["chunks_s"][7:]
    cells = {row.cell: row for row in read_rows(measured).rows}
    found = {row.cell: row for row in rows_of(spoilt, measured.steps).rows}
    assert found["plateau-6-512"].n_decode == 6
    assert found["plateau-6-512"].seconds == pytest.approx(cells["plateau-6-512"].seconds, rel=1e-3)
    assert found["plateau-6-512"].context == pytest.approx(cells["plateau-6-512"].context, rel=0.02)
