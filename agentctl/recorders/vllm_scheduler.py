"""A vLLM scheduler that also writes the composition and duration of every step.

    AGENTCTL_STEPS=steps.jsonl vllm serve MODEL \\
        --scheduler-cls agentctl.recorders.vllm_scheduler.StepScheduler

A step lasts from the end of schedule() to the beginning of update_from_output() of the same output. vLLM
warns that the interface is not public; with a class that is not its AsyncScheduler it turns asynchronous
scheduling off, so that the host's work is not hidden behind the GPU's as it is in production with it (b0 is
larger). With pipeline parallelism several steps overlap: do not calibrate from that.

Source of the names: vLLM 0.32, v1/core/sched/scheduler.py (Scheduler.schedule, update_from_output),
v1/core/sched/output.py (SchedulerOutput, NewRequestData, CachedRequestData), v1/request.py (Request).
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from agentctl.recorders.writer import StepWriter

if TYPE_CHECKING:
    StepScheduler: type


class Recording:
    """The mixin: put before a scheduler class with schedule() and update_from_output()."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        config = getattr(getattr(self, "vllm_config", None), "parallel_config", None)
        self._agentctl_writer = StepWriter(getattr(config, "data_parallel_rank", 0) or 0)
        # Where another process runs the model, this thread polls for it, and its waiting says nothing.
        self._agentctl_runs_model = getattr(config, "distributed_executor_backend", None) in (None, "uni")
        self._agentctl_open: dict[int, tuple[float, float, float, list[list[int]]]] = {}

    def schedule(self, *args: Any, **kwargs: Any) -> Any:
        output = super().schedule(*args, **kwargs)  # type: ignore[misc]
        batch = composition(output, getattr(self, "requests", {}))
        if batch:
            self._agentctl_open.clear()  # an output that never came back
            self._agentctl_open[id(output)] = (time.time(), waited_s(), time.perf_counter(), batch)
        return output

    def update_from_output(self, scheduler_output: Any, *args: Any, **kwargs: Any) -> Any:
        now = time.perf_counter()
        begun = self._agentctl_open.pop(id(scheduler_output), None)
        if begun is not None:
            time_s, waited, start, batch = begun
            known = self._agentctl_runs_model and waited == waited
            wait = {"wait_s": max(waited_s() - waited, 0.0)} if known else {}
            self._agentctl_writer.write({"time_s": time_s, "seconds": now - start, **wait, "batch": batch})
        return super().update_from_output(scheduler_output, *args, **kwargs)  # type: ignore[misc]


def composition(output: Any, requests: Any) -> list[list[int]]:
    """[tokens computed before, tokens computed now, 1 if prefill else 0] of each request of a step."""
    before: dict[str, tuple[int, bool]] = {}
    for new in getattr(output, "scheduled_new_reqs", ()):
        before[new.req_id] = (new.num_computed_tokens, True)
    cached = getattr(output, "scheduled_cached_reqs", None)
    for position, req_id in enumerate(getattr(cached, "req_ids", ())):
        computed = cached.num_computed_tokens[position]  # type: ignore[union-attr]
        request = requests.get(req_id)
        tokens = getattr(request, "num_tokens", None)  # prompt and output so far
        # a decode computes just the last sampled token; all else (chunks, recomputation) is prefill
        n_output = getattr(request, "num_output_tokens", 0)
        before[req_id] = (computed, not (n_output and tokens is not None and tokens - computed == 1))
    scheduled = getattr(output, "num_scheduled_tokens", {})
    return [
        [int(computed), int(scheduled[req_id]), int(is_prefill)]
        for req_id, (computed, is_prefill) in before.items()
        if scheduled.get(req_id)
    ]


def waited_s() -> float:
    """Seconds that this thread has waited for a core so far; NaN where the system does not say."""
    try:
        with open("/proc/thread-self/schedstat", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return float("nan")


def __getattr__(name: str) -> Any:
    """The class over vLLM's own scheduler, made when vLLM asks for it."""
    if name != "StepScheduler":
        raise AttributeError(name)
    from vllm.v1.core.sched.scheduler import Scheduler

    globals()[name] = type(name, (Recording, Scheduler), {"__module__": __name__})
    return globals()[name]
