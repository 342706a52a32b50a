"""Sending a plan to an endpoint: step by step, within its budget, and everything seen written at once."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from agentctl.endpoint.client import Answer, Client, now
from agentctl.endpoint.measured import Measured
from agentctl.endpoint.plan import USUAL_S, Plan, Probe, Step
from agentctl.errors import InputError

IDS = (300, 1300)  # token ids: no special ones in the vocabularies we know, and in even small ones
FIT_SHARE = 0.85  # of the seconds; the rest is the mixed load's
MOST_FAILED = 3  # requests one after the other, and the run stops
TOKENS_PER_WORD = 2.0  # a guess, until the first answer
PACES = (0.05, 5.0)  # of the mixed load, at least and at most
LETTERS = np.array(list("abcdefghijklmnopqrstuvwxyz"))

Progress = Callable[[float, str], None]


@dataclass
class Prompts:
    """Prompts as token ids, or as text of random words with `tokens_per_word` (measured in the warm-up)."""

    salt: str
    as_text: bool = False
    tokens_per_word: float = TOKENS_PER_WORD

    def learn(self, asked: int, told: int) -> None:
        """From the first answer: what was asked for as TOKENS_PER_WORD is so many tokens."""
        self.tokens_per_word = TOKENS_PER_WORD * max(told, 1) / asked

    def of(self, probe: Probe, attempt: int) -> list[int] | str:
        """Distinct in each attempt: what an interrupted one left in the cache is no hit."""
        parts = [self._piece(f"{self.salt}/{attempt}/{piece.salt}", piece.tokens) for piece in probe.prompt]
        if self.as_text:
            return " ".join(" ".join(part) for part in parts)
        return [token for part in parts for token in part]

    def _piece(self, name: str, tokens: int) -> list[Any]:
        digest = hashlib.sha256(name.encode()).digest()
        random = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        if not self.as_text:
            return random.integers(*IDS, tokens).tolist()
        words = max(1, round(tokens / self.tokens_per_word))
        return ["".join(letters) for letters in random.choice(LETTERS, (words, 5))]


async def probe(
    plan: Plan,
    client: Client,
    prompts: Prompts,
    measured: Measured,
    progress: Progress | None = None,
    cpu_time: Callable[[], float] = time.process_time,
) -> None:
    """Run the steps of `plan` that `measured` lacks. Raises InputError for an endpoint that cannot be used.

    Cancelled or raising, it leaves in the file all that was seen until then.
    """
    run = _Run(plan, client, prompts, measured, cpu_time)
    await run.check_quiet()
    for step in plan.steps:
        if progress:
            progress(run.share_done(), f"probing: {step.kind}")
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

    def share_done(self) -> float:
        done = sum(step.n_requests for step in self.plan.steps if step.name in self.measured.steps)
        return done / self.plan.n_requests

    def has_time_for(self, step: Step) -> bool:
        return self.spent < self.plan.seconds * (1.0 if step.kind == "mixed" else FIT_SHARE)

    async def check_quiet(self) -> None:
        """Other traffic would be measured as the engine's own slowness."""
        loads = []
        for _ in range(3):
            loads.append(await self.client.load())
            if not loads[-1]:
                return
            await asyncio.sleep(0.3)
        raise InputError(
            f"the engine is serving {loads[-1]:.0f} other requests, and timings would be theirs, too",
            place="endpoint", hint="probe an engine that nothing else is sent to",
        )  # fmt: skip

    def _pace(self) -> float:
        """How much slower than USUAL_S the engine is: on a fast one, nobody would wait for anybody."""
        row = next((one for one in self.measured.rows() if one["request"] == "warm-1"), None)
        seconds = row["chunks_s"][0] if row and row["chunks_s"] else USUAL_S
        return float(np.clip(seconds / USUAL_S, *PACES))

    async def _load(self) -> float | None:
        """Of others: our own last request may still be counted for an instant."""
        for _ in range(3):
            load = await self.client.load()
            if not load:
                break
            await asyncio.sleep(0.1)
        return load

    async def step(self, step: Step) -> None:
        began, cpu = now(), self.cpu_time()
        load_before = await self._load()
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
            load_after = await self._load()
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
            prompt = self.prompts.of(probe, self.measured.attempts)

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
                model = self.measured.header["model"]
                await self.client.complete(model, prompt, probe.max_tokens, answer, on_token)
            finally:
                ended.add(probe.name)
                moved.set()
                self.measured.add(step, number, probe, answer, self.origin)
            return answer

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(probe)) for probe in probes]
        return [task.result() for task in tasks]

    def _judge(self, step: Step, answers: list[Answer]) -> None:
        """Stop early where going on makes no sense: at a first answer that is wrong, or several failures."""
        for answer in answers:
            self.failed = 0 if answer.status == "ok" else self.failed + 1
            if answer.status != "ok" and (step.kind == "warm" or self.failed >= MOST_FAILED):
                raise failure(answer)
        if step.name == "warm-0":
            self._check_first(step.phases[0][0], answers[0])

    def _check_first(self, probe: Probe, answer: Answer) -> None:
        told, asked = answer.prompt_tokens, probe.prompt_tokens
        if told is None or answer.completion_tokens is None:
            raise InputError(
                "the server reports no usage, and tokens are not known without it", place="endpoint",
                expected="usage in the stream's last chunk (stream_options.include_usage)",
            )  # fmt: skip
        if self.prompts.as_text:
            self.prompts.learn(asked, told)
        elif not asked <= told <= asked + 2:  # a begin-of-text token may be added
            raise InputError(
                f"{asked} token ids were sent and usage says {told} prompt tokens", place="endpoint",
                hint="it does not take token ids, or its usage is wrong: --prompts text sends words",
            )  # fmt: skip


def failure(answer: Answer) -> InputError:
    """The error of one request, in words, without a word of the server's answer."""
    code = answer.http
    match answer.status:
        case "http" if code in (401, 403):
            fact, hint = (
                f"HTTP {code}: not allowed",
                "the key is read from AGENTCTL_API_KEY or OPENAI_API_KEY",
            )
        case "http" if code == 404:
            fact, hint = "HTTP 404: no such path or model", "the URL ends before /completions; --served-model"
        case "http" if code in (400, 422):
            fact, hint = (
                f"HTTP {code}: the request was refused",
                "is --max-context right? --prompts text, if it takes no token ids",
            )
        case "http":
            fact, hint = f"HTTP {code}", "the server's own log says why; the same command goes on later"
        case "refused":
            fact, hint = "nothing answers there", "is the server up, and the port right?"
        case "not streamed":
            fact, hint = "the answer is not streamed", "timings need a stream of events, chunk by chunk"
        case "stalled":
            fact, hint = (
                "no chunk came for too long",
                "the same command goes on when the server answers again",
            )
        case "closed":
            fact, hint = "the stream ended before [DONE]", "a proxy between, or the engine died: see its log"
        case _:
            fact, hint = (
                "the stream is no sequence of events of the OpenAI API",
                "is it an OpenAI-style server?",
            )
    return InputError(fact, place="endpoint", hint=hint)
