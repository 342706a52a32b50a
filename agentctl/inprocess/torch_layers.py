"""A model's dense layers with random weights, wherever torch computes; no attention. torch is imported here.

What an engine's matrices cost transfers from such a measurement; what its attention costs does not (its
kernels are its own), and is left to a prior. Time is that of `MOST_LAYERS` layers, each with weights of its
own so that no cache holds them, times the model's layers over these; and of the last norm and the output
layer.
"""

from __future__ import annotations

import time
from typing import Any

from agentctl.errors import ConfigError, UsageError
from agentctl.estimators.model_shape import ModelShape
from agentctl.inprocess.clocks import clock_for
from agentctl.inprocess.stepping import Taken

MOST_LAYERS = 4
EPSILON = 1e-5


class TorchLayers:
    """tokens of a batch in, seconds out. Raises UsageError without torch, ConfigError for other layers."""

    def __init__(self, shape: ModelShape, dtype: str = "bfloat16", place: str = "--model") -> None:
        if shape.experts or shape.latent:
            raise ConfigError(
                "has experts or latent attention, whose layers are not measured apart from an engine",
                place=place, hint="--backend vllm measures it whole",
            )  # fmt: skip
        try:
            import torch
        except ImportError as error:
            raise UsageError(
                "torch is not installed in this Python", place="--backend torch",
                hint="pip install 'agentctl[gpu]'",
            ) from error  # fmt: skip
        self.torch, self.shape = torch, shape
        kind = "cuda" if torch.cuda.is_available() else "cpu"
        self.device_name = torch.cuda.get_device_name(0) if kind == "cuda" else "cpu"
        self.threads = int(torch.get_num_threads())
        self.clock = clock_for(kind, self.threads, 1, torch)
        self.version = f"torch {torch.__version__}"
        self.dtype, self.device = dtype, kind
        self.n_layers = min(shape.layers, MOST_LAYERS)
        h, width = shape.hidden, shape.mlp_width
        query, key = shape.heads * shape.head_dim, 2 * shape.kv_heads * shape.head_dim
        matrices = ((h, query + key), (query, h), (h, 2 * width), (width, h))
        self.layers = [tuple(self._random(*one) for one in matrices) for _ in range(self.n_layers)]
        self.head = self._random(h, shape.vocabulary)
        self.until_s = 0.0  # when the whole model would have been through with the step before

    def _random(self, rows: int, columns: int) -> Any:
        kind = getattr(self.torch, self.dtype)
        return self.torch.randn(rows, columns, dtype=kind, device=self.device) * 0.02

    def mode(self) -> dict[str, Any]:
        return {
            "graphs": "none", "attention": "none: from a prior", "dtype": self.dtype, "weights": "random",
            "layers_measured": self.n_layers, "threads": self.threads if self.device == "cpu" else None,
        }  # fmt: skip

    def step(self, tokens: int, sequences: int) -> Taken:
        """A batch of `tokens`, of which the last ones of `sequences` are decoded to a token."""
        x = self._random(tokens, self.shape.hidden)
        time_s, wall = max(time.time(), self.until_s), time.perf_counter()
        with self.torch.inference_mode():
            begin = self.clock.mark()
            for layer in self.layers:
                x = self._layer(x, *layer)
            between = self.clock.mark()
            (self._norm(x[-sequences:]) @ self.head).argmax(-1)
            end = self.clock.mark()
        rest = self.clock.seconds(between, end)
        layers = self.clock.seconds(begin, between)
        seconds = layers * self.shape.layers / self.n_layers + rest
        self.until_s = time_s + seconds
        return Taken(time_s, seconds, time.perf_counter() - wall, [])

    def _layer(self, x: Any, projection: Any, output: Any, gate: Any, down: Any) -> Any:
        query, width = self.shape.heads * self.shape.head_dim, self.shape.mlp_width
        x = x + (self._norm(x) @ projection)[:, :query] @ output
        both = self._norm(x) @ gate
        return x + (self.torch.nn.functional.silu(both[:, :width]) * both[:, width:]) @ down

    def _norm(self, x: Any) -> Any:
        return x * self.torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON)
