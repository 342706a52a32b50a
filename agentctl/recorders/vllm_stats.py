"""A vLLM stat logger that writes the totals and duration of every step; it changes nothing in the engine.

    pip install agentctl   (in vLLM's environment: the entry point vllm.stat_logger_plugins names this class)
    AGENTCTL_STEPS=steps.jsonl vllm serve MODEL --enable-logging-iteration-details

It writes only where AGENTCTL_STEPS is set. Totals know no context of a request: agentctl takes contexts from
the KV in use, which gives a rough fit. agentctl.recorders.vllm_scheduler writes the whole composition.

Source of the names: vLLM 0.32, v1/metrics/loggers.py (StatLoggerBase), v1/metrics/stats.py (SchedulerStats
.kv_cache_usage and .iteration_details: num_ctx_requests, num_ctx_tokens, num_generation_requests,
num_generation_tokens, elapsed_ms, is_dummy). Runs in the API process, one object for each engine.
"""

from __future__ import annotations

import os
import time
from typing import Any

from agentctl.recorders.writer import PATH_VARIABLE, StepWriter


class StepStats:
    """What vLLM's StatLoggerBase asks for; see `StepLogger` for the class that derives from it."""

    def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
        cache = getattr(vllm_config, "cache_config", None)
        blocks, size = getattr(cache, "num_gpu_blocks", None), getattr(cache, "block_size", None)
        self.kv_capacity_tokens = blocks * size if blocks and size else None
        self.cache_config = cache
        self.writer = StepWriter(engine_index) if os.environ.get(PATH_VARIABLE) else None

    def record(
        self,
        scheduler_stats: Any = None,
        iteration_stats: Any = None,
        mm_cache_stats: Any = None,
        engine_idx: int = 0,
    ) -> None:
        details = getattr(scheduler_stats, "iteration_details", None)
        if self.writer is None or details is None or getattr(details, "is_dummy", False):
            return
        row = {
            "time_s": time.time() - details.elapsed_ms * 1e-3,
            "seconds": details.elapsed_ms * 1e-3,
            "prefill_tokens": details.num_ctx_tokens,
            "n_prefill": details.num_ctx_requests,
            "n_decode": details.num_generation_requests,
        }
        usage, capacity = getattr(scheduler_stats, "kv_cache_usage", None), self._capacity()
        if usage is not None and capacity is not None:
            row["kv_tokens"] = round(usage * capacity)
        self.writer.write(row)

    def _capacity(self) -> int | None:
        """The number of blocks may become known only once the engine runs."""
        if self.kv_capacity_tokens is None:
            blocks = getattr(self.cache_config, "num_gpu_blocks", None)
            size = getattr(self.cache_config, "block_size", None)
            self.kv_capacity_tokens = blocks * size if blocks and size else None
        return self.kv_capacity_tokens

    def log_engine_initialized(self) -> None: ...

    def log(self) -> None: ...

    def record_sleep_state(self, *args: Any, **kwargs: Any) -> None: ...


def __getattr__(name: str) -> Any:
    """The class over vLLM's own base, made when vLLM loads the entry point."""
    if name != "StepLogger":
        raise AttributeError(name)
    from vllm.v1.metrics.loggers import StatLoggerBase

    globals()[name] = type(name, (StepStats, StatLoggerBase), {"__module__": __name__})
    return globals()[name]
