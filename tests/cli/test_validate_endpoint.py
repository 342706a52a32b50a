"""`agentctl validate --endpoint` as a user meets it: whom it talks to, what it leaves, how it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from agentctl.cli.reports import stopped
from agentctl.endpoint.replayed import read_replayed
from agentctl.estimators.batch_time import BatchTime

SERVED = BatchTime(
    b0=4e-3, b_prefill=1e-6, b_decode=5e-5, b_context=3e-8, b_context_mixed=3e-8, b_attention=5e-9
)
PROFILE = """
schema = "agentctl/profile/1"
kv_blocks = 4000
block_tokens = 16
max_num_batched_tokens = 512
[batch_time]
model = "hinge"
b0 = 4e-3
b_prefill = 1e-6
b_decode = 5e-5
b_context = 3e-8
b_attention = 5e-9
[batch_time.fit]
request_overhead_s = 4e-3
"""


@pytest.fixture
def day(tmp_path):
    """Six sessions of three turns, a fifth of a second apart, and the profile of the engine."""
    rows = []
    for s in range(6):
        at, tokens = 0.1 * s, 150 + 30 * s
        for t in range(3):
            ids = [1, 2, *range(100 * (s + 1), 100 * (s + 1) + tokens // 64 - 2)]
            rows.append({"s": s, "at": at, "in": tokens, "out": 8, "e2e": 0.1, "ids": ids, "id": f"{s}-{t}"})
            at, tokens = at + 0.3, tokens + 50
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "p.toml").write_text(PROFILE)
    return (
        "ingest", "log.jsonl", "--format", "generic", "--block-tokens", 64, "-o", "day.trace",
        *(f for pair in ("request_id=id", "session_id=s", "arrival_s=at", "prompt_tokens=in",
                         "output_tokens=out", "e2e_s=e2e", "hash_ids=ids") for f in ("--map", pair)),
    )  # fmt: skip


def test_a_replay_ends_in_a_comparison_and_the_second_run_sends_nothing(agentctl, serve, day, tmp_path):
    assert agentctl(*day).code == 0
    server = serve(SERVED)
    command = ("validate", "--endpoint", server.url, "--trace", "day.trace", "--profile", "p.toml", "--json")
    done = agentctl(*command, "-o", "run", AGENTCTL_API_KEY="secret")
    assert done.code in (0, 3), done.err  # a busy machine may be slower than the profile
    told = json.loads(done.out)
    assert told["schema"] == "agentctl/validate/1"
    found = told["endpoint"]  # the server runs in this process, and a busy one marks requests
    assert found["complete"] and found["compared"] + sum(found["set_aside"].values()) == found["sent"] == 18
    assert told["hit_ratio"]["logged"] > 0.3 and abs(told["hit_ratio"]["gap"]["value"]) < 0.1
    files = {path.name for path in (tmp_path / "run").iterdir()}
    assert files == {"result.json", "outcome.parquet", "report.html", "requests.jsonl"}
    for path in (tmp_path / "run").iterdir():
        content = path.read_bytes()
        assert b"secret" not in content and server.url.encode() not in content
    assert "Bearer secret" in server.headers[0]
    assert "of 6 sessions sent" in agentctl("report", "run").out
    sent = len(server.seen)
    again = agentctl(*command)
    assert again.code == done.code and len(server.seen) == sent
    assert "nothing is sent" in again.err
    assert json.loads(again.out)["latencies"] == told["latencies"]


def test_where_a_models_file_lies_is_in_no_document(agentctl, serve, day, tmp_path):
    assert agentctl(*day).code == 0
    server = serve(SERVED, name="/srv/me/tiny")
    done = agentctl("validate", "day.trace", "--endpoint", server.url, "--profile", "p.toml", "-o", "run",
                    "--served-model", "/srv/me/tiny", "--json")  # fmt: skip
    assert done.code in (0, 3), done.err
    assert "--served-model tiny" in json.loads(done.out)["provenance"]["command"]
    for path in (tmp_path / "run").iterdir():
        assert b"/srv/me" not in path.read_bytes()


def test_stopped_before_anything_was_measured_it_promises_nothing(tmp_path):
    assert stopped(tmp_path / "m.jsonl", "and so on") == "stopped: nothing was measured yet"
    (tmp_path / "m.jsonl").write_text("{}")
    assert stopped(tmp_path / "m.jsonl", "and so on").endswith("m.jsonl, and so on")


def test_interrupted_it_stops_at_once_and_keeps_what_it_measured(agentctl, serve, day, tmp_path):
    assert agentctl(*day).code == 0
    server = serve(SERVED)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")}
    command = [
        sys.executable, "-m", "agentctl.cli.main", "validate", "day.trace", "--profile", "p.toml",
        "--endpoint", server.url, "--speed", "0.01",
    ]  # fmt: skip
    run = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    path = tmp_path / "endpoint.replay.jsonl"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text().count('"ok"') > 2) and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "what was measured is in endpoint.replay.jsonl" in errors and "Traceback" not in errors
    rows = read_replayed(path)
    assert rows.end is None and sum(row["status"] == "ok" for row in rows.rows) >= 3


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--endpoint", "http://10.1.2.3:8000"), 2, "--i-own-this-endpoint"),
        (("--endpoint", "localhost:8000"), 2, "is no address of an endpoint"),
        (("--endpoint", "http://127.0.0.1:9"), 1, "nothing answers there"),
        (("--endpoint", "http://127.0.0.1:9", "--prompts", "poems"), 2, "auto, tokens or text"),
        (("--endpoint", "http://127.0.0.1:9", "--engines", 2), 2, "an endpoint is one engine"),
        (("--endpoint", "http://127.0.0.1:9", "--requests", 2), 1, "none of 6 sessions fits"),
    ],
)
def test_what_cannot_be_done_is_said_in_words(agentctl, day, tmp_path, arguments, code, message):
    assert agentctl(*day).code == 0
    done = agentctl("validate", "day.trace", "--profile", "p.toml", *arguments)
    assert done.code == code and message in done.err and done.out == ""
    assert not (tmp_path / "endpoint.replay.jsonl").exists()


def test_the_help_shows_every_bound_with_its_default(agentctl):
    told = " ".join(agentctl("validate", "--help").out.split())
    for bound in ("--requests", "--seconds", "--rate", "--speed"):
        assert bound in told
    assert "[default: 200]" in told and "[default: 300.0]" in told and "[default: 10.0]" in told
    assert "AGENTCTL_API_KEY" in told
