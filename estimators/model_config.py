"""A Hugging Face `config.json` as it is published: types and bounds checked, architectures that we know."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from agentctl.errors import ConfigError
from agentctl.toml import suggestion

MAX_BYTES = 1 << 20  # published files have some kilobytes
EXPECTED = "a config.json of Hugging Face"
PUBLISHED = "take the file as it was published, beside the weights"

Size = Annotated[int, Meta(ge=1, le=10_000_000)]
Layers = Annotated[int, Meta(ge=1, le=10_000)]
Count = Annotated[int, Meta(ge=0, le=100_000)]

# Blocks of attention and a gated MLP (three matrices), with or without experts. Published configurations of
# other families have keys of the same names and another meaning.
BIASED = {"qwen2", "qwen2_moe"}  # query, key and value always have a bias
QK_NORMS = {"qwen3", "qwen3_moe"}  # queries and keys are normalised per head
FAMILIES = (
    BIASED | QK_NORMS | {"llama", "mistral", "mixtral", "phi3", "granite", "seed_oss", "smollm3", "internlm3"}
) | {"glm4_moe", "minimax_m2", "deepseek_v2", "deepseek_v3", "kimi_k2", "gpt_oss", "olmoe"}


class GroupWeights(msgspec.Struct):
    num_bits: Annotated[int, Meta(ge=1, le=32)]
    type: str = "int"


class Group(msgspec.Struct):
    weights: GroupWeights | None = None


class Quantization(msgspec.Struct):
    """What the tools that quantise write, each in its own words."""

    quant_method: str | None = None
    bits: Annotated[int, Meta(ge=1, le=32)] | None = None
    load_in_4bit: bool = False
    quant_algo: str | None = None
    config_groups: dict[str, Group] = {}


class Config(msgspec.Struct):
    """The keys that decide about size and speed; all others are passed over."""

    model_type: str
    hidden_size: Size
    num_hidden_layers: Layers
    num_attention_heads: Size
    intermediate_size: Size
    vocab_size: Size
    num_key_value_heads: Size | None = None
    head_dim: Size | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    max_position_embeddings: Size | None = None
    torch_dtype: str | None = None
    dtype: str | None = None
    quantization_config: Quantization | None = None
    name: str | None = msgspec.field(default=None, name="_name_or_path")
    # windows and other attention than over the whole context
    sliding_window: Size | None = None
    use_sliding_window: bool = True
    layer_types: list[str] | None = None
    # latent attention (MLA)
    q_lora_rank: Size | None = None
    kv_lora_rank: Size | None = None
    qk_nope_head_dim: Size | None = None
    qk_rope_head_dim: Size | None = None
    v_head_dim: Size | None = None
    # experts: each family has its own name for their number
    num_experts: Count | None = None
    num_local_experts: Count | None = None
    n_routed_experts: Count | None = None
    num_experts_per_tok: Size | None = None
    moe_intermediate_size: Size | None = None
    shared_expert_intermediate_size: Count | None = None
    n_shared_experts: Count | None = None
    first_k_dense_replace: Count = 0
    decoder_sparse_step: Size = 1
    moe_layer_freq: Size = 1
    mlp_only_layers: list[int] = []


def read_config(path: Path) -> Config:
    """The configuration in `path`; raises ConfigError for what is none, or of a model that we cannot size."""
    return parse_config(config_bytes(path), str(path))


def config_bytes(path: Path) -> bytes:
    """The file as it is; raises ConfigError when it cannot be read or is too large to be one."""
    place = str(path)
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"cannot be read ({error.strerror})", place=place, expected=EXPECTED) from error
    if len(text) > MAX_BYTES:
        raise ConfigError("is larger than 1 MB", place=place, expected=EXPECTED)
    return text


def parse_config(text: bytes, place: str) -> Config:
    """The same from the bytes of the file."""
    try:
        keys = msgspec.json.decode(text)
        if not isinstance(keys, dict):
            raise ConfigError("is not an object", place=place, expected=EXPECTED)
        _check_family(keys, place)
        # Many files carry null for what the model does not have.
        config = msgspec.convert({key: value for key, value in keys.items() if value is not None}, Config)
    except msgspec.ValidationError as error:
        raise _as_config_error(str(error), place) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError("is not JSON", place=place, expected=EXPECTED) from error
    _check_attention(config, place)
    return config


def _check_family(keys: dict[str, Any], place: str) -> None:
    family = keys.get("model_type")
    if "text_config" in keys:
        hint = "its text part can be sized alone: save the object under text_config as a file of its own"
        raise ConfigError("is of a model of several modes", place=place, hint=hint)
    if isinstance(family, str) and family not in FAMILIES:
        hint = (
            f"{suggestion(family, FAMILIES)}; a model of the same blocks as one of them may borrow its name"
        )
        raise ConfigError("is of a family that cannot be sized", place=f"{place}: model_type", hint=hint)


def _check_attention(config: Config, place: str) -> None:
    """Raise ConfigError for layers that forget a part of the context: one cost per token misstates them."""
    others = {kind for kind in config.layer_types or () if kind != "full_attention"}
    longest = config.max_position_embeddings or 0
    windowed = config.sliding_window is not None and config.use_sliding_window
    if others or (windowed and config.layer_types is None and (config.sliding_window or 0) < longest):
        what = "layer_types" if others else "sliding_window"
        raise ConfigError(
            "has layers that do not attend to the whole context",
            place=f"{place}: {what}",
            expected="full attention in every layer",
            hint="measure such a model with `agentctl calibrate steps`; if it is served without its window, "
            "remove the key",
        )


def _as_config_error(message: str, place: str) -> ConfigError:
    """msgspec's `Expected ..., got ... - at `$.key`` in our own words, without the value."""
    text, _, path = message.partition(" - at `$")
    key = path.rstrip("`").lstrip(".")
    if text.startswith("Object missing required field"):
        return ConfigError(
            "missing", place=f"{place}: {text.split('`')[1]}", expected=EXPECTED, hint=PUBLISHED
        )
    where = f"{place}: {key}" if key else place
    expected, _, found = text.removeprefix("Expected ").partition(", got ")
    expected = expected.replace("`", "").replace(" | null", "").replace("|", "or")
    fact = f"is of type {found.replace('`', '')}" if found else "is out of range"
    return ConfigError(fact, place=where, expected=expected, hint=PUBLISHED)


def weights_of(config: Config, place: str) -> str:
    """The format of the weights as the file says: bf16, fp16, fp8, int8, int4 or fp4; raises ConfigError."""
    if (q := config.quantization_config) is None:
        # Engines serve published float32 weights in 16 bits.
        return "fp16" if (config.dtype or config.torch_dtype) == "float16" else "bf16"
    groups = [group.weights for group in q.config_groups.values() if group.weights]
    match q.quant_method, (q.quant_algo or "").upper():
        case ("fp8" | "fbgemm_fp8", _) | ("modelopt", "FP8"):
            return "fp8"
        case ("mxfp4", _) | ("modelopt" | "modelopt_fp4", "NVFP4"):
            return "fp4"
        case ("awq" | "gptq" | "auto-round", _) if q.bits in (4, 8):
            return f"int{q.bits}"
        case ("bitsandbytes", _):
            return "int4" if q.load_in_4bit else "int8"
        case ("compressed-tensors", _) if groups and groups[0].num_bits in (4, 8):
            return f"{'fp' if groups[0].type == 'float' else 'int'}{groups[0].num_bits}"
    raise ConfigError(
        "is of a kind that is not known",
        place=f"{place}: quantization_config",
        hint="say what the weights are served in with --dtype",
    )
