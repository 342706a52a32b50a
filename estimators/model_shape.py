"""How large a model is and what a token costs in it: parameters, KV bytes and FLOPs, from its configuration.

Counted: embeddings, attention (grouped queries, or DeepSeek's latent attention), gated MLPs, experts with
their router, norms. Not counted: multi-token prediction layers, vision towers.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentctl.errors import ConfigError, UsageError
from agentctl.estimators.model_config import BIASED, PUBLISHED, QK_NORMS, Config


@dataclass(frozen=True)
class Latent:
    """Multi-head latent attention: one compressed vector per token instead of keys and values."""

    q_rank: int | None
    kv_rank: int
    nope: int  # per head: dimensions without position
    rope: int  # dimensions with position, shared by all heads in the cache
    value: int


@dataclass(frozen=True)
class Experts:
    total: int
    per_token: int
    width: int  # of one expert's MLP
    shared_width: int  # of the MLP that every token also takes; 0: none
    layers: int  # that have experts; the others have a dense MLP
    gated_shared: bool = False


@dataclass(frozen=True)
class ModelShape:
    """Sizes in elements. `name` is None when the configuration has none."""

    name: str | None
    family: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp_width: int  # of dense layers
    vocabulary: int
    tied: bool  # the output layer is the embedding table
    latent: Latent | None = None
    experts: Experts | None = None
    biased: bool = False

    # Parameters

    @property
    def embedding(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def attention(self) -> int:
        """Parameters of one layer's attention, norms included."""
        return sum(self._attention_parts())

    def _attention_parts(self) -> tuple[int, int, int]:
        """(split over heads, split over KV heads, held by every GPU) of one layer."""
        h = self.hidden
        if m := self.latent:
            key = m.nope + m.rope
            query = (m.q_rank or h) * self.heads * key
            split = query + m.kv_rank * self.heads * (m.nope + m.value) + self.heads * m.value * h
            whole = h * (m.kv_rank + m.rope) + m.kv_rank + (m.q_rank or 0) * (h + 1) + 2 * h
            return split, 0, whole
        q, kv = self.heads * self.head_dim, 2 * self.kv_heads * self.head_dim
        norms = 2 * h + (2 * self.head_dim if self.family in QK_NORMS else 0)
        return 2 * h * q + q * self.biased, (h + self.biased) * kv, norms

    @property
    def dense_mlp(self) -> int:
        return 3 * self.hidden * self.mlp_width

    @property
    def one_expert(self) -> int:
        return 3 * self.hidden * self.experts.width if self.experts else 0

    @property
    def beside_experts(self) -> int:
        """Of one layer with experts: its router and the MLP that all tokens share."""
        if not (e := self.experts):
            return 0
        return self.hidden * (e.total + 3 * e.shared_width + e.gated_shared)

    @property
    def expert_layers(self) -> int:
        return self.experts.layers if self.experts else 0

    def matrices(self, experts_read: float) -> float:
        """Parameters of all layers, of the experts only `experts_read` per layer."""
        dense = (self.layers - self.expert_layers) * self.dense_mlp
        sparse = self.expert_layers * (self.beside_experts + experts_read * self.one_expert)
        return self.layers * self.attention + dense + sparse

    @property
    def parameters(self) -> int:
        tables = self.embedding * (1 if self.tied else 2)
        total = self.experts.total if self.experts else 0
        return int(self.matrices(total)) + tables + self.hidden

    @property
    def active_parameters(self) -> int:
        """As model cards count: both tables, and of the experts those that a token goes through."""
        tables = self.embedding * (1 if self.tied else 2)
        return int(self.matrices(self.experts.per_token if self.experts else 0)) + tables + self.hidden

    # One GPU of `tp`

    def check_tensor_parallel(self, tp: int) -> None:
        """Raise UsageError unless the heads can be split over `tp` GPUs, as engines split them."""
        if tp < 1:
            raise UsageError(f"is {tp}", place="--tp", expected="at least 1")
        split = self.heads % tp == 0 and (self.latent or self.kv_heads % tp == 0 or tp % self.kv_heads == 0)
        if not split:
            heads = f"{self.heads} heads" if self.latent else f"{self.heads} heads, {self.kv_heads} of KV"
            possible = [n for n in (1, 2, 4, 8, 16, 32) if self._splits(n)]
            raise UsageError(
                f"{heads} cannot be split over {tp} GPUs",
                place="--tp",
                expected=f"one of {', '.join(map(str, possible))}",
                hint="every GPU holds as many heads",
            )

    def _splits(self, tp: int) -> bool:
        kv = bool(self.latent) or self.kv_heads % tp == 0 or tp % self.kv_heads == 0
        return self.heads % tp == 0 and kv

    def kv_copies(self, tp: int) -> int:
        """How many GPUs of `tp` hold the same KV: all with latent attention, several when heads run out."""
        return tp if self.latent else max(1, tp // self.kv_heads)

    def layer_parameters_per_gpu(self, tp: int, experts_read: float) -> float:
        """Of all layers on one GPU, with `experts_read` experts per layer (on all GPUs together)."""
        _, kv, whole = self._attention_parts()
        every = self.layers * (kv * (self.kv_copies(tp) - 1) + whole * (tp - 1)) / tp
        return self.matrices(experts_read) / tp + every

    # Per token

    @property
    def kv_elements(self) -> int:
        """Elements that one token leaves in the KV cache, counted once however many GPUs hold a copy."""
        if m := self.latent:
            return self.layers * (m.kv_rank + m.rope)
        return self.layers * 2 * self.kv_heads * self.head_dim

    def kv_elements_per_gpu(self, tp: int) -> float:
        return self.kv_elements * self.kv_copies(tp) / tp

    @property
    def layer_flops(self) -> float:
        """FLOPs of one token in the layers' matrices: two per parameter that it goes through."""
        return 2.0 * self.matrices(self.experts.per_token if self.experts else 0)

    @property
    def output_flops(self) -> float:
        """FLOPs of one token in the output layer, which a prompt takes once, for its last token."""
        return 2.0 * self.embedding

    @property
    def pair_flops(self) -> float:
        """FLOPs of a prefill per pair of tokens: query times key, weight times value, in all layers."""
        if m := self.latent:
            return 2.0 * self.layers * self.heads * (m.nope + m.rope + m.value)
        return 4.0 * self.layers * self.heads * self.head_dim

    @property
    def decode_pair_flops(self) -> float:
        """The same of a decode; with latent attention it works on the compressed vectors themselves."""
        if m := self.latent:
            return 2.0 * self.layers * self.heads * (2 * m.kv_rank + m.rope)
        return self.pair_flops


def shape_of(config: Config, place: str) -> ModelShape:
    """The shape of a configuration; `place` stands in the ConfigError for keys that contradict each other."""
    latent = _latent(config, place)
    if config.head_dim is None and latent is None and config.hidden_size % config.num_attention_heads:
        raise ConfigError(
            "is not a multiple of num_attention_heads", place=f"{place}: hidden_size", hint="give head_dim"
        )
    kv_heads = config.num_key_value_heads or config.num_attention_heads
    if latent is None and config.num_attention_heads % kv_heads:
        raise ConfigError(
            "does not divide num_attention_heads", place=f"{place}: num_key_value_heads",
            expected=f"a divisor of {config.num_attention_heads}",
            hint=PUBLISHED,
        )  # fmt: skip
    return ModelShape(
        name=config.name or None,
        family=config.model_type,
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=kv_heads,
        head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
        mlp_width=config.intermediate_size,
        vocabulary=config.vocab_size,
        tied=config.tie_word_embeddings,
        latent=latent,
        experts=_experts(config, place),
        biased=config.attention_bias or config.model_type in BIASED,
    )


def _latent(config: Config, place: str) -> Latent | None:
    if config.kv_lora_rank is None:
        return None
    parts = {key: getattr(config, key) for key in ("qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")}
    for key, value in parts.items():
        if value is None:
            raise ConfigError(
                "missing beside kv_lora_rank", place=f"{place}: {key}", expected="a whole number above 0",
                hint=PUBLISHED,
            )  # fmt: skip
    return Latent(config.q_lora_rank, config.kv_lora_rank, *parts.values())


def _experts(config: Config, place: str) -> Experts | None:
    total = config.num_experts or config.num_local_experts or config.n_routed_experts or 0
    if total < 2:
        return None
    chosen = config.num_experts_per_tok
    if chosen is None or chosen > total:
        raise ConfigError(
            "missing" if chosen is None else f"is {chosen} of {total} experts",
            place=f"{place}: num_experts_per_tok",
        )
    width = config.moe_intermediate_size or config.intermediate_size
    shared = config.shared_expert_intermediate_size or (config.n_shared_experts or 0) * width
    step = config.decoder_sparse_step * config.moe_layer_freq
    first = int(config.decoder_sparse_step > 1)  # Qwen counts layers from 1, DeepSeek from 0
    dense = set(config.mlp_only_layers)
    sparse = [
        layer
        for layer in range(config.first_k_dense_replace, config.num_hidden_layers)
        if (layer + first) % step == 0 and layer not in dense
    ]
    gated = bool(config.shared_expert_intermediate_size)
    return Experts(total, chosen, width, shared, len(sparse), gated)
