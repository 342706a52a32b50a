"""A real router as it would be deployed, started by the script that we write, and a client that talks through
it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, NamedTuple

from conformance.engines import HELD_S, Engine
from environments import scripts_of

from agentctl.cluster import Router, cluster_of
from agentctl.emit.base import Deployment, Emitted, Header, find_target
from agentctl.policies._settings import settled
from agentctl.policies.base import Policy, load_policy
from agentctl.profile import load_profile

READY_S, STOP_S = 40.0, 15.0
SEEN_S = 0.03  # a router's count falls just after the answer


def deployed(name: str, params: dict[str, float], engines: int, **router: Any) -> tuple[Emitted, Policy]:
    """What we write for the policy on so many engines, and the policy."""
    policy = load_policy(name, params)
    target, version = find_target(name.partition(":")[0])
    cluster = cluster_of(load_profile("h100-qwen3-8b"), engines, Router(name, **router))
    return target.emit(Deployment(settled(cluster, policy), policy, version, 100_000, 101_000)), policy


def written(files: dict[str, str], folder: Path, engines: Sequence[str]) -> Path:
    """The script, with the addresses of the engines in place of the placeholders."""
    for name, text in files.items():
        (folder / name).write_text(text)
    (folder / "engines.txt").write_text("".join(f"{engine}\n" for engine in engines))
    return folder / "start.sh"


class Running(NamedTuple):
    process: subprocess.Popen[bytes]
    port: int
    log: Path


@contextmanager
def running(program: str, script: Path, *more: str, **environment: str) -> Iterator[Running]:
    """The router, until the block ends; stopped by its own process id."""
    port, log = free_port(), script.parent / "router.log"
    own = {
        "PATH": f"{scripts_of(program)}:{os.environ['PATH']}", "HOME": str(script.parent),
        "HOST": "127.0.0.1", "PORT": str(port), "METRICS_PORT": str(free_port()), **environment,
    }  # fmt: skip
    with log.open("wb") as output:
        process = subprocess.Popen(["bash", script, *more], stdout=output, stderr=output, env=own)
    try:
        yield Running(process, port, log)
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_S)


def wait_until_ready(router: Running, engines: Sequence[Engine], polls: bool) -> None:
    """All engines are healthy to the router and, where it polls them, it knows their load."""
    until = time.monotonic() + READY_S
    while time.monotonic() < until and router.process.poll() is None:
        if healthy(router.port) == len(engines) and (not polls or all(engine.said.at for engine in engines)):
            time.sleep(1.0)
            return
        time.sleep(0.05)
    raise AssertionError(f"the router did not become ready: {router.log.read_text()[-2000:]}")


def healthy(port: int) -> int:
    try:
        return int(told(port, "/readiness")["healthy_workers"])
    except (OSError, ValueError, KeyError):
        return 0


def told(port: int, path: str) -> dict[str, Any]:
    """What the router says of itself."""
    connection = HTTPConnection("127.0.0.1", port, timeout=1)
    connection.request("GET", path)
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Client:
    """Requests through the router, each in a thread of its own until it is released."""

    def __init__(
        self,
        port: int,
        engines: Sequence[Engine],
        arrived: deque[tuple[int, str]],
        headers: Sequence[Header] = (),
    ):
        self.port, self.engines, self.arrived = port, engines, arrived
        self.names = [header.name for header in headers]  # of those that say which session it is
        self.threads: dict[str, threading.Thread] = {}

    def send(self, name: str, prompt: object, session: int, stream: bool = False) -> int:
        """The engine that got it."""
        headers = {name: f"session-{session}" for name in self.names} | {"Content-Type": "application/json"}
        request = {"model": "mock", "prompt": prompt, "max_tokens": 1, "user": name, "stream": stream}

        def post() -> None:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=HELD_S)
            connection.request("POST", "/v1/completions", json.dumps(request), headers)
            connection.getresponse().read()
            connection.close()

        thread = self.threads[name] = threading.Thread(target=post, daemon=True)
        thread.start()
        until = time.monotonic() + 10
        while time.monotonic() < until:
            if self.arrived:
                number, got = self.arrived.popleft()
                assert got == name, f"{got!r} came for {name!r}"
                return number
            time.sleep(0.001)
        raise AssertionError(f"{name} reached no engine")

    def release(self, name: str, engine: int) -> None:
        self.engines[engine].release(name)
        self.threads.pop(name).join(10)
        time.sleep(SEEN_S)
