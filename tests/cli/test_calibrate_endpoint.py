"""`agentctl calibrate endpoint` as a user meets it: whom it talks to, what it leaves, how it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from agentctl.endpoint.measured import read_measured
from agentctl.estimators.batch_time import BatchTime
from agentctl.profile import load_profile

SLOW = BatchTime(
    b0=0.01, b_prefill=3e-5, b_decode=1e-4, b_context=3e-7, b_context_mixed=3e-7, b_attention=1e-8
)
QUICK = BatchTime(
    b0=2e-3, b_prefill=1e-6, b_decode=5e-5, b_context=3e-8, b_context_mixed=3e-8, b_attention=5e-9
)


def test_a_probe_ends_in_a_profile_and_the_second_run_sends_nothing(agentctl, serve, tmp_path):
    server = serve(QUICK)
    command = (
        "calibrate",
        "endpoint",
        server.url,
        "--budget",
        "60,60s",
        "--max-context",
        1024,
        "--max-width",
        4,
    )
    done = agentctl(*command, "-o", "p.toml", "--json", AGENTCTL_API_KEY="secret")
    assert done.code in (0, 1), done.err  # a busy machine may hide a coefficient: then it says so
    text = (tmp_path / "endpoint.probe.jsonl").read_text()
    assert "secret" not in text + done.out + done.err and "Bearer secret" in server.headers[0]
    if done.code == 0:
        told = json.loads(done.out)
        assert (told["schema"], told["source"]) == ("agentctl/calibrate/1", "endpoint")
        assert load_profile(tmp_path / "p.toml").batch_time.b0 == told["coefficients"]["b0"]["value"]
    else:
        assert "does not show" in done.err and not (tmp_path / "p.toml").exists()
    sent = len(server.seen)
    assert 40 < sent <= 60
    again = agentctl(*command, "-o", "q.toml", "--json")
    assert again.code == done.code and len(server.seen) == sent
    assert "nothing is sent" in again.err


def test_interrupted_it_stops_at_once_and_keeps_what_it_measured(serve, tmp_path):
    server = serve(SLOW)
    environment = {key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")}
    command = [sys.executable, "-m", "agentctl.cli.main", "calibrate", "endpoint", server.url]
    run = subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True)
    path = tmp_path / "endpoint.probe.jsonl"
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_text().count("ended") > 4) and time.monotonic() < deadline:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT)
    _, errors = run.communicate(timeout=30)
    assert run.returncode == 130
    assert "the same command goes on" in errors and "Traceback" not in errors
    assert len(read_measured(path).steps) > 4


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("http://10.1.2.3:8000",), 2, "--i-own-this-endpoint"),
        (("localhost:8000",), 2, "is no address of an endpoint"),
        (("http://127.0.0.1:9",), 1, "nothing answers there"),
        (("http://127.0.0.1:9", "--budget", "soon"), 2, "150, 120s or 150,120s"),
        (("http://127.0.0.1:9", "--budget", "5"), 2, "at least"),
        (("http://127.0.0.1:9", "--budget", "150,120"), 2, "150, 120s or 150,120s"),
        (("http://[1:2]:8000", "--i-own-this-endpoint"), 2, "is no address of an endpoint"),
        (("http://a..b:8000", "--i-own-this-endpoint"), 2, "is no address of an endpoint"),
        (("http://127.0.0.1:9", "--prompts", "poems"), 2, "tokens or text"),
    ],
)
def test_what_cannot_be_probed_is_said_in_words(agentctl, tmp_path, arguments, code, message):
    done = agentctl("calibrate", "endpoint", *arguments)
    assert done.code == code and message in done.err and done.out == ""
    assert not list(tmp_path.glob("*"))


def test_a_server_that_does_not_stream_is_an_error_and_not_a_wait(agentctl, serve):
    done = agentctl("calibrate", "endpoint", serve(QUICK, fault="not-streamed").url)
    assert done.code == 1 and "the answer is not streamed" in done.err
