"""Mock engines on the loopback: they hold a completion until it is released, say how loaded they are when
asked, as SGLang or vLLM do, and publish the KV blocks that they are told to have, as vLLM does."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections import deque
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec

HELD_S = 60.0  # no request is held longer
BLOCK = 16  # tokens of a block of KV
PLACES = 3  # requests that run at once
USAGE = 0.125  # of the KV, of one request that runs


class Load(NamedTuple):
    """What an engine last said of itself; `at` is when."""

    at: float = 0.0
    running: int = 0
    waiting: int = 0
    waiting_tokens: int = 0
    tokens: int = 0  # of all requests
    usage: float = 0.0


class Engine(ThreadingHTTPServer):
    """`arrived` gets (engine, name) of each completion; `said` is what it last said of its load."""

    daemon_threads = True

    def __init__(self, number: int, arrived: deque[tuple[int, str]], kind: str = "sglang"):
        super().__init__(("127.0.0.1", 0), Handler)
        self.number, self.arrived, self.kind = number, arrived, kind
        self.held: dict[str, tuple[threading.Event, int]] = {}  # with its tokens, in order of arrival
        self.asked: set[str] = set()  # paths
        self.said = Load()
        self.events = Events()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def load(self) -> Load:
        tokens = [n for _, n in list(self.held.values())]
        waiting = tokens[PLACES:]
        running = len(tokens) - len(waiting)
        return Load(time.monotonic(), running, len(waiting), sum(waiting), sum(tokens), USAGE * running)

    def handle_error(self, *_: Any) -> None:
        """A router that is stopped hangs up on what is held."""

    def release(self, name: str) -> None:
        self.held.pop(name)[0].set()

    def close(self) -> None:
        for done, _ in list(self.held.values()):
            done.set()
        self.shutdown()
        self.server_close()
        self.events.close()


class Handler(BaseHTTPRequestHandler):
    server: Engine
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, body: bytes, kind: str = "application/json", status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        path, is_vllm = self.path.partition("?")[0], self.server.kind == "vllm"
        self.server.asked.add(path)
        if path == "/metrics" and is_vllm:
            load = self.server.load()
            self.answer(vllm_metrics(load), "text/plain; version=0.0.4")
            self.server.said = load
        elif path == "/v1/loads" and not is_vllm:
            load = self.server.load()
            self.answer(json.dumps(sglang_loads(load)).encode())
            self.server.said = load
        elif path == "/get_load" and not is_vllm:
            load = self.server.load()
            rank = {"dp_rank": 0, "num_reqs": load.running, "num_waiting_reqs": load.waiting}
            self.answer(json.dumps([rank | {"num_tokens": load.tokens}]).encode())
            self.server.said = load
        elif path in ("/health", "/v1/models", "/version", "/health_generate"):
            owner = self.server.kind
            models = {"object": "list", "data": [{"id": "mock", "object": "model", "owned_by": owner}]}
            self.answer(json.dumps(models | {"version": "0.33.0"}).encode())
        elif is_vllm or path in ("/metrics", "/loads"):
            self.answer(b"", status=404)
        else:
            self.answer(json.dumps({"model_path": "mock", "served_model_name": "mock"}).encode())

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        name, done = request.get("user", ""), threading.Event()
        self.server.held[name] = done, len(request.get("prompt", ""))
        self.server.arrived.append((self.server.number, name))
        if request.get("stream"):
            self.stream(name, done)
        else:
            done.wait(HELD_S)
            self.answer(json.dumps(completion(name)).encode())

    def stream(self, name: str, done: threading.Event) -> None:
        """The first token at once, the end when released."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.chunk(f"data: {json.dumps(completion(name))}\n\n")
        done.wait(HELD_S)
        self.chunk("data: [DONE]\n\n")
        self.chunk("")

    def chunk(self, text: str) -> None:
        self.wfile.write(f"{len(text):x}\r\n{text}\r\n".encode())
        self.wfile.flush()


def completion(name: str) -> dict[str, Any]:
    choice = {"index": 0, "text": "a", "finish_reason": None}
    return {"id": name, "object": "text_completion", "model": "mock", "created": 0, "choices": [choice]}


def sglang_loads(load: Load) -> dict[str, Any]:
    """SGLang's answer to GET /v1/loads, the fields that routers are known to read."""
    used = round(1e5 * load.usage)
    rank = {
        "dp_rank": 0, "num_running_reqs": load.running, "num_waiting_reqs": load.waiting,
        "num_waiting_uncached_tokens": load.waiting_tokens, "num_total_reqs": load.running + load.waiting,
        "num_used_tokens": used, "num_total_tokens": used + load.waiting_tokens,
        "max_total_num_tokens": 100_000, "token_usage": load.usage, "gen_throughput": 0.0,
        "cache_hit_rate": 0.0, "utilization": 0.0, "max_running_requests": PLACES,
    }  # fmt: skip
    return {"timestamp": "2026-01-01T00:00:00", "version": "0.5.23", "dp_rank_count": 1, "loads": [rank]}


def vllm_metrics(load: Load) -> bytes:
    gauges = {"num_requests_running": load.running, "num_requests_waiting": load.waiting,
              "kv_cache_usage_perc": load.usage}  # fmt: skip
    lines = [
        f'# TYPE vllm:{key} gauge\nvllm:{key}{{engine="0",model_name="mock"}} {value}\n'
        for key, value in gauges.items()
    ]
    return "".join(lines).encode()


class Events:
    """vLLM's KV events over ZMQ: blocks stored, once each."""

    def __init__(self) -> None:
        import zmq  # of the extra `conformance`

        self.socket = zmq.Context.instance().socket(zmq.PUB)
        self.endpoint = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.stored: set[tuple[int, ...]] = set()  # whole prefixes, one for each block
        self.sent = 0

    def store(self, tokens: list[int]) -> None:
        """All whole blocks of a prompt; those that were told before are not told again."""
        for end in range(BLOCK, len(tokens) + 1, BLOCK):
            prefix = tuple(tokens[:end])
            if prefix not in self.stored:
                self.stored.add(prefix)
                self.send(prefix)

    def hit(self, tokens: list[int]) -> int:
        """Tokens of the prompt in stored blocks, from its beginning and less than all of it."""
        ends = range(BLOCK, len(tokens), BLOCK)
        return max((end for end in ends if tuple(tokens[:end]) in self.stored), default=0)

    def send(self, prefix: tuple[int, ...]) -> None:
        event = {
            "type": "BlockStored", "block_hashes": [number_of(prefix)],
            "parent_block_hash": number_of(prefix[:-BLOCK]) if len(prefix) > BLOCK else None,
            "token_ids": list(prefix[-BLOCK:]), "block_size": BLOCK, "lora_id": None, "medium": "GPU",
            "lora_name": None,
        }  # fmt: skip
        batch = msgspec.msgpack.encode([float(self.sent), [event], 0])
        self.socket.send_multipart([b"", struct.pack(">Q", self.sent), batch])
        self.sent += 1

    def close(self) -> None:
        self.socket.close(0)


def number_of(prefix: tuple[int, ...]) -> int:
    return hash(prefix) & (2**63 - 1)
