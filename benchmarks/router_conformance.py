"""Do our policies decide as the real routers do?

Starts a router (sglang-router 0.3.2 or vllm-router 0.1.17, each from a virtual environment of its own) before
four mock engines on the loopback, sends it turns of sessions one by one, and asks our policy at each what it
would have done. An engine holds a request until it is told to answer, so that what the router has in flight
is known at every decision. The order of the router's registry is observed, not assumed. Half a minute.

    python benchmarks/router_conformance.py sglang-router VENV/bin/sglang-router
    python benchmarks/router_conformance.py vllm-router VENV/bin/vllm-router
"""

from __future__ import annotations

import argparse
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace

import numpy as np

from agentctl.policies.base import load_policy

N_ENGINES, N_DECISIONS, N_SESSIONS, WAIT_S = 4, 100, 12, 30.0
EVEN = {"balance_abs_threshold": 2, "cache_threshold": 0.3, "balance_rel_threshold": 1.5}
FLAGS = ["--balance-abs-threshold", "2", "--cache-threshold", "0.3", "--balance-rel-threshold", "1.5"]
RUNS = {
    "sglang-router": [
        ("cache_aware", "sglang-router:cache_aware", EVEN, FLAGS),
        ("manual", "sglang-router:manual_min_load", {}, ["--assignment-mode", "min_load"]),
        ("round_robin", "sglang-router:round_robin", {}, []),
    ],
    "vllm-router": [
        ("cache_aware", "vllm-router:cache_aware", EVEN, FLAGS),
        ("sticky_least_loaded", "vllm-router:sticky_least_loaded", {}, []),
        ("round_robin", "vllm-router:round_robin", {}, []),
    ],
}


class Engine(ThreadingHTTPServer):
    """Answers questions about itself at once, and a completion when `release` is called."""

    daemon_threads = True

    def __init__(self, number: int, arrived: deque[tuple[int, str]]):
        super().__init__(("127.0.0.1", 0), Handler)
        self.number, self.arrived, self.held = number, arrived, {}
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Engine
    protocol_version = "HTTP/1.1"

    def log_message(self, *_) -> None:
        pass

    def answer(self, document: object) -> None:
        body = json.dumps(document).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.answer(
            {"data": [{"id": "mock", "object": "model"}], "model_path": "mock", "served_model_name": "mock"}
        )

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name = request.get("user", "")
        done = self.server.held[name] = threading.Event()
        self.server.arrived.append((self.server.number, name))
        done.wait(WAIT_S)
        self.answer({"id": name, "object": "text_completion", "choices": [{"index": 0, "text": "a"}]})


class Client:
    """Requests through the router, each in a thread of its own until it is released."""

    def __init__(self, port: int, engines: list[Engine], arrived: deque[tuple[int, str]]):
        self.port, self.engines, self.arrived, self.threads = port, engines, arrived, {}

    def send(self, name: str, prompt: object, session: int) -> int:
        """The engine that got it."""
        headers = {
            "Content-Type": "application/json",
            "X-SMG-Routing-Key": str(session),
            "x-session-id": str(session),
        }
        body = json.dumps({"model": "mock", "prompt": prompt, "max_tokens": 1, "user": name})

        def post() -> None:
            connection = HTTPConnection("127.0.0.1", self.port, timeout=WAIT_S)
            connection.request("POST", "/v1/completions", body, headers)
            connection.getresponse().read()
            connection.close()

        thread = self.threads[name] = threading.Thread(target=post, daemon=True)
        thread.start()
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            if self.arrived:
                number, got = self.arrived.popleft()
                assert got == name, f"{got!r} came for {name!r}"
                return number
            time.sleep(0.001)
        raise SystemExit(f"{name} reached no engine within {WAIT_S:g} s")

    def release(self, name: str, engine: int) -> None:
        self.engines[engine].held.pop(name).set()
        self.threads.pop(name).join()
        time.sleep(0.02)  # the router's count falls just after the answer


class Ours:
    """Our policy with what the router must know: its requests in flight and what it sent where."""

    def __init__(self, name: str, params: dict[str, float], order: list[int]):
        self.policy, self.order = load_policy(name, params), order
        size = self.policy.memory(N_DECISIONS, N_SESSIONS, N_ENGINES) if self.policy.memory else 0
        self.memory, self.last = np.zeros(size), -1
        self.sent: list[list[list[int]]] = [[] for _ in range(N_ENGINES)]
        self.load = np.zeros(N_ENGINES, dtype=np.int64)

    def matches(self, tokens: list[int], session: int, real: int) -> bool:
        """Whether the policy can choose what the router chose; both go on from the router's choice."""
        hit = np.array([max((common(tokens, other) for other in sent), default=0) for sent in self.sent])
        requests = SimpleNamespace(prompt_tokens=np.array([len(tokens)]), session=np.array([session]))
        real, agreed = self.order.index(real), None
        for seed in range(40):  # ties at random or by a hash: whatever any seed can do
            memory = self.memory.copy()
            view = SimpleNamespace(
                now=0.0, seed=seed, last_chosen=self.last, memory=memory, hit_tokens=hit,
                inflight_requests=self.load, waiting_requests=np.zeros(N_ENGINES),
            )  # fmt: skip
            if self.policy.choose.py_func(view, requests, 0, self.policy.my) == real:
                agreed = memory
                break
        if agreed is not None:
            self.memory = agreed
        self.last = real
        self.load[real] += 1
        self.sent[real].append(tokens)
        return agreed is not None


