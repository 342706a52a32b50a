"""A stand-in for vLLM in process: attributes and methods as vLLM 0.32 has them, batches of a known time.

Chunked prefill, running requests first, a prefix cache of whole blocks that never forgets. `busy` is what its
process would have been on a core: a clock of its own, so that a test takes no time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np


@dataclass
class EngineArgs:
    model: str = ""
    load_format: str = "auto"
    skip_tokenizer_init: bool = False
    async_scheduling: bool = True
    enable_prefix_caching: bool = False
    disable_log_stats: bool = False
    distributed_executor_backend: str | None = None
    enforce_eager: bool = False
    tensor_parallel_size: int = 1
    max_num_batched_tokens: int = 512
    max_num_seqs: int = 16
    num_blocks: int = 512  # the fake's own
    captured: list[int] = field(default_factory=list)


class Request(SimpleNamespace):
    """prompt, max_tokens; num_tokens counts prompt and output so far, num_output_tokens the latter."""

    @property
    def num_tokens(self) -> int:
        return len(self.prompt) + self.num_output_tokens


class Scheduler:
    def __init__(self, arguments: EngineArgs, block: int, log: list[str]) -> None:
        self.arguments, self.block, self.log = arguments, block, log
        self.requests: dict[str, Request] = {}
        self.cached: set[tuple[int, ...]] = set()

    def schedule(self) -> Any:
        self.log.append("schedule")
        left = self.arguments.max_num_batched_tokens
        new, old, tokens = [], [], {}
        running = [r for r in self.requests.values() if r.is_running]
        waiting = [r for r in self.requests.values() if not r.is_running]
        for request in running + waiting:
            if not left or len(tokens) == self.arguments.max_num_seqs:
                break
            if not request.is_running:
                request.computed, request.is_running = self.hit(request.prompt), True
                new.append(SimpleNamespace(req_id=request.id, num_computed_tokens=request.computed))
            else:
                old.append(request)
            tokens[request.id] = min(left, request.num_tokens - request.computed)
            left -= tokens[request.id]
        cached = SimpleNamespace(req_ids=[r.id for r in old], num_computed_tokens=[r.computed for r in old])
        return SimpleNamespace(
            scheduled_new_reqs=new, scheduled_cached_reqs=cached, num_scheduled_tokens=tokens
        )

    def hit(self, prompt: list[int]) -> int:
        n = 0
        while (n + 1) * self.block < len(prompt) and tuple(prompt[: (n + 1) * self.block]) in self.cached:
            n += 1
        return n * self.block

    def update_from_output(self, output: Any, _: Any) -> None:
        self.log.append("update")
        for name, n in output.num_scheduled_tokens.items():
            request = self.requests[name]
            request.computed += n
            for end in range(self.block, min(request.computed, len(request.prompt)) + 1, self.block):
                self.cached.add(tuple(request.prompt[:end]))
            if request.computed == request.num_tokens:
                request.num_output_tokens += 1
                if request.num_output_tokens == request.max_tokens:
                    del self.requests[name]


class Core:
    """times: seconds of a batch by its composition."""

    def __init__(self, arguments: EngineArgs, block: int, times: Any) -> None:
        self.log: list[str] = []
        self.busy = 0.0
        self.times = times
        self.scheduler = Scheduler(arguments, block, self.log)
        spec = type("FullAttentionSpec", (), {"page_size_bytes": 16 * block, "block_size": block})()
        self.model_executor = SimpleNamespace(
            execute_model=self._execute, sample_tokens=self._sample,
            get_kv_cache_specs=lambda: [{"layer.0": spec, "layer.1": spec}],
        )  # fmt: skip
        self.is_down = False

    def _execute(self, output: Any) -> None:
        from agentctl.recorders.vllm_scheduler import composition

        self.log.append("execute")
        self.busy += self.times(composition(output, self.scheduler.requests))

    def _sample(self, _: Any) -> str:
        self.log.append("sample")
        return "tokens"


class LLMEngine:
    block = 16
    times: Any = staticmethod(lambda batch: 0.01)
    started: ClassVar[list[LLMEngine]] = []

    def __init__(self, arguments: EngineArgs) -> None:
        core = Core(arguments, self.block, self.times)
        self.engine_core = SimpleNamespace(engine_core=core, shutdown=self._shutdown)
        captured = arguments.captured if not arguments.enforce_eager else []
        graphs = SimpleNamespace(name="FULL_AND_PIECEWISE" if captured else "NONE")
        self.vllm_config = SimpleNamespace(
            cache_config=SimpleNamespace(
                num_gpu_blocks=arguments.num_blocks, block_size=self.block, cache_dtype="auto",
                enable_prefix_caching=arguments.enable_prefix_caching,
            ),
            scheduler_config=SimpleNamespace(
                max_num_batched_tokens=arguments.max_num_batched_tokens, enable_chunked_prefill=True,
                max_num_seqs=arguments.max_num_seqs, async_scheduling=arguments.async_scheduling,
            ),
            model_config=SimpleNamespace(
                max_model_len=4096, dtype="torch.bfloat16", enforce_eager=arguments.enforce_eager,
                get_vocab_size=lambda: 2048,
            ),
            compilation_config=SimpleNamespace(
                cudagraph_mode=graphs, mode=SimpleNamespace(name="NONE"), cudagraph_capture_sizes=captured
            ),
            attention_config=SimpleNamespace(backend=None),
        )  # fmt: skip
        LLMEngine.started.append(self)

    @classmethod
    def from_engine_args(cls, arguments: EngineArgs) -> LLMEngine:
        if arguments.max_num_seqs < 1:
            raise ValueError("max_num_seqs must be positive\nand more that nobody reads")
        return cls(arguments)

    @property
    def core(self) -> Core:
        return self.engine_core.engine_core

    def _shutdown(self) -> None:
        self.core.is_down = True

    def add_request(self, name: str, prompt: Any, params: Any) -> None:
        self.core.scheduler.requests[name] = Request(
            id=name, prompt=prompt["prompt_token_ids"], max_tokens=params.max_tokens, computed=0,
            num_output_tokens=0, is_running=False,
        )  # fmt: skip

    def has_unfinished_requests(self) -> bool:
        return bool(self.core.scheduler.requests)

    def abort_request(self, names: list[str]) -> None:
        for name in names:
            self.core.scheduler.requests.pop(name, None)

    def step(self) -> None:
        core = self.core
        output = core.scheduler.schedule()
        core.model_executor.execute_model(output)
        core.scheduler.update_from_output(output, core.model_executor.sample_tokens(None))


def modules(device: str = "cpu", threads: int = 1) -> dict[str, ModuleType]:
    """What `import vllm...` and `import torch` find."""
    platform = SimpleNamespace(device_type=device, get_device_name=lambda: "NVIDIA Fake")
    members: dict[str, dict[str, Any]] = {
        "torch": {"get_num_threads": lambda: threads, "Tensor": type("Tensor", (), {})},
        "vllm": {"__version__": "0.32.0", "EngineArgs": EngineArgs, "SamplingParams": SimpleNamespace},
        "vllm.inputs": {"TokensPrompt": dict},
        "vllm.platforms": {"current_platform": platform},
        "vllm.v1": {}, "vllm.v1.engine": {}, "vllm.v1.engine.llm_engine": {"LLMEngine": LLMEngine},
    }  # fmt: skip
    found = {}
    for name, its in members.items():
        found[name] = ModuleType(name)
        vars(found[name]).update(its)
    return found


class Times:
    """Seconds by the hinge's five coefficients, off by up to `noise` in a way that the seed decides."""

    def __init__(self, c: dict[str, float], noise: float = 0.0, seed: int = 0) -> None:
        self.c, self.noise, self.random = c, noise, np.random.default_rng(seed)

    def __call__(self, batch: list[list[int]]) -> float:
        c = self.c
        seconds = c["b0"]
        for context, tokens, is_prefill in batch:
            if is_prefill:
                seconds += c["b_prefill"] * tokens
                seconds += c["b_attention"] * (tokens * context + tokens * (tokens + 1) / 2)
            else:
                seconds += c["b_decode"] + c["b_context"] * context
        return seconds * (1 + self.noise * self.random.uniform(-1, 1))
