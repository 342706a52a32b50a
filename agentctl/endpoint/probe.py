"""Sending a plan to an endpoint: step by step, within its budget, and everything seen written at once."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import numpy as np

from agentctl.endpoint.client import Answer, Client, now
from agentctl.endpoint.failures import failure
from agentctl.endpoint.measured import Measured
from agentctl.endpoint.plan import USUAL_S, Plan, Probe, Step
from agentctl.endpoint.prompts import Prompts
from agentctl.endpoint.server import check_quiet, quiet_load

FIT_SHARE = 0.85  # of the seconds; the rest is the mixed load's
MOST_FAILED = 3  # requests one after the other, and the run stops
PACES = (0.05, 5.0)  # of the mixed load, at least and at most

Progress = Callable[[float, str], None]


async def probe(
    plan: Plan,
    client: Client,
    measured: Measured,
    progress: Progress | None = None,
    cpu_time: Callable[[], float] = time.process_time,
    note: Callable[[str], None] = lambda said: None,
) -> None:
    """Run the steps of `plan` that `measured` lacks, in the client's dialect.

    Cancelled or raising, it leaves in the file all that was seen until then. Prompts are distinct in each
    attempt: what an interrupted one left in the cache is no hit. Raises InputError for an endpoint that
    cannot be used.
    """
    prompts = Prompts(f"{measured.header['salt']}/{measured.attempts}", client.dialect)
    run = _Run(plan, client, prompts, measured, cpu_time)
    await check_quiet(client)
    told = False
    for step in plan.steps:
        left = run.seconds_left()
        if not told and step.kind != "warm":
            note(f"about {left:.0f} s to go")
            told = True
        if progress:
            progress(run.spent / max(run.spent + left, 1e-9), f"probing: {step.kind}")
        if step.name not in measured.steps and run.has_time_for(step):
            await run.step(step)


class _Run:
    def __init__(
        self, plan: Plan, client: Client, prompts: Prompts, measured: Measured, cpu_time: Callable[[], float]
    ) -> None:
        self.cpu_time = cpu_time
        self.plan, self.client, self.prompts, self.measured = plan, client, prompts, measured
        self.origin, self.before = now(), measured.seconds_spent
        self.failed = 0

    @property
    def spent(self) -> float:
        return self.before + now() - self.origin

    def seconds_left(self) -> float:
        """Of what is not done yet, as the warm-up's requests took: roughly, and at most what is allowed."""
        rows = {one["request"]: one["chunks_s"] for one in self.measured.rows()}
        first = (rows.get("warm-1") or [USUAL_S])[0]
        steps = rows.get("warm-2") or []
        each = float(np.median(np.diff(steps))) if len(steps) > 1 else first / 8
        todo = [step for step in self.plan.steps if step.name not in self.measured.steps]
        seconds = sum(step.seconds(first / 512, each, self._pace()) for step in todo)
        return max(0.0, min(seconds, self.plan.seconds - self.spent))

    def has_time_for(self, step: Step) -> bool:
        return self.spent < self.plan.seconds * (1.0 if step.kind == "mixed" else FIT_SHARE)

    def _pace(self) -> float:
        """How much slower than USUAL_S the engine is: on a fast one, nobody would wait for anybody."""
        row = next((one for one in self.measured.rows() if one["request"] == "warm-1"), None)
        seconds = row["chunks_s"][0] if row and row["chunks_s"] else USUAL_S
        return float(np.clip(seconds / USUAL_S, *PACES))

    async def step(self, step: Step) -> None:
        began, cpu = now(), self.cpu_time()
        load_before = await quiet_load(self.client)
        answers: list[Answer] = []
        late = False
        try:
            async with asyncio.timeout(max(self.plan.seconds - self.spent, 0.1)):
                for number, phase in enumerate(step.phases):
                    answers += await self._phase(step, number, phase)
        except TimeoutError:
            late = True  # what it had is written, as cut
        wall = now() - began
        busy = (self.cpu_time() - cpu) / max(wall, 1e-6)
        if not late:
            load_after = await quiet_load(self.client)
            facts = {"load_before": load_before, "load_after": load_after, "client_busy": busy}
            self._judge(step, answers)
            self.measured.end_step(step, {"seconds": wall, **facts})

    async def _phase(self, step: Step, number: int, probes: tuple[Probe, ...]) -> list[Answer]:
        pace = self._pace() if step.kind == "mixed" else 1.0
        counts = {probe.name: 0 for probe in probes}
        ended: set[str] = set()
        moved = asyncio.Event()
        began = now()

        async def one(probe: Probe) -> Answer:
            answer = Answer(now())
            body = self.client.body(
                self.measured.header["model"],
                self.prompts.of(probe.prompt),
                probe.max_tokens,
                self.prompts.salt,
            )

            def on_token() -> None:
                counts[probe.name] += 1
                moved.set()

            try:
                await asyncio.sleep(max(0.0, began + pace * probe.after_s - now()))
                others = [other.name for other in probes if other is not probe]
                while probe.carrier_tokens and any(
                    counts[name] < probe.carrier_tokens and name not in ended for name in others
                ):
                    moved.clear()
                    await moved.wait()
                await self.client.complete(body, probe.max_tokens, answer, on_token)
            finally:
                ended.add(probe.name)
                moved.set()
                self.measured.add(step, number, probe, answer, self.origin)
            return answer

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(one(probe)) for probe in probes]
        except BaseExceptionGroup as errors:  # such as a full disk, for each of them
            raise errors.exceptions[0] from None
        return [task.result() for task in tasks]

    def _judge(self, step: Step, answers: list[Answer]) -> None:
        """Stop early where going on makes no sense: at a first answer that is wrong, or several failures."""
        for answer in answers:
            self.failed = 0 if answer.status == "ok" else self.failed + 1
            if answer.status != "ok" and (step.kind == "warm" or self.failed >= MOST_FAILED):
                raise failure(answer)
