"""Starting an engine in this process and making it compute designed batches, within seconds.

Nothing that imports numba is imported here: vLLM 0.32 looks at every module in the process when it starts,
and trips over llvmlite's.
"""

from __future__ import annotations

import hashlib
import math
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from agentctl.errors import ConfigError, UsageError
from agentctl.estimators.model_config import config_bytes, read_config
from agentctl.estimators.model_shape import shape_of
from agentctl.inprocess.clocks import Clock
from agentctl.inprocess.dense import measure_dense, sizes
from agentctl.inprocess.plan import Room, rounds
from agentctl.inprocess.power import find_nvml, sample_phases
from agentctl.inprocess.step_file import WARM, StepFile, check_same
from agentctl.inprocess.stepping import Progress, Prompts, Stepped, Taken, measure, warm_up
from agentctl.inprocess.torch_layers import TorchLayers

LEAST_SECONDS = 20.0
CONTEXT_SHARE = 0.1  # of the seconds for computing the contexts of one wide batch,
LONGEST_SHARE = 0.03  # and for one long prompt
LEAST_CONTEXT = 1024  # tokens of a request, where the engine takes so many
SPENT = 0.95  # of the seconds, from which a file is as long as was asked for
SHORTEST_CONTEXT = 256  # below, nothing can be told apart


class Started(Stepped, Protocol):
    """What an adapter of an engine is, beside being stepped."""

    version: str
    device: str
    device_name: str
    clock: Clock

    @property
    def vocabulary(self) -> int: ...
    def limits(self) -> dict[str, Any]: ...
    def mode(self) -> dict[str, Any]: ...
    def captured(self) -> tuple[int, ...]: ...
    def close(self) -> None: ...


@dataclass(frozen=True)
class Asked:
    """model: a config.json or its folder; arguments: of the engine, by its names; seconds: of stepping."""

    model: Path
    arguments: Mapping[str, Any] = field(default_factory=dict)
    eager: bool = False
    gpus: int = 1
    seconds: float = 300.0
    max_context: int | None = None
    seed: int = 0

    def facts(self) -> dict[str, Any]:
        """What names it: a file takes no steps of another one. Raises ConfigError without a config."""
        return {
            "config": hashlib.sha256(config_bytes(config_of(self.model))).hexdigest(),
            "arguments": dict(sorted(self.arguments.items())),
            "eager": self.eager,
            "gpus": self.gpus,
            "max_context": self.max_context,
            "seed": self.seed,
        }


def config_of(model: Path) -> Path:
    return model / "config.json" if model.is_dir() else model


def measure_engine(
    asked: Asked,
    path: Path,
    start: Callable[[Path, Mapping[str, Any], bool, int], Started],
    note: Callable[[str], None] = lambda said: None,
    progress: Progress | None = None,
) -> StepFile:
    """Step the engine that `start` makes into the file `path`, or go on where it stands.

    A file that is complete is left as it is, and no engine is started. Interrupted, the file keeps what was
    measured. Raises UsageError for a file of another engine, and what `start` raises.
    """
    _check_budget(asked.seconds)
    file = StepFile(path)
    known = asked.facts()
    if _is_whole(file, known, path, asked.seconds, lambda: _scene_names(file, asked.seed), note):
        return file
    with folder_of(asked.model) as folder:
        note("starting the engine, with weights of no meaning")
        engine = start(folder, asked.arguments, asked.eager, asked.gpus)
        try:
            _step(engine, asked, known, file, note, progress)
        finally:
            file.close()
            engine.close()
    return file


def measure_torch(
    asked: Asked,
    path: Path,
    dtype: str,
    note: Callable[[str], None] = lambda said: None,
    progress: Progress | None = None,
) -> StepFile:
    """The same of the model's dense layers alone (torch_layers.py). Raises as measure_engine does."""
    _check_budget(asked.seconds)
    config = config_of(asked.model)
    shape = shape_of(read_config(config), str(config))
    file, known = StepFile(path), {**asked.facts(), "layers": dtype}
    names = [(r, f"{kind}-{n}") for r, kind, n in sizes(asked.seed)]
    if _is_whole(file, known, path, math.inf, lambda: names, note):
        return file
    dense = TorchLayers(shape, dtype, str(config))
    note(f"timing layers for {asked.seconds:.0f} s at most; what is measured goes to {path}")
    try:
        measure_dense(dense, known, file, asked.seed, asked.seconds, progress)
    finally:
        file.close()
    return file