def common(a: list[int], b: list[int]) -> int:
    return next((k for k, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start(command: list[str], engines: list[Engine], port: int) -> subprocess.Popen:
    urls = [engine.url for engine in engines]
    metrics = ["--prometheus-port", str(free_port())]
    command = [*command, "--host", "127.0.0.1", "--port", str(port), "--worker-urls", *urls, *metrics]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_until_ready(router: subprocess.Popen, port: int) -> None:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until and router.poll() is None:
        try:
            connection = HTTPConnection("127.0.0.1", port, timeout=1)
            connection.request("GET", "/readiness")
            answer = connection.getresponse()
            if answer.status == 200 and json.loads(answer.read())["healthy_workers"] == N_ENGINES:
                time.sleep(1.0)
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the router did not become ready")


def registry_order(client: Client, as_text: bool) -> list[int]:
    """Four requests with nothing in common, all held: routers that look at load or at nothing go in order."""
    prompts = [as_prompt([10**6 + k] * 40, as_text) for k in range(N_ENGINES)]
    order = [client.send(f"probe {k}", prompt, 10**6 + k) for k, prompt in enumerate(prompts)]
    for k, engine in enumerate(order):
        client.release(f"probe {k}", engine)
    return order if len(set(order)) == N_ENGINES else list(range(N_ENGINES))


def run(router: str, program: str, policy: str, name: str, params: dict[str, float], flags: list[str]) -> int:
    """Decisions that differ."""
    rng, arrived = random.Random(7), deque()
    engines = [Engine(number, arrived) for number in range(N_ENGINES)]
    port, words = free_port(), ["launch"] if router == "sglang-router" else []
    process = start([program, *words, "--policy", policy, *flags], engines, port)
    try:
        wait_until_ready(process, port)
        client = Client(port, engines, arrived)
        as_text = router == "sglang-router"
        order = registry_order(client, as_text)
        ours = Ours(name, params, order)
        if as_text and policy == "cache_aware":
            six(client, ours)
        common_prompt = list(range(50_000, 50_080))  # of every other session
        history = [
            common_prompt * (session % 2) + [1000 * session + k for k in range(40)]
            for session in range(N_SESSIONS)
        ]
        held: list[tuple[str, int]] = []
        differ = []
        for k in range(N_DECISIONS):
            while held and (len(held) > 14 or rng.random() < 0.45):
                name_, engine = held.pop(rng.randrange(len(held)))
                client.release(name_, engine)
                ours.load[order.index(engine)] -= 1
            session = min(int(rng.expovariate(0.3)), N_SESSIONS - 1)
            history[session] += [10**5 + 1000 * k + j for j in range(rng.randrange(5, 60))]
            tokens = list(history[session])
            engine = client.send(f"r{k}", as_prompt(tokens, as_text), session)
            if not ours.matches(tokens, session, engine):
                differ.append(k)
            held.append((f"r{k}", engine))
        for name_, engine in held:
            client.release(name_, engine)
        print(f"{router} {policy}: {N_DECISIONS - len(differ)} of {N_DECISIONS} decisions as {name}; "
              f"registry order {order}" + (f"; differ at {differ}" if differ else ""))  # fmt: skip
        return len(differ)
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
        for engine in engines:
            engine.shutdown()


def six(client: Client, ours: Ours) -> None:
    """Six requests of one session at once, then none."""
    tokens = [900_000 + k for k in range(60)]
    chosen = [client.send(f"six {k}", as_prompt(tokens, True), 77) for k in range(6)]
    ours_say = []
    for engine in chosen:
        ours_say.append(ours.matches(tokens, 0, engine))
    for k, engine in enumerate(chosen):
        client.release(f"six {k}", engine)
    ours.load[:] = 0
    places = [ours.order.index(engine) for engine in chosen]
    print(
        f"six requests of one session at once: places {places} in the registry, ours agree: {all(ours_say)}"
    )


def as_prompt(tokens: list[int], as_text: bool) -> object:
    return "".join(chr(0x10000 + token) for token in tokens) if as_text else tokens


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("router", choices=RUNS)
    parser.add_argument("program", help="the router's script in its virtual environment")
    options = parser.parse_args()
    runs = RUNS[options.router]
    return int(any([run(options.router, options.program, *one) for one in runs]))


if __name__ == "__main__":
    sys.exit(main())
