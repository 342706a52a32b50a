"""How fast an engine should be before anything was measured: the model's shape and the GPU's data sheet.

Bytes are read at a share of the memory's bandwidth, FLOPs are done at a share of the peak. The shares, and
how far each coefficient may be off, come from comparing with published engines and kernels. A prior ranks
GPUs and starts a fit; it does not replace a measurement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from agentctl.errors import UsageError
from agentctl.estimators.batch_time import BatchTime
from agentctl.estimators.gpus import Format, Gpu
from agentctl.estimators.model_shape import ModelShape

# Shares of the data sheet that kernels of current engines reach: the middle of what was measured.
WEIGHT_READING = 0.85  # of the bandwidth
KV_READING = 0.92
GEMM = 0.78  # of the peak
ATTENTION = 0.58
LAYER_LAUNCH = 40e-6  # s per layer and batch for what is neither: small kernels, norms, collectives
LINK = 0.7  # of one direction's bandwidth, in an all-reduce of large messages: a guess

HOST = 2e-3  # s; scheduling, input preparation and sampling of one batch on the CPU: a guess
RESERVE = 2 << 30  # bytes per GPU for activations, CUDA graphs and the sampler: a guess ...
RESERVE_BAND = (1 << 29, 9 << 30)  # ... since engines report from half to nine GiB
TYPICAL_BATCH = 32  # tokens whose experts are read in one batch of decodes: a guess that only b0 of MoE needs

# Bits per element, scales included, and what the matrices are multiplied in.
BITS: dict[str, float] = {"bf16": 16, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4.25, "fp4": 4.5}
COMPUTED: dict[str, Format] = {
    "bf16": "bf16",
    "fp16": "bf16",
    "fp8": "fp8",
    "int8": "fp8",  # as fast where both exist
    "int4": "bf16",  # weights only
    "fp4": "fp4",
}
KV_DTYPES = ("bf16", "fp16", "fp8", "int8")

# What was measured over what is predicted, smallest and largest: thirteen engines and kernel tables, dense
# models in bf16 on H100, H200, A100, L40S, A40 and RTX PRO 6000 (in tests/data/prior, where these numbers are
# checked). The shares above were chosen on the same ones, so each end is moved out by another tenth.
Band = dict[str, tuple[float, float]]
BAND: Band = {
    "b0": (0.80, 1.24),
    "b_prefill": (0.71, 1.31),
    "b_decode": (0.49, 1.57),  # kernels alone below 1, engines above: sampling, and the host's work
    "b_context": (0.79, 1.25),
    "b_context_mixed": (0.79, 1.98),  # some kernels read at half speed beside prefill
    "b_attention": (0.80, 1.52),
}
SMALL = 3e9  # parameters; below, launches and the host decide and not the data sheet
SMALL_BAND: Band = BAND | {
    "b0": (0.80, 1.85),
    "b_prefill": (0.71, 2.31),
    "b_decode": (0.49, 16.3),
}
HOST_BAND = (0.0, 7.2)  # hidden by asynchronous scheduling ... 14.3 ms of an old engine on an A40
COMPARED = ("h100-sxm", "h200-sxm", "a100-80-sxm", "l40s", "a40", "rtx-pro-6000-server")


@dataclass(frozen=True)
class Serving:
    """How one engine serves the model."""

    tensor_parallel: int = 1
    weights: str = "bf16"  # a key of BITS
    kv: str = "bf16"
    memory_utilization: float = 0.9
    block_tokens: int = 16


@dataclass(frozen=True)
class Prior:
    """Coefficients with the interval of each, memory in bytes per GPU, and the largest pool that fits."""

    batch_time: BatchTime
    interval: dict[str, tuple[float, float]]
    weight_bytes: float
    kv_bytes_per_token: int  # of the engine, each token once
    kv_bytes_per_token_per_gpu: float
    kv_blocks: int
    kv_blocks_interval: tuple[int, int]
    warnings: tuple[str, ...] = ()


def prior_of(shape: ModelShape, gpu: Gpu, serving: Serving) -> Prior:
    """Raises UsageError when the heads cannot be split over the GPUs or the model does not fit into them."""
    shape.check_tensor_parallel(serving.tensor_parallel)
    pool = _Pool(shape, gpu, serving)
    few, typical, most = (_coefficients(shape, gpu, serving, n) for n in _experts_read(shape))
    band = (SMALL_BAND if shape.parameters < SMALL else BAND) | {"h0": HOST_BAND}
    interval = {
        name: (getattr(few, name) * low, getattr(most, name) * high) for name, (low, high) in band.items()
    }
    return Prior(
        typical,
        interval,
        pool.weight_bytes,
        math.ceil(shape.kv_elements * BITS[serving.kv] / 8),
        pool.kv_bytes_per_token,
        pool.blocks(RESERVE),
        (pool.blocks(RESERVE_BAND[1]), pool.blocks(RESERVE_BAND[0])),
        tuple(_warnings(shape, gpu, serving)),
    )


def _coefficients(shape: ModelShape, gpu: Gpu, serving: Serving, experts_read: float) -> BatchTime:
    """Of one GPU: all GPUs of an engine do the same at the same time."""
    tp = serving.tensor_parallel
    peak, _ = gpu.flops(COMPUTED[serving.weights])
    attention_peak, _ = gpu.flops("bf16")
    kv_bytes = shape.kv_elements_per_gpu(tp) * BITS[serving.kv] / 8
    token = shape.layer_flops / tp / (peak * GEMM) + _all_reduce(shape, gpu, tp)
    # Latent attention computes so much per byte that either may be the longer.
    context = max(
        kv_bytes / (gpu.bandwidth * KV_READING),
        shape.decode_pair_flops / tp / (attention_peak * ATTENTION),
    )
    return BatchTime(
        "hinge",
        b0=_weight_reading(shape, gpu, serving, experts_read) + shape.layers * LAYER_LAUNCH,
        b_prefill=token,
        b_decode=token,
        b_context=context,
        b_context_mixed=context,
        b_attention=shape.pair_flops / tp / (attention_peak * ATTENTION),
        h0=HOST,
    )


def _weight_reading(shape: ModelShape, gpu: Gpu, serving: Serving, experts_read: float) -> float:
    """Seconds for the weights that every batch reads; of the embedding table it reads but a few rows."""
    layers = shape.layer_parameters_per_gpu(serving.tensor_parallel, experts_read)
    output = shape.embedding / serving.tensor_parallel * BITS["bf16"] / 8
    return (layers * BITS[serving.weights] / 8 + output) / (gpu.bandwidth * WEIGHT_READING)


def _all_reduce(shape: ModelShape, gpu: Gpu, tp: int) -> float:
    """Seconds per token: after attention and after the MLP of each layer, a ring sends 2(tp - 1)/tp of it."""
    elements = 2 * shape.layers * shape.hidden
    return elements * 2 * 2 * (tp - 1) / tp / (gpu.link_bandwidth * LINK)


def _experts_read(shape: ModelShape) -> tuple[float, float, float]:
    """Experts per layer that a batch of one, of TYPICAL_BATCH and of very many tokens reads.

    A token picks its experts as if at random, so that a batch of n misses one with (1 - k/E)^n.
    """
    if not (e := shape.experts):
        return 0, 0, 0
    typical = e.total * (1 - (1 - e.per_token / e.total) ** TYPICAL_BATCH)
    return e.per_token, typical, e.total


class _Pool:
    """What memory leaves for KV on one GPU."""

    def __init__(self, shape: ModelShape, gpu: Gpu, serving: Serving) -> None:
        tp = serving.tensor_parallel
        layers = shape.layer_parameters_per_gpu(tp, shape.experts.total if shape.experts else 0)
        tables = shape.embedding * (1 if shape.tied else 2) / tp * BITS["bf16"] / 8
        self.weight_bytes = layers * BITS[serving.weights] / 8 + tables
        self.kv_bytes_per_token = shape.kv_elements_per_gpu(tp) * BITS[serving.kv] / 8
        self.block_bytes = self.kv_bytes_per_token * serving.block_tokens
        self.usable = gpu.memory * serving.memory_utilization
        if self.blocks(RESERVE) < 2:
            raise UsageError(
                f"the weights take {self.weight_bytes / 1e9:,.1f} GB of each GPU and leave room for "
                f"{self.blocks(RESERVE)} KV blocks of {serving.block_tokens:,} tokens in "
                f"{self.usable / 1e9:,.1f} GB ({serving.memory_utilization:g} of {gpu.name})",
                place="--tp",
                hint="more GPUs (--tp), a GPU with more memory, or fewer bits per weight (--dtype)",
            )

    def blocks(self, reserve: float) -> int:
        return max(0, math.floor((self.usable - self.weight_bytes - reserve) / self.block_bytes))


def _warnings(shape: ModelShape, gpu: Gpu, serving: Serving) -> list[str]:
    """Where the bands rest on nothing that was compared."""
    unseen = []
    if shape.experts:
        unseen.append("experts")
    if shape.latent:
        unseen.append("latent attention")
    if BITS[serving.weights] != BITS["bf16"] or BITS[serving.kv] != BITS["bf16"]:
        unseen.append("fewer bits per weight or KV element")
    if serving.tensor_parallel > 2:
        unseen.append("more than two GPUs")
    if "PCIe" in gpu.link and serving.tensor_parallel > 1:
        unseen.append("several GPUs without NVLink")
    if gpu.name not in COMPARED:
        unseen.append(f"the {gpu.name}")
    warnings = []
    if unseen:
        known = f"coefficients not compared with a measured engine's: {', '.join(unseen)}"
        warnings.append(f"{known}; the intervals may be too narrow")
    _, computed = gpu.flops(COMPUTED[serving.weights])
    if computed != COMPUTED[serving.weights]:
        warnings.append(f"{gpu.name} has no matrix units for {serving.weights}: computed in {computed}")
    return warnings
