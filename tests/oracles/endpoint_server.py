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


@dataclass
class Job:
    prompt: list[int]
    max_tokens: int
    cached: int
    computed: int
    blocks: list[int]
    produced: int = 0
    tokens: asyncio.Queue = field(default_factory=asyncio.Queue)


def chain(prompt: list[int]) -> list[int]:
    """A name for each whole block of the prompt and all before it."""
    names, last = [], 0
    for end in range(BLOCK, len(prompt) + 1, BLOCK):
        last = hash((last, *prompt[end - BLOCK : end]))
        names.append(last)
    return names


@dataclass
class Server:
    """fault: http (with `status`), not-streamed, stall, close, coalesce, bunch, wrong-usage, no-usage, stop,
    no-cached, other-traffic or need-key; it begins after `good` answers."""

    c: BatchTime
    overhead_s: float = 0.003
    chunk: int = 512
    fault: str = ""
    status: int = 503
    good: int = 0
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
            if path == "/v1/models":
                _reply(writer, json.dumps({"data": [{"id": "tiny", "max_model_len": 4096}]}))
            elif path == "/metrics":
                running = len(self.jobs) + (3 if self.fault == "other-traffic" else 0)
                _reply(writer, f'vllm:num_requests_running{{engine="0"}} {running}\n')
            else:
                length = next(
                    int(line[15:]) for line in head.split("\r\n") if line.lower().startswith("content-le")
                )
                self.headers.append(head)
                self.seen.append(json.loads(await reader.readexactly(length)))
                await self._answer(self.seen[-1], writer)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, body: dict, writer: asyncio.StreamWriter) -> None:
        if self.is_bad("http") or (self.fault == "need-key" and "Bearer secret" not in self.headers[-1]):
            return _reply(writer, "{}", self.status if self.fault == "http" else 401)
        if self.is_bad("not-streamed"):
            return _reply(writer, json.dumps({"choices": [{"text": "x", "finish_reason": "length"}]}))
        prompt = body["prompt"] if isinstance(body["prompt"], list) else [ord(c) for c in body["prompt"]]
        await asyncio.sleep(self.overhead_s)
        blocks = chain(prompt)
        hit = self._hit(blocks, len(prompt))
        n = body["max_tokens"] if not self.is_bad("stop") else max(1, body["max_tokens"] // 2)
        job = Job(prompt, n, hit, hit, blocks)
        self.jobs.append(job)
        self._work.set()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        try:
            await self._stream(job, writer)
        finally:
            self.jobs = [one for one in self.jobs if one is not job]

    async def _stream(self, job: Job, writer: asyncio.StreamWriter) -> None:
        held = 0
        for i in range(1, job.max_tokens + 1):
            await job.tokens.get()
            if i > 1 and self.is_bad("stall"):
                await asyncio.sleep(30)
            if i > 1 and self.is_bad("close"):
                return
            held += 1
            if self.is_bad("coalesce") and i % 4 and i < job.max_tokens:
                continue
            if self.is_bad("bunch") and i % 4 and i < job.max_tokens:
                continue
            last = i == job.max_tokens
            for k in range(held if self.fault == "bunch" else 1):
                reason = "length" if last and (self.fault != "bunch" or k == held - 1) else None
                _event(writer, {"choices": [{"index": 0, "text": "x", "finish_reason": reason}]})
            held = 0
            await writer.drain()
        if not self.is_bad("no-usage"):
            n = len(job.prompt) * (3 if self.is_bad("wrong-usage") else 1)
            usage = {"prompt_tokens": n, "completion_tokens": job.max_tokens}
            if not self.is_bad("no-cached"):
                usage["prompt_tokens_details"] = {"cached_tokens": job.cached}
            _event(writer, {"choices": [], "usage": usage})
        writer.write(b"data: [DONE]\n\n")


def _event(writer: asyncio.StreamWriter, event: dict) -> None:
    writer.write(f"data: {json.dumps(event)}\n\n".encode())


def _reply(writer: asyncio.StreamWriter, text: str, status: int = 200) -> None:
    kind = "application/json" if text.startswith("{") else "text/plain"
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(text)}\r\nConnection: close"
    writer.write(f"{head}\r\n\r\n{text}".encode())
