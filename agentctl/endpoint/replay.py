"""Sending a slice of a trace: each turn its gap after its predecessor's end, within limits, all written."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from agentctl.endpoint.client import Answer, Client, now
from agentctl.endpoint.failures import failure
from agentctl.endpoint.prompts import Prompts
from agentctl.endpoint.replayed import NOT_SENT, Replayed
from agentctl.endpoint.rows import BUSY
from agentctl.endpoint.server import check_quiet, quiet_load
from agentctl.endpoint.slice import Contents, Slice
from agentctl.workload import AFTER_END, AFTER_START

MOST_FAILED = 5  # requests one after the other, and the run stops
GRACE_S = 60.0  # for answers under way when the time is up
WATCH_S = 1.0  # between looks at who else is there
LAG_S = 3.0  # an engine tells its load by batches: one of ours that has ended may be counted so long
PREPARE_S = 0.2  # before it is due a prompt is made
WARM_UP = ((512, 1), (200, 8))  # tokens of prompt and output
Progress = Callable[[float, str], None]


@dataclass(frozen=True)
class Limits:
    seconds: float  # in which requests are sent
    rate: float  # requests a second, at most


async def replay(
    part: Slice,
    client: Client,
    model: str,
    rows: Replayed,
    limits: Limits,
    progress: Progress | None = None,
    cpu_time: Callable[[], float] = time.process_time,
) -> None:
    """Send the slice in the client's dialect. Raises InputError for a server that fails again and again.

    Cancelled or raising, it leaves in the file all that was seen until then.
    """
    await check_quiet(client)
    run = _Run(part, client, model, rows, limits, progress)
    await run.warm_up()
    await run.others()  # does the engine say what it is serving?
    watch = asyncio.create_task(run.watch(cpu_time))
    cpu, began = cpu_time(), now()
    try:
        await run.send_all()
    finally:
        watch.cancel()
        await asyncio.gather(watch, return_exceptions=True)
    await check_quiet_again(run)
    wall = now() - began
    rows.finish({
        "seconds": wall, "client_busy": (cpu_time() - cpu) / max(wall, 1e-6), "load_known": run.load_known,
    })  # fmt: skip


async def check_quiet_again(run: _Run) -> None:
    """Who is there when all of ours have ended was there before."""
    begin = now()
    others = await quiet_load(run.client, LAG_S / 3) if run.load_known else 0.0
    if others:
        run.rows.disturb(run.looked - run.origin, begin - run.origin, others, 0.0)


class _Run:
    def __init__(
        self, part: Slice, client: Client, model: str, rows: Replayed, limits: Limits,
        progress: Progress | None,
    ) -> None:  # fmt: skip
        self.part, self.client, self.model, self.rows, self.limits = part, client, model, rows, limits
        self.progress = progress
        self.requests = part.workload.requests
        self.contents = Contents(part.workload)
        self.prompts = Prompts(str(rows.header["salt"]), client.dialect)
        n = part.n_requests
        self.started = [asyncio.Event() for _ in range(n)]
        self.ended = [asyncio.Event() for _ in range(n)]
        self.sent_at, self.ended_at = [0.0] * n, [0.0] * n
        self.next_slot = 0.0
        self.failed = self.in_flight = self.n_ended = 0
        self.lately: deque[tuple[float, int]] = deque([(now(), 0)])  # requests under way, since when
        self.broken: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.load_known = False
        self.origin = self.looked = now()

    async def warm_up(self) -> None:
        """Lazy compilation, graphs: no part of what is compared. Raises InputError where it fails."""
        for number, (tokens, output) in enumerate(WARM_UP):
            answer = Answer(now())
            prompt = self.prompts.of([(f"warm-{number}", tokens)])
            await self.client.complete(self.client.body(self.model, prompt, output), output, answer)
            if answer.status != "ok":
                raise failure(answer)

    async def send_all(self) -> None:
        self.origin = self.looked = now()
        tasks = [asyncio.create_task(self.one(r)) for r in range(self.part.n_requests)]
        everything = asyncio.ensure_future(asyncio.gather(*tasks))
        try:
            async with asyncio.timeout(self.limits.seconds + GRACE_S):
                await asyncio.wait([everything, self.broken], return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            pass  # what was under way is written, as cut
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, everything, return_exceptions=True)
        if self.broken.done():
            self.broken.result()
        if not everything.cancelled():
            everything.result()

    async def one(self, r: int) -> None:
        answer, due = Answer(now(), NOT_SENT), self.origin
        prompt, output = int(self.requests.prompt_tokens[r]), int(self.requests.output_tokens[r])
        try:
            due = await self.released(r)
            if due >= self.origin + self.limits.seconds:
                return
            await asyncio.sleep(due - PREPARE_S - now())
            tokens = self.prompts.of(self.contents.pieces(r))
            body = self.client.body(self.model, tokens, output, self.prompts.salt)
            slot = self.slot(due)
            if slot >= self.origin + self.limits.seconds:
                return
            await asyncio.sleep(slot - now())
            answer.status = "cut"
            await self.send(r, body, output, answer)
        finally:
            self.ended_at[r] = now()
            self.rows.add(r, (prompt, output), due, answer, self.origin)
            self.started[r].set()
            self.ended[r].set()
            self.tell()
        self.judge(answer)

    async def released(self, r: int) -> float:
        """When it is due, once that is known."""
        requests = self.requests
        kind, gap = int(requests.release[r]), float(requests.gap[r])
        deps = requests.deps[requests.deps_start[r] : requests.deps_start[r + 1]].tolist()
        for d in deps:
            await (self.started if kind == AFTER_START else self.ended)[d].wait()
        if kind == AFTER_START:
            return max(self.sent_at[d] for d in deps) + gap
        if kind == AFTER_END:
            return max(self.ended_at[d] for d in deps) + gap
        return max([self.origin + float(requests.arrival[r]), *(self.ended_at[d] for d in deps)])

    def slot(self, due: float) -> float:
        """The first moment from `due` on that the rate allows."""
        slot = max(due, now(), self.next_slot)
        self.next_slot = slot + 1 / self.limits.rate
        return slot

    async def send(self, r: int, body: bytes, output: int, answer: Answer) -> None:
        self.count(1)
        self.sent_at[r] = now()
        self.started[r].set()
        try:
            await self.client.complete(body, output, answer)
        finally:
            self.count(-1)

    def count(self, more: int) -> None:
        self.in_flight += more
        self.lately.append((now(), self.in_flight))
        while len(self.lately) > 1 and self.lately[1][0] < now() - LAG_S:
            self.lately.popleft()

    def judge(self, answer: Answer) -> None:
        """Going on makes no sense where one after the other fails."""
        self.failed = 0 if answer.status == "ok" else self.failed + 1
        if self.failed >= MOST_FAILED and not self.broken.done():
            self.broken.set_exception(failure(answer))

    def tell(self) -> None:
        self.n_ended += 1
        if self.progress:
            self.progress(self.n_ended / self.part.n_requests, "replaying")

    async def watch(self, cpu_time: Callable[[], float]) -> None:
        """Stretches in which the engine served others, or this client had no time."""
        while True:
            begin, cpu = now(), cpu_time()
            await asyncio.sleep(WATCH_S)
            others = await self.others() if self.load_known else 0.0
            busy = (cpu_time() - cpu) / max(now() - begin, 1e-6)
            if others or busy > BUSY:
                self.rows.disturb(begin - self.origin, now() - self.origin, others, busy)
            self.looked = now()

    async def others(self) -> float:
        """Requests there beyond what ours were at any moment lately."""
        load = await self.client.load()
        self.load_known = (self.load_known or load is not None) and not self.client.is_mute
        self.count(0)
        return max(0.0, (load or 0.0) - max(n for _, n in self.lately))


def facts_of(part: Slice) -> dict[str, Any]:
    """What is sent and what is not, for a document."""
    return {
        "sessions": part.sessions, "requests": part.n_requests, "left_out": part.left_out,
        "sessions_too_long": part.too_long_sessions,
    }  # fmt: skip
