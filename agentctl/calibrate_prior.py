"""A profile from a model's configuration and a GPU's data sheet, and what it says to a reader."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from agentctl import __version__
from agentctl.analyzers.words import number, percent
from agentctl.calibrate_routers import router_settings_of, routers_section
from agentctl.errors import UsageError
from agentctl.estimators.gpus import Gpu, gpu_named
from agentctl.estimators.model_config import config_bytes, parse_config, weights_of
from agentctl.estimators.model_shape import ModelShape, shape_of
from agentctl.estimators.prior import BITS, HOST, KV_DTYPES, RESERVE, TYPICAL_BATCH, Prior, Serving, prior_of
from agentctl.present import Fact, Section, Table, Value
from agentctl.profile import PROFILE_SCHEMA, parse_profile
from agentctl.profile_file import toml_text
from agentctl.toml import suggestion

NANO = 1e9
GB = 1e9
ERROR = (0.067, 0.167)  # MAPE of batches; tests/estimators/test_prior.py holds them
RUNS = (0.023, 0.122)  # MAPE of requests' durations in measured runs; tests/sim/test_prior_runs.py
MEANING = {
    "b0": "batch: reading the weights, launches",
    "b_prefill": "prefill token",
    "b_decode": "decode",
    "b_context": "context token of a decode",
    "b_context_mixed": "the same beside prefill",
    "b_attention": "pair of prompt tokens",
    "h0": "batch on the host, at least",
}


@dataclass(frozen=True)
class PriorProfile:
    """document: what --json prints; profile: the tables of the TOML file."""

    document: dict[str, Any]
    sections: tuple[Section, ...]
    profile: dict[str, Any]

    def toml(self) -> str:
        return toml_text(self.profile, "Physics prior: nothing of this was measured on such an engine.")


def calibrate_prior(
    model: Path,
    gpu: str,
    tp: int = 1,
    weights: str | None = None,
    kv: str | None = None,
    memory_utilization: float = 0.9,
    block_tokens: int = 16,
) -> PriorProfile:
    """The prior of the model in `model` (a config.json, or its folder) on `tp` GPUs of one kind.

    weights, kv  formats; None is what the configuration says, and 16 bits for KV
    Raises ConfigError for a configuration that cannot be sized, UsageError for what cannot be served.
    """
    path = model / "config.json" if model.is_dir() else model
    sheet = gpu_named(gpu)
    text = config_bytes(path)
    config = parse_config(text, str(path))
    shape = shape_of(config, str(path))
    served = Serving(
        tp,
        _known(weights, tuple(BITS), "--dtype") or weights_of(config, str(path)),
        _known(kv, KV_DTYPES, "--kv-dtype") or "bf16",
        memory_utilization,
        block_tokens,
    )
    prior = prior_of(shape, sheet, served)
    tables = _profile(shape, sheet, served, prior, hashlib.sha256(text).hexdigest())
    parse_profile(tables, "profile", "prior")
    routers = router_settings_of(tables)
    document = _document(shape, sheet, served, prior, tables) | {"routers": routers}
    sections = (_verdict(shape, sheet, served, prior), *_evidence(shape, prior), *routers_section(routers))
    return PriorProfile(document, sections, tables)


def _known(word: str | None, known: tuple[str, ...], flag: str) -> str | None:
    if word is not None and word not in known:
        raise UsageError(f"is {word!r}", place=flag, hint=suggestion(word, known))
    return word


def _profile(shape: ModelShape, gpu: Gpu, served: Serving, prior: Prior, digest: str) -> dict[str, Any]:
    tables: dict[str, Any] = {"schema": PROFILE_SCHEMA}
    if shape.name:
        tables["model"] = shape.name
    return tables | {
        "gpu": gpu.name,
        "tensor_parallel": served.tensor_parallel,
        "kv_bytes_per_token": prior.kv_bytes_per_token,
        "kv_blocks": prior.kv_blocks,
        "block_tokens": served.block_tokens,
        "batch_time": {
            **{key: value for key, value in prior.batch_time._asdict().items() if value},
            "fit": {"interval": {name: list(ends) for name, ends in prior.interval.items()}},
        },
        "provenance": {
            "source": "prior",
            "statement": _statement(shape, gpu, served),
            "kv_blocks": "from memory sizes, with {:g} GiB kept for activations and CUDA graphs (a guess); "
            "between {:,} and {:,}".format(RESERVE / 2**30, *prior.kv_blocks_interval),
            "tool": f"agentctl {__version__}",
            "method": "physics",
            "data_sheet": gpu.sheet,
            "inputs": {"config.json": digest},
        },
    }


def _statement(shape: ModelShape, gpu: Gpu, served: Serving) -> str:
    return (
        f"physics prior, not measured: a model of {number(shape.parameters / 1e9)} billion parameters in "
        f"{served.weights}, KV in {served.kv}, on {served.tensor_parallel} x {gpu.name} by its data sheet"
    )


def _document(
    shape: ModelShape, gpu: Gpu, served: Serving, prior: Prior, tables: dict[str, Any]
) -> dict[str, Any]:
    return {
        "schema": "agentctl/calibrate/1",
        "source": "prior",
        "model": {
            "name": shape.name,
            "parameters": shape.parameters,
            "active_parameters": shape.active_parameters,
            "layers": shape.layers,
            "kv_bytes_per_token": prior.kv_bytes_per_token,
            "layer_flops_per_token": shape.layer_flops,
            "attention_flops_per_pair": shape.pair_flops,
        },
        "gpu": asdict(gpu),
        "serving": asdict(served),
        "per_gpu": {
            "memory_bytes": gpu.memory,
            "weight_bytes": prior.weight_bytes,
            "kv_bytes_per_token": prior.kv_bytes_per_token_per_gpu,
        },
        "kv_blocks": {
            "value": prior.kv_blocks, "low": prior.kv_blocks_interval[0], "high": prior.kv_blocks_interval[1],
        },
        "coefficients": {
            name: {"unit": "s", "value": getattr(prior.batch_time, name), "low": low, "high": high}
            for name, (low, high) in prior.interval.items()
        },
        "batch_time": tables["batch_time"],
        "warnings": list(prior.warnings),
        "provenance": {"agentctl_version": __version__, **tables["provenance"]},
    }  # fmt: skip


def _verdict(shape: ModelShape, gpu: Gpu, served: Serving, prior: Prior) -> Section:
    c = prior.batch_time
    rate, slow, fast = (_digits(1 / x) for x in (c.b_prefill, *reversed(prior.interval["b_prefill"])))
    sentence = (
        f"By physics, not measured: {served.tensor_parallel} x {gpu.name} prefill about {rate} tokens/s "
        f"({slow} to {fast}), a step of decodes takes {1e3 * max(c.b0, c.h0):.1f} ms and more, and "
        f"{prior.kv_blocks * served.block_tokens:,} tokens of KV fit."
    )
    facts = (
        Fact("parameters", shape.parameters, "count"),
        Fact(
            "active per token",
            shape.active_parameters,
            "count",
            "of the experts those that a token goes through",
        ),
        Fact("weights per GPU, GB", prior.weight_bytes / GB, "", f"in {served.weights}"),
        Fact("memory per GPU, GB", gpu.memory / GB, "", "as the driver reports it"),
        Fact("KV bytes per token", prior.kv_bytes_per_token, "", f"of the engine, in {served.kv}"),
        Fact("KV blocks", prior.kv_blocks, "blocks", "the engine prints the true number at start"),
    )
    return Section("verdict", "", sentence, facts=facts, warnings=prior.warnings)


def _evidence(shape: ModelShape, prior: Prior) -> tuple[Section, ...]:
    rows: list[tuple[Value, ...]] = [
        (name, MEANING[name], *(_short(x * NANO) for x in (getattr(prior.batch_time, name), low, high)))
        for name, (low, high) in prior.interval.items()
    ]
    head = (("coefficient", ""), ("per", ""), ("ns", ""), ("low", ""), ("high", ""))
    coefficients = Section(
        "coefficients",
        "Coefficients",
        "Coefficients in nanoseconds, with the interval in which measured engines lay around theirs.",
        tables=(Table(head, tuple(rows)),),  # type: ignore[arg-type]
    )
    said = [
        f"{RESERVE / 2**30:g} GiB per GPU go to activations and CUDA graphs; blocks from "
        "{:,} to {:,} with more or less".format(*prior.kv_blocks_interval),
        f"the host takes {1e3 * HOST:g} ms of each step: a guess, and hidden by asynchronous scheduling",
        "a chunk of prefill reads its context for nothing beside its attention",
        f"such priors err by {percent(ERROR[0])} on modelled batches of Qwen3-8B on an H100, by "
        f"{percent(ERROR[1])} on measured kernels of Llama-3.1-8B on an RTX PRO 6000",
        f"in measured runs on that GPU the time of a request errs by {percent(RUNS[0])} (Llama-3.1-8B), and "
        f"by {percent(RUNS[1])} with experts (Qwen3-30B-A3B)",
    ]
    if shape.experts:
        said.append(
            f"a step of decodes reads the experts of {TYPICAL_BATCH} tokens "
            f"({percent(1 - (1 - shape.experts.per_token / shape.experts.total) ** TYPICAL_BATCH)} of them)"
        )
    return coefficients, Section("assumptions", "Assumptions", "", assumptions=tuple(said))


def _short(value: float) -> str:
    """Four digits, without an exponent."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def _digits(value: float) -> str:
    """Three digits and a unit of thousands: 55,300."""
    return f"{float(f'{value:.3g}'):,.0f}"
