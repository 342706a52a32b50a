"""Data sheets of GPUs, by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from agentctl.errors import UsageError
from agentctl.toml import build, read_toml, suggestion

TABLE = Path(__file__).with_name("gpus.toml")
GB, TERA, MIB = 1e9, 1e12, 1 << 20

Number = Annotated[float, Meta(gt=0)]
Format = Literal["bf16", "fp8", "fp4"]


@dataclass(frozen=True)
class Gpu:
    """One GPU; what each key means stands at the top of gpus.toml."""

    name: str
    sheet: str
    memory_gb: Number
    memory_mib: Number
    bandwidth_gbps: Number
    bf16_tflops: Number
    link: str
    link_gbps: Number
    tdp_w: Number
    fp8_tflops: Number | None = None
    fp4_tflops: Number | None = None

    @property
    def memory(self) -> float:
        """Bytes."""
        return self.memory_mib * MIB

    @property
    def bandwidth(self) -> float:
        """Bytes of memory per second."""
        return self.bandwidth_gbps * GB

    @property
    def link_bandwidth(self) -> float:
        """Bytes per second to the other GPUs, in one direction."""
        return self.link_gbps * GB / 2

    def flops(self, weights: Format) -> tuple[float, Format]:
        """Peak FLOP/s with weights of this format, and the format that is computed in.

        A GPU without the format converts the weights as it reads them, and computes in bf16.
        """
        peaks = {"bf16": self.bf16_tflops, "fp8": self.fp8_tflops, "fp4": self.fp4_tflops}
        peak = peaks[weights]
        return (self.bf16_tflops * TERA, "bf16") if peak is None else (peak * TERA, weights)


@cache
def gpus() -> dict[str, Gpu]:
    tables = read_toml(TABLE)
    return {
        name: build(Gpu, {**table, "name": name}, f"{TABLE.name}: [{name}]") for name, table in tables.items()
    }


def gpu_named(name: str) -> Gpu:
    """Raises UsageError for a name that is not in the table."""
    plain = (
        name.strip().lower().replace("_", "-").replace(" ", "-").removeprefix("nvidia-").removeprefix("amd-")
    )
    known = gpus()
    if plain not in known:
        variants = sorted(gpu for gpu in known if gpu.startswith(f"{plain}-"))
        hint = f"there are {', '.join(variants)}" if variants else suggestion(plain, known)
        raise UsageError(f"{name!r} is not in the table of GPUs", place="--gpu", hint=hint)
    return known[plain]
