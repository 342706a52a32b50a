"""What the GPUs draw while an engine idles, prefills and decodes: samples of NVML, each with its phase.

NVML's figure is itself a mean over some tenths of a second, which single batches are too short for: each
phase is kept up for seconds. Source: nvidia-ml-py (pynvml), nvmlDeviceGetPowerUsage (milliwatts), ClockInfo.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentctl.inprocess.plan import Room
from agentctl.inprocess.stepping import Prompts, Stepped

INTERVAL_S = 0.1
PHASE_S = 6.0
SETTLE_S = 1.0  # of a phase that is not sampled: the figure lags behind
WIDEST = 32  # decodes
PROMPT = 2048


class Nvml:
    """Power and clock of the first `gpus` GPUs; None where there is no NVML or no GPU."""

    def __init__(self, library: Any, gpus: int) -> None:
        self.library = library
        self.handles = [library.nvmlDeviceGetHandleByIndex(i) for i in range(gpus)]

    def read(self) -> list[tuple[float, int]]:
        """(watts, MHz of the SMs) of each."""
        n = self.library
        return [
            (n.nvmlDeviceGetPowerUsage(one) * 1e-3, n.nvmlDeviceGetClockInfo(one, n.NVML_CLOCK_SM))
            for one in self.handles
        ]


def find_nvml(gpus: int) -> Nvml | None:
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        found = Nvml(pynvml, gpus)
        found.read()
    except pynvml.NVMLError:
        return None
    return found


class Sampler:
    """Writes a line for each GPU every INTERVAL_S while `phase` names one."""

    def __init__(self, nvml: Nvml, path: Path) -> None:
        self.nvml, self.phase = nvml, ""
        self._over = threading.Event()
        self._file = path.open("w", encoding="utf-8")
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Sampler:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._file.close()

    def _run(self) -> None:
        while not self._over.wait(INTERVAL_S):
            phase = self.phase
            for gpu, (watts, clock) in enumerate(self.nvml.read()):
                if phase:
                    row = {
                        "time_s": time.time(),
                        "watts": watts,
                        "clock_mhz": clock,
                        "gpu": gpu,
                        "phase": phase,
                    }
                    self._file.write(json.dumps(row) + "\n")
            self._file.flush()


def sample_phases(
    engine: Stepped, room: Room, prompts: Prompts, nvml: Nvml, path: Path,
    now: Callable[[], float] = time.monotonic,
) -> None:  # fmt: skip
    """Idle, prefill and decode, PHASE_S each, into the file `path`."""
    tokens = min(PROMPT, room.max_context - room.block_tokens - 1)
    width = min(WIDEST, room.max_num_seqs, max(1, room.context_tokens // tokens))
    with Sampler(nvml, path) as sampler:

        def keep_up(phase: str, go_on: Callable[[], object]) -> None:
            began = now()
            while (spent := now() - began) < PHASE_S:
                sampler.phase = phase if spent > SETTLE_S else ""
                go_on()
            sampler.phase = ""

        keep_up("idle", lambda: time.sleep(INTERVAL_S))
        keep_up("prefill", lambda: _prefill(engine, prompts.fresh(tokens)))
        names = [f"power-{i}" for i in range(width)]
        for i, name in enumerate(names):
            engine.add(name, prompts.stream(i, tokens // 2), room.max_context)
        while (step := engine.step()) and any(part[2] for part in step.batch):
            pass
        keep_up("decode", engine.step)
        engine.drop(names)


def _prefill(engine: Stepped, prompt: list[int]) -> None:
    engine.add("power-prefill", prompt, 1)
    while engine.step():
        pass
