"""A small server on loopback that answers as an engine of known coefficients, and misbehaves on demand.

Running decodes first, then chunked prefill in order of arrival; a prefix cache of 16-token blocks; memory is
endless. Each batch takes what batch_time says; every request waits a fixed time before it is queued.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field

from agentctl.estimators.batch_time import BatchTime, batch_time

BLOCK = 16
TEMPLATE = "<system>be good<user>"  # of the chat, before every prompt


@dataclass
class Job:
    prompt: list[int]
    max_tokens: int
    cached: int
    computed: int
    blocks: list[int]
    produced: int = 0
    tokens: asyncio.Queue = field(default_factory=asyncio.Queue)


def chain(prompt: list[int], salt: str = "") -> list[int]:
    """A name for each whole block of the prompt and all before it."""
    names, last = [], hash(salt)
    for end in range(BLOCK, len(prompt) + 1, BLOCK):
        last = hash((last, *prompt[end - BLOCK : end]))
        names.append(last)
    return names


@dataclass
class Server:
    """What it may do wrong begins after `good` answers.

    fault  http (with `status`), redirect, not-streamed, stall, close, coalesce, bunch, wrong-usage, no-usage,
           stop, no-cached, other-traffic, need-key, garbage, huge-line, slow-headers, endless, babble,
           error-event, cached-more, few-completed, no-zeros, no-list (with `status`), flood,
           mute (/metrics never answers), buffer (all tokens at the end), cached-all, vast-usage;
           half: no chunk for two of three tokens unless a letter is forced
    takes  what it understands: ids, text, completions, chat, extras (ignore_eos, cache_salt)
    limits labels of its cache in /metrics, as vLLM has them
    """

    c: BatchTime
    overhead_s: float = 0.003
    chunk: int = 512
    fault: str = ""
    status: int = 503
    good: int = 0
    takes: tuple[str, ...] = ("ids", "text", "completions", "chat", "extras")
    limits: str = ""
    kind: str = "vllm"
    name: object = "tiny"
    elsewhere: str = "http://203.0.113.7/v1/completions"
    seen: list[dict] = field(default_factory=list)  # bodies
    headers: list[str] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)
    cache: set[int] = field(default_factory=set)
    port: int = 0

    async def __aenter__(self):
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self._work = asyncio.Event()
        self._engine = asyncio.create_task(self._steps())
        return self

    async def __aexit__(self, *_):
        self._engine.cancel()
        self._server.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_bad(self, fault: str) -> bool:
        return self.fault == fault and len(self.seen) > self.good

    async def _steps(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            if not self.jobs:
                self._work.clear()
                await self._work.wait()
                due = loop.time()
            due += self._step()
            await asyncio.sleep(max(0.0, due - loop.time()))
            for job, new in self._batch:
                job.computed += new
                if job.computed >= len(job.prompt) + job.produced:
                    self.cache.update(job.blocks)
                    job.produced += 1
                    job.tokens.put_nowait(job.produced)
            self.jobs = [job for job in self.jobs if job.produced < job.max_tokens]

    def _step(self) -> float:
        """Seconds of the next batch, which is left in `_batch`."""
        left = self.chunk
        decodes = [job for job in self.jobs if job.produced]
        self._batch = [(job, 1) for job in decodes]
        left -= len(decodes)
        chunks = []
        for job in self.jobs:
            if not job.produced and left > 0:
                new = min(left, len(job.prompt) - job.computed)
                chunks.append((job, new))
                left -= new
        self._batch += chunks
        pairs = sum(new * job.computed + new * (new + 1) / 2 for job, new in chunks)
        return batch_time(
            self.c, sum(new for _, new in chunks), pairs, sum(job.computed for job, _ in chunks), len(chunks),
            len(decodes), sum(job.computed for job in decodes),
        )  # fmt: skip

    def _hit(self, blocks: list[int], tokens: int) -> int:
        known = 0
        while known < len(blocks) and blocks[known] in self.cache:
            known += 1
        return min(known, (tokens - 1) // BLOCK) * BLOCK

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            path = head.split(" ")[1]
            lines = [line for line in head.split("\r\n") if line.lower().startswith("content-le")]
            body = json.loads(await reader.readexactly(int(lines[0][15:]))) if lines else {}
            if path == "/v1/models" and self.fault == "no-list":
                _reply(writer, "{}", self.status)
            elif path == "/metrics" and self.is_bad("flood"):
                writer.write(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
                for _ in range(200):
                    writer.write(b"x" * 50_000)
                    await writer.drain()
            elif path == "/v1/models":
                model = {"id": self.name, "max_model_len": 4096, "owned_by": self.kind}
                _reply(writer, json.dumps({"data": [model]}))
            elif path == "/metrics" and self.is_bad("mute"):
                await reader.read()  # until the client has gone
            elif path == "/metrics":
                running = len(self.jobs) + (3 if self.is_bad("other-traffic") else 0)
                limits = f"vllm:cache_config_info{{{self.limits}}} 1.0\n" if self.limits else ""
                _reply(writer, f'{limits}vllm:num_requests_running{{engine="0"}} {running}\n')
            elif path == "/tokenize" and self.kind == "llamacpp":
                _reply(writer, json.dumps({"tokens": [64]}))
            elif path == "/props" and self.kind == "llamacpp":
                _reply(writer, json.dumps({"default_generation_settings": {"n_ctx": 2048}, "total_slots": 4}))
            elif not lines or ("chat" if "chat" in path else "completions") not in self.takes:
                _reply(writer, "{}", 404)
            else:
                self.headers.append(head)
                self.seen.append(body)
                await self._answer(body, writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict, writer: asyncio.StreamWriter) -> None:
        if self.is_bad("http") or (self.fault == "need-key" and "Bearer secret" not in self.headers[-1]):
            return _reply(writer, "{}", self.status if self.fault == "http" else 401)
        if self.is_bad("redirect"):
            return _reply(writer, "", 307, f"\r\nLocation: {self.elsewhere}")
        if self.is_bad("not-streamed"):
            return _reply(writer, json.dumps({"choices": [{"text": "x", "finish_reason": "length"}]}))
        if self.is_bad("slow-headers"):
            for letter in "HTTP/1.1 200 OK" + 400 * "\r\nX: y":
                writer.write(letter.encode())
                await asyncio.sleep(1.0)
        if self.is_bad("garbage"):
            return writer.write(bytes(range(256)) * 50)
        if not self._understands(body):
            return _reply(writer, "{}", 400)
        chat = "messages" in body
        prompt = TEMPLATE + body["messages"][0]["content"] if chat else body["prompt"]
        prompt = prompt if isinstance(prompt, list) else [ord(c) for c in prompt]
        await asyncio.sleep(self.overhead_s)
        blocks = chain(prompt, body.get("cache_salt", ""))
        hit = self._hit(blocks, len(prompt))
        n = body["max_tokens"] if not self.is_bad("stop") else max(1, body["max_tokens"] // 2)
        job = Job(prompt, n, hit, hit, blocks)
        self.jobs.append(job)
        self._work.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        try:
            if not await self._nonsense(writer):
                await self._stream(job, writer, chat, self._withholds(body))
        finally:
            self.jobs = [one for one in self.jobs if one is not job]

    def _understands(self, body: dict) -> bool:
        kind = "ids" if isinstance(body.get("prompt"), list) else "text"
        extra = {"ignore_eos", "cache_salt"} & set(body)
        is_path = "/" in body.get("cache_salt", "")  # vLLM 0.32 refuses it
        return kind in self.takes and (not extra or "extras" in self.takes) and not is_path

    def _withholds(self, body: dict) -> bool:
        return self.is_bad("half") and "64" not in body.get("logit_bias", {})

    async def _nonsense(self, writer: asyncio.StreamWriter) -> bool:
        """An answer that is none, where that is the fault."""
        if self.is_bad("huge-line"):
            for _ in range(40):
                writer.write(b"data: " + b"x" * 50_000)
                await writer.drain()
        elif self.is_bad("endless"):
            for _ in range(5000):
                _event(writer, {"choices": [{"text": "x", "finish_reason": None}]})
                await writer.drain()
                await asyncio.sleep(0.01)
        elif self.is_bad("babble"):
            for _ in range(2000):
                writer.write(b": still here\n\n")
                await writer.drain()
                await asyncio.sleep(1.0)
        elif self.is_bad("error-event"):
            _event(writer, {"error": {"message": "secret words", "code": 500}})
            writer.write(b"data: [DONE]\n\n")
        else:
            return False
        return True

    async def _stream(self, job: Job, writer: asyncio.StreamWriter, chat: bool, withholds: bool) -> None:
        held = 0
        if self.is_bad("buffer"):
            for token in [await job.tokens.get() for _ in range(job.max_tokens)]:
                job.tokens.put_nowait(token)
        if chat:
            _event(writer, {"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        for i in range(1, job.max_tokens + 1):
            await job.tokens.get()
            if i > 1 and self.is_bad("stall"):
                await asyncio.sleep(30)
            if i > 1 and self.is_bad("close"):
                return
            held += 1
            if withholds and i % 3 and i < job.max_tokens:
                continue
            if self.is_bad("coalesce") and i % 4 and i < job.max_tokens:
                continue
            if self.is_bad("bunch") and i % 4 and i < job.max_tokens:
                continue
            last = i == job.max_tokens
            for k in range(held if self.fault == "bunch" else 1):
                reason = "length" if last and (self.fault != "bunch" or k == held - 1) else None
                said = {"delta": {"content": "x"}} if chat else {"text": "x"}
                _event(writer, {"choices": [{"index": 0, **said, "finish_reason": reason}]})
            held = 0
            if not self.is_bad("buffer"):
                await writer.drain()
        if not self.is_bad("no-usage"):
            n = len(job.prompt) * (3 if self.is_bad("wrong-usage") else 1)
            n = 900_000_000 if self.is_bad("vast-usage") else n
            completed = job.max_tokens // 2 if self.is_bad("few-completed") else job.max_tokens
            usage = {"prompt_tokens": n, "completion_tokens": completed}
            if not self.is_bad("no-cached") and not (self.is_bad("no-zeros") and not job.cached):
                more = 10**6 if self.is_bad("cached-more") else 0
                cached = n - 1 if self.is_bad("cached-all") else job.cached + more
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
            _event(writer, {"choices": [], "usage": usage})
        writer.write(b"data: [DONE]\n\n")


def _event(writer: asyncio.StreamWriter, event: dict) -> None:
    writer.write(f"data: {json.dumps(event)}\n\n".encode())


def _reply(writer: asyncio.StreamWriter, text: str, status: int = 200, more: str = "") -> None:
    kind = "application/json" if text.startswith("{") else "text/plain"
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}{more}"
    head += "\r\nConnection: close"
    writer.write(f"{head}\r\n\r\n{text}".encode())
