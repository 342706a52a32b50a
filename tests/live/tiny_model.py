"""A Llama of random weights, made on the spot: a folder for vLLM, a file for llama.cpp, one tokenizer.

Weights mean nothing and take as long as any others. Tokens with a byte beyond ASCII have no weight in the
last matrix, so that they are never the likeliest one: no server has to hold back half a character.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

ROPE = 10_000.0
EPSILON = 1e-5


@dataclass(frozen=True)
class Shape:
    hidden: int = 384
    layers: int = 6
    heads: int = 6
    inner: int = 1152
    vocabulary: int = 2048
    context: int = 8192

    @property
    def head(self) -> int:
        return self.hidden // self.heads


def config(shape: Shape) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": shape.hidden,
        "intermediate_size": shape.inner, "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.heads, "head_dim": shape.head,
        "vocab_size": shape.vocabulary, "max_position_embeddings": shape.context, "rms_norm_eps": EPSILON,
        "rope_theta": ROPE, "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "float32",
        "bos_token_id": 0, "eos_token_id": 0,
    }  # fmt: skip


def tokenizer(shape: Shape) -> Any:
    """Byte-level BPE, trained on the standard library's sources."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    found = Tokenizer(models.BPE())
    found.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    found.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=shape.vocabulary, special_tokens=["<end>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    sources = sorted(Path(json.__file__).parents[1].glob("*.py"))[:60]
    found.train([str(path) for path in sources], trainer)
    return found


def hf_folder(folder: Path, shape: Shape) -> Path:
    """What vLLM serves with --load-format dummy: configuration and tokenizer, and no weights."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config(shape), indent=1))
    tokenizer(shape).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<end>"})
    )
    return folder


def gguf_file(path: Path, shape: Shape, seed: int = 0) -> Path:
    from gguf import GGUFWriter, TokenType

    parts = json.loads(tokenizer(shape).to_str())
    tokens = sorted(parts["model"]["vocab"], key=parts["model"]["vocab"].get)
    merges = [one if isinstance(one, str) else " ".join(one) for one in parts["model"]["merges"]]
    out = GGUFWriter(str(path), "llama")
    out.add_context_length(shape.context)
    out.add_embedding_length(shape.hidden)
    out.add_block_count(shape.layers)
    out.add_feed_forward_length(shape.inner)
    out.add_head_count(shape.heads)
    out.add_head_count_kv(shape.heads)
    out.add_rope_dimension_count(shape.head)
    out.add_rope_freq_base(ROPE)
    out.add_layer_norm_rms_eps(EPSILON)
    out.add_vocab_size(shape.vocabulary)
    out.add_tokenizer_model("gpt2")
    out.add_tokenizer_pre("gpt-2")
    out.add_token_list(tokens)
    out.add_token_types([TokenType.CONTROL if one == "<end>" else TokenType.NORMAL for one in tokens])
    out.add_token_merges(merges)
    out.add_bos_token_id(0)
    out.add_eos_token_id(0)
    out.add_add_bos_token(False)
    for name, values in weights(shape, tokens, seed):
        out.add_tensor(name, values)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


def weights(shape: Shape, tokens: list[str], seed: int) -> list[tuple[str, np.ndarray]]:
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (random.standard_normal((rows, columns)) * 0.02).astype(np.float32)

    ones = np.ones(shape.hidden, np.float32)
    plain = np.array([all(ord(one) < 128 or one in "ĠĊĉ" for one in token) for token in tokens])
    found = [
        ("token_embd.weight", matrix(shape.vocabulary, shape.hidden)),
        ("output_norm.weight", ones),
        ("output.weight", matrix(shape.vocabulary, shape.hidden) * plain[:, None].astype(np.float32)),
    ]
    for layer in range(shape.layers):
        found += [(f"blk.{layer}.{name}_norm.weight", ones) for name in ("attn", "ffn")]
        found += [
            (f"blk.{layer}.{name}.weight", matrix(shape.hidden, shape.hidden))
            for name in ("attn_q", "attn_k", "attn_v", "attn_output")
        ]
        found += [
            (f"blk.{layer}.{name}.weight", matrix(shape.inner, shape.hidden))
            for name in ("ffn_gate", "ffn_up")
        ]
        found.append((f"blk.{layer}.ffn_down.weight", matrix(shape.hidden, shape.inner)))
    return found
