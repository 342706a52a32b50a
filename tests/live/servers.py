"""Real servers for a live test: started on one core, with a log beside the model, and stopped again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

HERE = Path(__file__).parent
Serving = contextlib.AbstractContextManager[str]  # of the URL
START_S = 240
STOP_S = 20
ENGINE_CORE, CLIENT_CORE = 1, 0
VLLM = {
    "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": str(ENGINE_CORE), "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING",
}  # fmt: skip


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextlib.contextmanager
def server(command: list[str], port: int, log: Path, environment: dict[str, str]) -> Iterator[str]:
    """The server's URL, once it answers /health. It and whatever it started end with the block."""
    with log.open("wb") as out:
        started = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env={**os.environ, **environment},
            start_new_session=True, preexec_fn=lambda: os.sched_setaffinity(0, {CLIENT_CORE}),
        )  # fmt: skip
    ahead_of_others(started.pid)
    try:
        url = f"http://127.0.0.1:{port}"
        await_health(started, url, log)
        yield url
    finally:
        end(started)


def ahead_of_others(pid: int) -> bool:
    """The session of `pid` before all others on a shared machine, where we may: niceness counts within a
    session, and between sessions only that of the autogroup does."""
    try:
        os.setpriority(os.PRIO_PROCESS, pid, -19)
        Path(f"/proc/{pid}/autogroup").write_text("-20")
    except OSError:
        return False
    return True


def await_health(started: subprocess.Popen[bytes], url: str, log: Path) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        if started.poll() is not None:
            break
        with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            if answer.status == 200:
                return
        time.sleep(0.5)
    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-4000:]}")


def end(started: subprocess.Popen[bytes]) -> None:
    """The whole session that it leads: vLLM has three processes."""
    for stop in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, stop)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(STOP_S)
            if stop == signal.SIGTERM:
                time.sleep(1.0)


def vllm_server(model: Path, steps: Path, arguments: dict[str, str]) -> Serving:
    """vLLM behind HTTP, which also writes its own steps."""
    port = free_port()
    command = [
        sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model),
        "--host", "127.0.0.1", "--port", str(port),
        "--load-format", "dummy", "--enforce-eager", "--enable-prompt-tokens-details",
        "--scheduler-cls", "agentctl.recorders.vllm_scheduler.StepScheduler",
        *(word for name, value in arguments.items() for word in (f"--{name.replace('_', '-')}", value)),
    ]  # fmt: skip
    return server(command, port, steps.with_suffix(".log"), {**VLLM, "AGENTCTL_STEPS": str(steps)})


def llama_server(model: Path, log: Path) -> Serving:
    port = free_port()
    command = [sys.executable, str(HERE / "llama_server.py"), str(model), str(port), str(ENGINE_CORE)]
    return server(command, port, log, {"OMP_NUM_THREADS": "1"})
