"""The command line as a user meets it: arguments in; stdout, stderr and exit code out."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from oracles.endpoint_server import Server

from agentctl.cli.main import main

PROGRAM = [sys.executable, "-m", "agentctl.cli.main"]
ROOT = Path(__file__).parents[2]


@dataclass
class Finished:
    code: int
    out: str
    err: str


@pytest.fixture
def agentctl(tmp_path, monkeypatch, capsys) -> Callable[..., Finished]:
    """Run `agentctl ARGUMENTS` in an empty folder, without the developer's own settings; in this process."""
    for name in [name for name in os.environ if name.startswith("AGENTCTL_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, **environment: str) -> Finished:
        handler = signal.getsignal(signal.SIGTERM)
        with monkeypatch.context() as patched:
            for name, value in environment.items():
                patched.setenv(name, value)
            try:
                code = main([str(argument) for argument in arguments])
            except SystemExit as stopped:  # how completion ends
                code = int(stopped.code or 0)
            finally:
                signal.signal(signal.SIGTERM, handler)
        captured = capsys.readouterr()
        return Finished(code, captured.out, captured.err)

    return run


@pytest.fixture
def process(tmp_path) -> Callable[..., Finished]:
    """The same in a process of its own, for what one process cannot show of itself."""

    def run(*arguments: object, stdin: bytes = b"", **environment: str) -> Finished:
        clean = {key: value for key, value in os.environ.items() if not key.startswith("AGENTCTL_")}
        done = subprocess.run(
            [*PROGRAM, *map(str, arguments)],
            cwd=tmp_path,
            env={**clean, **environment},
            input=stdin,
            capture_output=True,
            timeout=120,
        )
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run


@pytest.fixture
def program() -> list[str]:
    return PROGRAM


@pytest.fixture
def weka() -> Path:
    """14 small agent sessions, as they were published."""
    return ROOT / "sample_traces" / "weka_small.jsonl.gz"


@pytest.fixture
def serve():
    """Start a server in a thread of its own, by its coefficients and faults; its URL."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    servers = []

    def start(c, **faults):
        servers.append(Server(c, **faults))
        asyncio.run_coroutine_threadsafe(servers[-1].__aenter__(), loop).result(5)
        return servers[-1]

    yield start
    for server in servers:
        asyncio.run_coroutine_threadsafe(server.__aexit__(), loop).result(5)
    loop.call_soon_threadsafe(loop.stop)
    thread.join(5)
    loop.close()
