"""One designed batch after the other, through whatever can be stepped; and what each step took."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from agentctl.inprocess.plan import STEPS, Room, Scene, rounds
from agentctl.inprocess.step_file import StepFile

Progress = Callable[[float, str], None]
WARM_STEPS = 20  # written, and left out of every fit: as many as a reader of step logs leaves out
WARM_PROMPT, WARM_WIDTH = 256, 4
IMPATIENT = 3.0  # times as many steps as a scene should take to be set up, and it is given up


class Taken(NamedTuple):
    """One step. seconds: by the engine's clock; batch: [tokens before, tokens now, 1 if prefill] of each."""

    time_s: float
    seconds: float
    wall_s: float
    batch: list[list[int]]

    @property
    def tokens(self) -> int:
        return sum(part[1] for part in self.batch)


class Stepped(Protocol):
    """An engine that computes one batch when it is told to."""

    def add(self, name: str, prompt: list[int], max_tokens: int) -> None: ...
    def step(self) -> Taken | None:
        """None: there was nothing to compute."""

    def drop(self, names: list[str]) -> None:
        """Forget these requests; their blocks stay cached."""


class Prompts:
    """Random token ids: stream i is always the same, fresh ones never come again."""

    def __init__(self, vocabulary: int, seed: int, attempt: int) -> None:
        self.ids = (min(100, vocabulary // 2), vocabulary)
        self.seed = seed
        self.streams: dict[int, np.ndarray] = {}
        self.random = np.random.default_rng((seed, 1, attempt))

    def stream(self, i: int, tokens: int) -> list[int]:
        known = self.streams.get(i)
        if known is None or len(known) < tokens:
            known = np.random.default_rng((self.seed, 0, i)).integers(*self.ids, max(tokens, 4096))
            self.streams[i] = known
        return known[:tokens].tolist()

    def fresh(self, tokens: int) -> list[int]:
        return self.random.integers(*self.ids, tokens).tolist()


def warm_up(engine: Stepped, prompts: Prompts) -> list[Taken]:
    """WARM_STEPS steps of prefill and decode, in which engines still compile."""
    names = [f"warm-{i}" for i in range(WARM_WIDTH)]
    for name in names:
        engine.add(name, prompts.fresh(WARM_PROMPT), WARM_STEPS + WARM_WIDTH)
    taken: list[Taken] = []
    while len(taken) < WARM_STEPS and (step := engine.step()):
        taken.append(step)
    engine.drop(names)
    return taken


def play(engine: Stepped, scene: Scene, prompts: Prompts) -> list[Taken]:
    """The recorded steps of a scene; none when the engine did not form its batch."""
    decodes = [f"{scene.name}-{i}" for i in range(scene.n)]
    joined = [f"{scene.name}-fresh-{i}" for i in range(len(scene.fresh))]
    try:
        for i, name in enumerate(decodes):
            engine.add(name, prompts.stream(i, scene.context), scene.context + 4 * STEPS + 10_000)
        if scene.n and not _all_decode(engine, scene):
            return []
        if scene.past:
            engine.add(f"{scene.name}-past", prompts.stream(0, scene.past), 1)
            while engine.step():
                pass
        for name, tokens in zip(joined, scene.fresh, strict=True):
            engine.add(name, [*prompts.stream(0, scene.past), *prompts.fresh(tokens)], 1)
        return _record(engine, scene)
    finally:
        engine.drop([*decodes, *joined])


def _all_decode(engine: Stepped, scene: Scene) -> bool:
    """Step until the batch is the scene's decodes and nothing else."""
    usual = scene.n + scene.n * scene.context / 256  # steps, by an engine that computes so little in one
    for _ in range(int(IMPATIENT * usual) + 20):
        step = engine.step()
        if step is None:
            return False
        if len(step.batch) == scene.n and not any(part[2] for part in step.batch):
            return True
    return False


def _record(engine: Stepped, scene: Scene) -> list[Taken]:
    taken: list[Taken] = []
    left = sum(scene.fresh)
    while left > 0 if scene.fresh else len(taken) < STEPS:
        step = engine.step()
        if step is None:
            break
        taken.append(step)
        left -= sum(part[1] for part in step.batch if part[2])
    return taken


def measure(
    engine: Stepped,
    room: Room,
    file: StepFile,
    prompts: Prompts,
    seed: int,
    seconds: float,
    progress: Progress | None = None,
    now: Callable[[], float] = time.monotonic,
) -> int:
    """Play what the file lacks of the plan, for `seconds` at most; the number of scenes that gave no step.

    Interrupted or raising, it leaves the scenes in the file that had ended.
    """
    failed = 0
    plan = [(number, scene) for number, each in enumerate(rounds(room, seed)) for scene in each]
    todo = [(number, scene) for number, scene in plan if (number, scene.name) not in file.done]
    total, done, began = sum(scene.tokens for _, scene in todo), 0, now()
    for number, scene in todo:
        share = max(done / total, (now() - began) / seconds)
        if share >= 1:
            break
        if progress:
            progress(share, f"stepping: {scene.name}")
        taken = play(engine, scene, prompts)
        failed += not taken
        file.write(taken, number, scene.name)
        done += scene.tokens
    return failed
