"""How fast one engine is: a TOML file per (model, GPU, engine, parallelism), or a preset by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from agentctl.errors import ConfigError
from agentctl.estimators.batch_time import BatchTime
from agentctl.toml import build, check_keys, check_schema, read_toml, suggestion

PROFILE_SCHEMA = "agentctl/profile/1"
PRESETS = Path(__file__).parent / "profiles"

# Seconds that no engine is as slow as. A guess: 8 billion parameters on one CPU core, by size from a measured
# model of 28 million there, stay below.
SLOWEST = {
    "b0": 5.0, "h0": 5.0, "b_prefill": 1.0, "b_decode": 5.0, "b_context": 0.01, "b_context_mixed": 0.01,
    "b_attention": 0.001, "b_past": 0.01, "h_seq": 1.0,
}  # fmt: skip

MOST = 10**9  # of blocks, tokens or bytes a token: more is a slip of the finger

Seqs = Annotated[int, Meta(ge=1, le=10**6)]  # a batch of more fits no memory
Positive = Annotated[int, Meta(ge=1, le=MOST)]


@dataclass(frozen=True)
class Profile:
    """One engine. What is unknown is None; keys of a cluster's pool override those of the same name here."""

    batch_time: BatchTime
    name: str = "inline"
    model: str | None = None
    gpu: str | None = None
    tensor_parallel: Positive = 1  # GPUs of one engine
    kv_bytes_per_token: Positive | None = None
    kv_blocks: Annotated[int, Meta(ge=2, le=MOST)] | None = (
        None  # as the engine reports it; one is never usable
    )
    block_tokens: Positive | None = None
    max_num_batched_tokens: Positive | None = None
    max_num_seqs: Seqs | None = None
    max_model_len: Positive | None = None
    fit: dict[str, Any] = field(default_factory=dict)  # rows, mape, by_region, covariance, box ...
    lps: dict[str, Any] = field(default_factory=dict)
    power: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)  # source, tool, inputs, date

    @property
    def predictive_only(self) -> bool:
        """Its coefficients reproduce a run together and are not known one by one: nothing may be configured
        from a single one of them."""
        return bool(self.provenance.get("predictive_only"))


@dataclass(frozen=True)
class _Coefficients:
    """The [batch_time] table: every coefficient in seconds, none negative."""

    model: str
    b0: Annotated[float, Meta(ge=0)]
    b_prefill: Annotated[float, Meta(ge=0)]
    b_decode: Annotated[float, Meta(ge=0)] | None = None  # default: b_prefill
    b_context: Annotated[float, Meta(ge=0)] = 0.0
    b_context_mixed: Annotated[float, Meta(ge=0)] | None = None  # default: b_context
    b_attention: Annotated[float, Meta(ge=0)] = 0.0
    b_past: Annotated[float, Meta(ge=0)] = 0.0
    h0: Annotated[float, Meta(ge=0)] = 0.0
    h_seq: Annotated[float, Meta(ge=0)] = 0.0


def preset_names() -> list[str]:
    return sorted(file.stem for file in PRESETS.glob("*.toml"))


def load_profile(name: str | Path, base: Path | None = None) -> Profile:
    """A profile from a path or, when no such file exists, from a preset's name.

    A relative path is looked up from `base`, the folder of the file that names it. Raises ConfigError.
    """
    path = _find(name, base)
    return parse_profile(read_toml(path), str(name), name=path.stem)


def profile_tables(name: str | Path, base: Path | None = None) -> dict[str, Any]:
    """The tables of the same file as they stand there, to be written again with others beside them."""
    return read_toml(_find(name, base))


def _find(name: str | Path, base: Path | None) -> Path:
    path = (base or Path()) / name
    if path.is_file():
        return path
    if str(name) not in preset_names():
        raise ConfigError(
            "is neither a file nor a preset",
            place=f"profile {name}",
            hint=f"{suggestion(str(name), preset_names())}; a profile may also be a path",
        )
    return PRESETS / f"{name}.toml"


def parse_profile(tables: Mapping[str, Any], file: str, name: str) -> Profile:
    """A profile from TOML tables. `file` is the place in error messages."""
    check_schema(tables, PROFILE_SCHEMA, file)
    tables = {key: value for key, value in tables.items() if key != "schema"}
    check_keys(tables, set(Profile.__dataclass_fields__) - {"fit", "name"}, f"{file}:")
    if "batch_time" not in tables:
        raise ConfigError("missing", place=f"{file}: [batch_time]")
    batch_time, fit = parse_batch_time(tables.pop("batch_time"), f"{file}: [batch_time]")
    return build(Profile, {**tables, "name": name, "batch_time": batch_time, "fit": fit}, f"{file}:")


def parse_batch_time(table: Mapping[str, Any], place: str) -> tuple[BatchTime, dict[str, Any]]:
    """Coefficients and the [batch_time.fit] table beside them.

    `eq9` is the equation of that name: one slope for prefill and decode, one for context, nothing else.
    """
    if not isinstance(table, Mapping):
        raise ConfigError("is not a table", place=place)
    fit = dict(table.get("fit", {}))
    c = build(_Coefficients, {key: value for key, value in table.items() if key != "fit"}, place)
    if c.model == "legacy":
        raise ConfigError(
            "the six-term legacy model is never simulated", place=f"{place} model", expected="eq9 or hinge"
        )
    if c.model not in ("eq9", "hinge"):
        raise ConfigError(f"is {c.model!r}", place=f"{place} model", expected="eq9 or hinge")
    b_decode = c.b_prefill if c.b_decode is None else c.b_decode
    b_context_mixed = c.b_context if c.b_context_mixed is None else c.b_context_mixed
    result = BatchTime(
        c.model,
        c.b0,
        c.b_prefill,
        b_decode,
        c.b_context,
        b_context_mixed,
        c.b_attention,
        c.b_past,
        c.h0,
        c.h_seq,
    )
    if c.model == "eq9":
        _check_eq9(result, place)
    _check_unit(result, place)
    if result.b0 + result.h0 == 0:
        raise ConfigError("a batch would take no time", place=f"{place} b0", expected="b0 or h0 above 0")
    return result, fit


def _check_unit(c: BatchTime, place: str) -> None:
    """Milliseconds in place of seconds are found where no engine is so slow."""
    for key, most in SLOWEST.items():
        value = getattr(c, key)
        if value > most:
            raise ConfigError(
                f"is {value:g} s, and no engine is so slow", place=f"{place} {key}",
                expected=f"seconds, at most {most:g}", hint="is it in another unit?",
            )  # fmt: skip


def _check_eq9(c: BatchTime, place: str) -> None:
    differs = {
        "b_decode": c.b_decode != c.b_prefill,
        "b_context_mixed": c.b_context_mixed != c.b_context,
        "b_past": c.b_past != 0,
        "h0": c.h0 != 0,
        "h_seq": c.h_seq != 0,
    }
    for key in (key for key, wrong in differs.items() if wrong):
        raise ConfigError(
            "eq9 does not have it", place=f"{place} {key}", hint='model = "hinge" has all terms'
        )
