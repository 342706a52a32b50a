"""A slice of a trace replayed at a server and simulated: the same requests, the same hits, the same times."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest
from oracles.endpoint_server import Server
from oracles.virtual_time import run

from agentctl.endpoint.prompts import Prompts
from agentctl.endpoint.replayed import read_replayed
from agentctl.endpoint.slice import Contents, cut
from agentctl.errors import InputError, UsageError
from agentctl.estimators.batch_time import BatchTime
from agentctl.ingest.build import IngestOptions, ingest
from agentctl.profile import Profile
from agentctl.validate_endpoint import Asked, compare, measure, replayed_from
from agentctl.workload import compile_workload

TRUE = BatchTime(
    b0=5e-3, b_prefill=3e-5, b_decode=1e-4, b_context=3e-7, b_context_mixed=3e-7, b_attention=1e-8
)
PROFILE = Profile(
    TRUE, kv_blocks=4000, block_tokens=16, max_num_batched_tokens=512, fit={"request_overhead_s": 0.003}
)
BLOCK = 64
QUICK = Asked(rate=1000.0)
MAP = {
    "request_id": "id", "session_id": "s", "arrival_s": "at", "prompt_tokens": "in", "output_tokens": "out",
    "ttft_s": "ttft", "e2e_s": "e2e", "hash_ids": "ids",
}  # fmt: skip


def records(sessions=8, turns=3, seed=1):
    """Agents with one system prompt of three blocks; each turn goes on from the one before, half a second
    after its end."""
    random = np.random.default_rng(seed)
    for s in range(sessions):
        at, tokens = float(s * 0.4), 200 + 40 * s
        for t in range(turns):
            output = int(random.integers(8, 24))
            blocks = -(-tokens // BLOCK)
            chain = [1, 2, 3, *(1000 * (s + 1) + k for k in range(3, blocks))]
            if tokens % BLOCK:  # the last block is not whole: another content than the whole one
                chain[-1] += 500 + 50 * t
            yield {
                "id": f"{s}-{t}", "s": f"s{s}", "at": at, "in": tokens, "out": output, "ttft": 0.05,
                "e2e": 0.3, "ids": chain,
            }  # fmt: skip
            at += 0.8
            tokens += output + int(random.integers(30, 150))


def trace_of(folder, rows=None):
    path = folder / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (rows or records())))
    options = IngestOptions(format="generic", map=MAP, sessions="explicit", block_tokens=BLOCK)
    return ingest([path], folder / "log.trace", options).trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return trace_of(tmp_path_factory.mktemp("trace"))


def replayed(trace, path, asked=None, key=None, stall_s=5.0, stop_s=None, **server):
    """What was measured of such a server in virtual time, and the server."""

    async def go():
        async with Server(TRUE, **server) as endpoint:
            base = f"{endpoint.url}/v1"
            task = replayed_from(
                base, trace, path, asked or Asked(), key, stall_s=stall_s, cpu_time=lambda: 0.0
            )
            return await (task if stop_s is None else asyncio.wait_for(task, stop_s)), endpoint

    return run(go())


@pytest.fixture(scope="module")
def whole(trace, tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "m.jsonl"
    return *replayed(trace, path, QUICK), path


def test_a_server_of_known_speed_is_reproduced_request_by_request(trace, whole):
    result = compare(trace, whole[0], QUICK, PROFILE)
    told = result.document
    assert told["verdict"]["status"] == "OK"
    for name in ("ttft_s", "e2e_s", "tpot_s"):
        assert told["latencies"][name]["mape"]["value"] < 1e-3
    assert told["hit_ratio"]["logged"] > 0.4
    assert abs(told["hit_ratio"]["gap"]["value"]) < 1e-9
    assert told["endpoint"]["compared"] == told["endpoint"]["sent"] == 24
    for one in told["distribution"]:
        assert one["correlation"] > 0.999 and one["ks"] < 0.05 and one["ks_own_pace"] < 0.05


def test_turns_come_their_gap_after_the_end_of_the_turn_before(trace, whole):
    rows = {row["request"]: row for row in whole[0].rows}
    part = cut(compile_workload(trace), 200, 300.0, 1.0, None)
    requests = part.workload.requests
    waits = np.flatnonzero(np.diff(requests.deps_start))
    assert waits.size == 16
    for r in waits:
        before = rows[int(requests.deps[requests.deps_start[r]])]
        gap = rows[int(r)]["sent"] - before["sent"] - before["end_s"]
        assert gap == pytest.approx(0.5, abs=1e-6)
    firsts = [rows[int(r)]["sent"] for r in np.flatnonzero(requests.turn == 0)]
    assert firsts == pytest.approx([0.4 * s for s in range(8)], abs=0.1)


def test_prompts_share_exactly_what_the_blocks_say(trace):
    part = cut(compile_workload(trace), 200, 300.0, 1.0, None)
    contents, prompts = Contents(part.workload), Prompts("salt")
    tokens = [prompts.of(contents.pieces(r)) for r in range(part.n_requests)]
    ids = [contents.identities(r, 16) for r in range(part.n_requests)]
    assert [len(one) for one in tokens] == part.workload.requests.prompt_tokens.tolist()
    assert [len(one) for one in ids] == [len(one) // 16 for one in tokens]
    for a in range(part.n_requests):
        for b in range(a):
            shared = next((k for k, (x, y) in enumerate(zip(ids[a], ids[b], strict=False)) if x != y),
                          min(len(ids[a]), len(ids[b])))  # fmt: skip
            assert tokens[a][: 16 * shared] == tokens[b][: 16 * shared]
            assert shared >= 12  # the system prompt
            if shared < min(len(ids[a]), len(ids[b])):
                assert tokens[a][16 * shared : 16 * shared + 16] != tokens[b][16 * shared : 16 * shared + 16]
    requests = part.workload.requests
    for r, before in enumerate(requests.parent.tolist()):  # a turn begins with all of the one before
        if before >= 0:
            assert tokens[r][: len(tokens[before])] == tokens[before]


def test_sessions_are_taken_whole_and_too_long_requests_are_counted(trace):
    workload = compile_workload(trace)
    part = cut(workload, 10, 300.0, 1.0, None)
    assert (part.n_requests, part.sessions) == (9, 3)
    part = cut(workload, 200, 300.0, 1.0, 500)
    tokens = part.workload.requests.prompt_tokens + part.workload.requests.output_tokens
    assert tokens.max() <= 500
    assert part.left_out["longer than the server's context"] > 5
    assert part.n_requests + sum(part.left_out.values()) == 24
    early = cut(workload, 200, 2.0, 1.0, None)
    assert early.left_out["after the time allowed, by the log"] > 0
    assert cut(workload, 200, 2.0, 10.0, None).n_requests > early.n_requests
    with pytest.raises(InputError, match="the shortest has 3 requests"):
        cut(workload, 2, 300.0, 1.0, None)
    with pytest.raises(InputError, match="longer than the server takes"):
        cut(workload, 200, 300.0, 1.0, 100)


def test_the_servers_own_limits_are_simulated(trace, tmp_path):
    said = 'block_size="16",num_gpu_blocks="1234"'
    rows, _ = replayed(trace, tmp_path / "m.jsonl", limits=said)
    told = compare(trace, rows, Asked(), replace(PROFILE, kv_blocks=None, block_tokens=None)).document
    pool = told["cluster"]["pools"][0]
    assert (pool["kv_blocks"], pool["block_tokens"], pool["max_model_len"]) == (1234, 16, 4096)
    assert told["verdict"]["status"] == "OK"


def test_another_engine_than_the_profile_says_is_found_out(trace, whole):
    slow = replace(PROFILE, batch_time=TRUE._replace(b0=2 * TRUE.b0))
    result = compare(trace, whole[0], QUICK, slow)
    assert result.document["verdict"]["status"] == "FAIL" and result.exit_code == 3
    assert "does not reproduce this server" in result.sections[0].sentence
    ks = {one["latency"]: one["ks"] for one in result.document["distribution"]}
    assert ks["tpot_s"] > 0.5


def test_no_prompt_no_id_no_key_and_no_address_is_written(trace, tmp_path):
    rows, server = replayed(trace, tmp_path / "m.jsonl", key="secret", fault="need-key")
    text = (tmp_path / "m.jsonl").read_text()
    assert len(server.seen) == 24 + 3
    for word in ("secret", 'prompt"', '"text"', "127.0.0.1", "0-1"):
        assert word not in text.split("\n", 1)[1]
    result = compare(trace, rows, Asked(), PROFILE)
    assert "secret" not in json.dumps(result.document) and "127.0.0.1" not in json.dumps(result.document)


@pytest.mark.parametrize(
    ("server", "message"),
    [
        ({"fault": "http", "status": 500}, "HTTP 500"),
        ({"fault": "http", "status": 404}, "no such path or model"),
        ({"fault": "http", "status": 400}, "the request was refused"),
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
        ({"fault": "no-list", "status": 302}, "HTTP 302: it sends us elsewhere"),
        ({"fault": "no-list", "status": 500}, "HTTP 500"),
        ({"fault": "other-traffic"}, "serving 3 other requests"),
        ({"fault": "http", "status": 503, "good": 12}, "HTTP 503"),
        ({"fault": "garbage", "good": 12}, "no sequence of events"),
        ({"fault": "stall", "good": 12}, "no chunk came"),
        ({"fault": "redirect", "good": 12}, "HTTP 307"),
    ],
)
def test_a_server_that_cannot_be_used_is_an_error_in_words(trace, tmp_path, server, message):
    with pytest.raises(InputError, match=message) as refused:
        replayed(trace, tmp_path / "m.jsonl", **server)
    assert refused.value.hint or refused.value.expected
    assert "secret words" not in str(refused.value)
    if server.get("good"):  # what was measured until then is kept, and can be compared
        rows = read_replayed(tmp_path / "m.jsonl")
        told = compare(trace, rows, Asked(), PROFILE).document["endpoint"]
        assert not told["complete"] and told["compared"] >= 6 and told["set_aside"]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("no-usage", "no usage"),
        ("wrong-usage", "usage differs from what was sent"),
        ("cached-more", "more cached than sent"),
        ("few-completed", "usage differs from what came"),
        ("other-traffic", "other traffic"),
    ],
)
def test_what_cannot_be_trusted_is_set_aside_and_the_rest_compared(trace, tmp_path, fault, reason):
    rows, _ = replayed(trace, tmp_path / "m.jsonl", fault=fault, good=15)
    result = compare(trace, rows, Asked(), PROFILE)
    told = result.document["endpoint"]
    assert told["set_aside"][reason] >= 8
    assert told["compared"] + sum(told["set_aside"].values()) == told["sent"] == 24
    assert result.document["latencies"]["e2e_s"]["n"] == told["compared"]
    assert result.document["latencies"]["e2e_s"]["mape"]["value"] < 0.02
    assert any(reason in warning for warning in result.sections[0].warnings)


def test_hits_that_are_reported_only_where_there_are_some_are_compared(trace, tmp_path):
    rows, _ = replayed(trace, tmp_path / "m.jsonl", fault="no-zeros")
    assert None in {row["cached_tokens"] for row in rows.rows}
    told = compare(trace, rows, Asked(), PROFILE).document["hit_ratio"]
    assert told["n"] == 24 and abs(told["gap"]["value"]) < 1e-9


def test_metrics_without_end_are_no_metrics(trace, tmp_path):
    rows, _ = replayed(trace, tmp_path / "m.jsonl", fault="flood")
    result = compare(trace, rows, Asked(), PROFILE)
    assert result.document["endpoint"]["other_traffic_known"] is False
    assert any("would not be noticed" in warning for warning in result.sections[0].warnings)


def test_coalesced_chunks_leave_the_ends_to_compare(trace, tmp_path):
    rows, _ = replayed(trace, tmp_path / "m.jsonl", fault="coalesce", good=5)
    document = compare(trace, rows, Asked(), PROFILE).document
    assert document["endpoint"]["chunks_not_tokens"] > 15
    assert document["latencies"]["ttft_s"]["n"] == 24 - document["endpoint"]["chunks_not_tokens"]
    assert document["latencies"]["e2e_s"]["n"] == 24
    assert document["latencies"]["e2e_s"]["mape"]["value"] < 1e-3


@pytest.mark.parametrize("fault", ["buffer", "bunch"])
def test_tokens_that_were_held_back_tell_no_first_token(trace, tmp_path, fault):
    rows, _ = replayed(trace, tmp_path / "m.jsonl", fault=fault, good=0)
    document = compare(trace, rows, Asked(), PROFILE).document
    assert document["endpoint"]["chunks_not_tokens"] == document["endpoint"]["compared"] == 24
    assert "ttft_s" not in document["latencies"] or document["latencies"]["ttft_s"]["n"] == 0
    assert document["latencies"]["e2e_s"]["n"] == 24
    assert document["latencies"]["e2e_s"]["mape"]["value"] < 5e-3


def test_prompts_of_impossible_length_are_compared_with_nothing(trace, tmp_path):
    rows, _ = replayed(
        trace, tmp_path / "m.jsonl", fault="vast-usage", good=15, takes=("text", "completions")
    )
    told = compare(trace, rows, Asked(), PROFILE).document["endpoint"]
    assert told["set_aside"]["usage differs from what was sent"] > 10 and told["compared"] > 3


def test_answers_that_end_early_are_simulated_as_long_as_they_were(trace, tmp_path):
    rows, _ = replayed(trace, tmp_path / "m.jsonl", fault="stop", good=5)
    result = compare(trace, rows, Asked(), PROFILE)
    assert result.document["endpoint"]["ended_early"] > 15
    assert result.document["latencies"]["e2e_s"]["mape"]["value"] < 1e-3
    assert any("does not force lengths" in warning for warning in result.sections[0].warnings)


def test_a_single_failure_is_marked_and_its_session_goes_on(trace, tmp_path):
    class Hiccup(Server):
        def is_bad(self, fault):
            return fault == "http" and len(self.seen) == 15

    async def go():
        async with Hiccup(TRUE, fault="http") as endpoint:
            path = tmp_path / "m.jsonl"
            return await replayed_from(f"{endpoint.url}/v1", trace, path, Asked(), cpu_time=lambda: 0.0)

    document = compare(trace, run(go()), Asked(), PROFILE).document
    assert document["endpoint"]["set_aside"] == {"HTTP error": 1}
    assert document["endpoint"]["compared"] == 23
    assert document["latencies"]["e2e_s"]["mape"]["value"] < 1e-3


def test_words_are_sent_to_a_chat_and_their_lengths_are_as_usage_says(trace, tmp_path):
    rows, _ = replayed(trace, tmp_path / "m.jsonl", takes=("text", "chat"))
    told = compare(trace, rows, Asked(), PROFILE).document
    assert told["endpoint"]["dialect"]["api"] == "chat"
    assert 0 < told["endpoint"]["prompts_mean_relative_error"] < 0.1
    assert told["latencies"]["e2e_s"]["mape"]["value"] < 0.05
    assert told["hit_ratio"]["logged"] > 0.3 and abs(told["hit_ratio"]["gap"]["value"]) < 0.1


def test_no_more_requests_a_second_are_sent_than_were_allowed(trace, tmp_path):
    asked = Asked(rate=2.0)
    rows, _ = replayed(trace, tmp_path / "m.jsonl", asked)
    sent = np.sort([row["sent"] for row in rows.rows])
    assert np.diff(sent).min() >= 0.5 - 1e-9
    result = compare(trace, rows, asked, PROFILE)
    assert result.document["endpoint"]["late"]["requests"] > 10
    assert any("after their time" in warning for warning in result.sections[0].warnings)
    assert result.document["latencies"]["e2e_s"]["mape"]["value"] < 1e-3


def test_when_the_time_is_up_nothing_more_is_sent(trace, tmp_path):
    asked = Asked(seconds=3.0, rate=4.0)
    rows, _ = replayed(trace, tmp_path / "m.jsonl", asked)
    assert max(row["sent"] for row in rows.rows if row["status"] == "ok") < 3.0
    told = compare(trace, rows, asked, PROFILE)
    assert told.document["endpoint"]["not_sent"] > 0
    assert any("the time was up" in warning for warning in told.sections[0].warnings)


def test_an_interrupted_replay_keeps_what_it_saw(trace, tmp_path):
    with pytest.raises(TimeoutError):
        replayed(trace, tmp_path / "m.jsonl", stop_s=3.0)
    rows = measure("http://127.0.0.1:9/v1", trace, tmp_path / "m.jsonl", Asked())
    assert rows.end is None and {row["status"] for row in rows.rows} >= {"ok", "not sent"}
    result = compare(trace, rows, Asked(), PROFILE)
    assert "interrupted" in " ".join(result.sections[0].warnings)
    assert result.document["latencies"]["e2e_s"]["n"] >= 3


def test_a_replay_that_was_stopped_before_its_first_request_says_how_to_start_again(trace, whole, tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text(whole[2].read_text().splitlines()[0] + "\n")
    with pytest.raises(InputError, match="none was sent") as refused:
        compare(trace, measure("http://127.0.0.1:9/v1", trace, path, QUICK), QUICK, PROFILE)
    assert "--force" in refused.value.hint


def test_a_file_that_is_there_is_read_and_one_of_another_slice_is_refused(trace, whole, tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_bytes(whole[2].read_bytes())
    said = []
    measure("http://127.0.0.1:9/v1", trace, path, QUICK, note=said.append)
    assert "nothing is sent" in said[0]
    with pytest.raises(UsageError, match="another part"):
        measure("http://127.0.0.1:9/v1", trace, path, Asked(requests=100))
    with pytest.raises(InputError, match="nothing answers"):
        measure("http://127.0.0.1:9/v1", trace, path, Asked(), force=True)
    assert path.read_bytes() == whole[2].read_bytes()  # it is replaced once a server answers
    path.write_text(path.read_text().replace('"asked_tokens":', '"asked":', 1))
    with pytest.raises(InputError, match="no row of a replay"):
        measure("http://127.0.0.1:9/v1", trace, path, QUICK)


def test_the_same_rows_give_the_same_document(trace, whole):
    first, again = (compare(trace, read_replayed(whole[2]), QUICK, PROFILE) for _ in range(2))
    assert first.document == again.document and first.sections == again.sections
    assert first.files["requests.jsonl"] == whole[2].read_bytes()


def test_a_trace_without_blocks_shares_what_its_turns_go_on_from(tmp_path):
    rows = [{key: value for key, value in row.items() if key != "ids"} for row in records(6, 2)]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    columns = {key: value for key, value in MAP.items() if key != "hash_ids"}
    options = IngestOptions(format="generic", map=columns, sessions="explicit")
    plain = ingest([path], tmp_path / "log.trace", options).trace
    measured, _ = replayed(plain, tmp_path / "m.jsonl")
    hits = {row["request"]: row["cached_tokens"] for row in measured.rows}
    asked = {row["request"]: row["asked_tokens"] for row in measured.rows}
    turns = cut(compile_workload(plain), 200, 300.0, 1.0, None).workload.requests
    for r, before in enumerate(turns.parent.tolist()):
        assert hits[r] == (asked[before] // 16 * 16 if before >= 0 else 0)
    told = compare(plain, measured, Asked(), PROFILE).document
    assert told["latencies"]["e2e_s"]["mape"]["value"] < 1e-3
    assert abs(told["hit_ratio"]["gap"]["value"]) < 1e-9