def _is_whole(
    file: StepFile,
    known: dict[str, Any],
    path: Path,
    seconds: float,
    names: Callable[[], list[tuple[int, str]]],
    note: Callable[[str], None],
) -> bool:
    """Whether nothing is left to measure, or no time. Raises UsageError for a file of something else."""
    if not file.facts:
        return False
    check_same(file.facts.get("asked", {}), known, known, path)
    if file.done.issuperset(names()):
        note(f"{path} is complete: no engine is started")
        return True
    if file.spent_s > SPENT * seconds:
        note(f"{path} has had its {seconds:.0f} s, and no engine is started: a larger --budget goes on")
        return True
    return False


def _scene_names(file: StepFile, seed: int) -> list[tuple[int, str]]:
    plan = rounds(Room.of(file.facts["room"]), seed)
    return [(number, scene.name) for number, each in enumerate(plan) for scene in each]


def _check_budget(seconds: float) -> None:
    if seconds < LEAST_SECONDS:
        raise UsageError(f"is {seconds:g} s", place="--budget", expected=f"{LEAST_SECONDS:g} s at least")


def _step(
    engine: Started, asked: Asked, known: dict[str, Any], file: StepFile,
    note: Callable[[str], None], progress: Progress | None,
) -> None:  # fmt: skip
    prompts = Prompts(engine.vocabulary, asked.seed, file.starts)
    warm = warm_up(engine, prompts)
    again = warm_up(engine, prompts)  # the first one compiles: its time says nothing of the pace
    room = Room.of(file.facts["room"]) if file.facts else room_of(engine, asked, pace(again))
    facts = {
        "asked": known, "engine": engine.version, "device": engine.device_name, "clock": engine.clock.name,
        "mode": engine.mode(), "limits": engine.limits(), "room": room.table(),
    }  # fmt: skip
    is_new = not file.facts
    file.open(facts)
    if is_new:
        file.write(warm, 0, WARM)
    left = asked.seconds - file.spent_s
    note(f"stepping for {left:.0f} s at most; what is measured goes to {file.path}")
    failed = measure(engine, room, file, prompts, asked.seed, left, progress)
    if failed:
        note(f"{failed} compositions could not be formed: the engine did not take them")
    if engine.device != "cpu" and (nvml := find_nvml(asked.gpus)):
        note("sampling power: idle, prefill, decode")
        sample_phases(engine, room, prompts, nvml, power_path(file.path))


def power_path(steps: Path) -> Path:
    """Where the power samples of a measurement lie."""
    return steps.with_suffix(".power.jsonl")


def pace(taken: list[Taken]) -> float:
    """Prefill tokens per second, of the fastest step."""
    rates = [sum(p[1] for p in one.batch if p[2]) / one.wall_s for one in taken if one.wall_s > 0]
    return max(rates, default=0.0)


def room_of(engine: Started, asked: Asked, tokens_per_s: float) -> Room:
    """Sizes of batches that this engine takes and that fit into the time. Raises UsageError for too few."""
    limits = engine.limits()
    longest = max(LEAST_CONTEXT, int(LONGEST_SHARE * asked.seconds * tokens_per_s))
    context = min(limits["max_model_len"], asked.max_context or longest)
    if context < SHORTEST_CONTEXT + limits["block_tokens"]:
        raise UsageError(
            f"leaves {context} tokens for a request", place="--max-context",
            expected=f"{SHORTEST_CONTEXT + limits['block_tokens']} at least",
            hint="the model's own limit is its max_position_embeddings",
        )  # fmt: skip
    return Room(
        limits["block_tokens"], limits["kv_blocks"], limits["max_num_batched_tokens"], limits["max_num_seqs"],
        context, max(context, int(CONTEXT_SHARE * asked.seconds * tokens_per_s)), engine.captured(),
    )  # fmt: skip


@contextmanager
def folder_of(model: Path) -> Iterator[Path]:
    """The model's folder, or one made around its config.json: no weights and no tokenizer are needed."""
    if model.is_dir():
        yield model
        return
    if not model.is_file():
        raise ConfigError(
            "is no file", place=str(model), expected="a folder with a config.json, or that file"
        )
    with tempfile.TemporaryDirectory(prefix="agentctl-model-") as folder:
        shutil.copyfile(model, Path(folder) / "config.json")
        yield Path(folder)
