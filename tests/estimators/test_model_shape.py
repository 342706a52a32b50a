"""Sizes of published models, as their cards and weight files state them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentctl.errors import AgentctlError, ConfigError, UsageError
from agentctl.estimators.model_config import MAX_BYTES, parse_config, read_config, weights_of
from agentctl.estimators.model_shape import shape_of

DATA = Path(__file__).parents[1] / "data" / "prior"


def keys(model: str) -> dict:
    return json.loads((DATA / f"{model}.json").read_bytes())


def config_of(values: object):
    return parse_config(json.dumps(values).encode(), "config.json")


def shape(model: str, **changed):
    return shape_of(config_of(keys(model) | changed), "config.json")


@pytest.mark.parametrize(
    ("model", "parameters", "active_billions", "kv_bytes"),
    [
        ("llama-3.1-8b", 8_030_261_248, 8.03, 131_072),
        ("qwen3-8b", 8_190_735_360, 8.19, 147_456),
        ("qwen3-0.6b", 596_049_920, 0.596, 114_688),
        ("qwen3-32b", 32_762_123_264, 32.8, 262_144),
        ("qwen2.5-7b", 7_615_616_512, 7.62, 57_344),
        ("qwen3-30b-a3b", 30_532_122_624, 3.35, 98_304),
        ("mixtral-8x7b", 46_702_792_704, 12.9, 131_072),
        ("deepseek-v3", 671_026_404_352, 37.6, 70_272),  # without its 14,848 biases of the router
    ],
)
def test_parameters_and_kv_are_those_of_the_published_weights(model, parameters, active_billions, kv_bytes):
    found = shape(model)
    assert found.parameters == parameters
    assert found.active_parameters / 1e9 == pytest.approx(active_billions, rel=0.005)
    assert found.kv_elements * 2 == kv_bytes


def test_a_dense_token_costs_two_flops_per_parameter_of_the_layers():
    found = shape("llama-3.1-8b")
    assert found.layer_flops == 2 * (found.parameters - 2 * found.embedding - found.hidden)
    assert found.pair_flops == 4 * 32 * 4096  # query times key and weight times value, in 32 layers


@pytest.mark.parametrize("tp", [1, 2, 4, 8])
def test_gpus_together_hold_every_weight_at_least_once_and_only_norms_more(tp):
    found = shape("llama-3.1-8b")
    together = tp * found.layer_parameters_per_gpu(tp, 0)
    norms = found.layers * 2 * found.hidden
    assert together == pytest.approx(found.matrices(0) + (tp - 1) * norms)


def test_kv_heads_are_copied_when_there_are_more_gpus_than_heads():
    found = shape("qwen3-30b-a3b")  # 4 KV heads
    assert [found.kv_elements_per_gpu(tp) / found.kv_elements for tp in (1, 2, 4, 8)] == [
        1,
        1 / 2,
        1 / 4,
        1 / 4,
    ]


def test_latent_attention_is_held_whole_by_every_gpu():
    found = shape("deepseek-v3")
    assert found.kv_elements_per_gpu(8) == found.kv_elements == 61 * 576


@pytest.mark.parametrize(("model", "tp"), [("llama-3.1-8b", 3), ("qwen2.5-7b", 8), ("llama-3.1-8b", 0)])
def test_heads_that_cannot_be_split_are_refused(model, tp):
    with pytest.raises(UsageError, match="--tp"):
        shape(model).check_tensor_parallel(tp)


def test_the_error_names_the_numbers_of_gpus_that_work():
    with pytest.raises(
        UsageError, match=r"28 heads, 4 of KV cannot be split over 8 GPUs; expected one of 1, 2, 4"
    ):
        shape("qwen2.5-7b").check_tensor_parallel(8)


def test_shared_experts_and_first_dense_layers_count_as_they_are():
    found = shape("deepseek-v3")
    assert found.expert_layers == 58
    assert found.beside_experts == 7168 * 256 + 3 * 7168 * 2048


def test_every_second_layer_may_have_experts():
    assert shape("qwen3-30b-a3b", decoder_sparse_step=2).expert_layers == 24
    assert shape("qwen3-30b-a3b", mlp_only_layers=[0, 1]).expert_layers == 46


@pytest.mark.parametrize(
    ("quantization", "weights"),
    [
        (None, "bf16"),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "int4"),
        ({"quant_method": "gptq", "bits": 8}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "int4"),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "fp4"),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"g": {"weights": {"num_bits": 8, "type": "float"}}},
            },
            "fp8",
        ),
    ],
)
def test_the_format_of_the_weights_is_read_from_the_configuration(quantization, weights):
    config = config_of(keys("llama-3.1-8b") | {"quantization_config": quantization})
    assert weights_of(config, "config.json") == weights


def test_an_unknown_quantisation_asks_for_the_flag():
    config = config_of(keys("llama-3.1-8b") | {"quantization_config": {"quant_method": "new"}})
    with pytest.raises(ConfigError, match="quantization_config") as caught:
        weights_of(config, "config.json")
    assert "--dtype" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("model", "changed", "said"),
    [
        ("llama-3.1-8b", {"hidden_size": "4096"}, r"hidden_size: is of type str; expected int"),
        ("llama-3.1-8b", {"num_hidden_layers": 0}, r"num_hidden_layers: is out of range; expected int >= 1"),
        ("llama-3.1-8b", {"num_hidden_layers": 10**30}, r"num_hidden_layers"),
        ("llama-3.1-8b", {"intermediate_size": None}, r"intermediate_size: missing"),
        ("llama-3.1-8b", {"num_key_value_heads": 5}, r"num_key_value_heads: does not divide"),
        ("llama-3.1-8b", {"hidden_size": 4097}, r"hidden_size: is not a multiple"),
        ("llama-3.1-8b", {"sliding_window": 4096}, r"sliding_window: has layers that do not attend"),
        ("llama-3.1-8b", {"layer_types": ["full_attention", "linear_attention"]}, r"layer_types: has layers"),
        ("llama-3.1-8b", {"model_type": "mamba2"}, r"model_type: is of a family that cannot be sized"),
        ("llama-3.1-8b", {"model_type": 7}, r"model_type: is of type int"),
        ("llama-3.1-8b", {"text_config": {}}, r"several modes"),
        ("qwen3-30b-a3b", {"num_experts_per_tok": None}, r"num_experts_per_tok: missing"),
        ("qwen3-30b-a3b", {"num_experts_per_tok": 129}, r"num_experts_per_tok: is 129 of 128 experts"),
        ("deepseek-v3", {"v_head_dim": None}, r"v_head_dim: missing beside kv_lora_rank"),
    ],
)
def test_a_configuration_that_cannot_be_sized_is_an_error_with_its_key(model, changed, said):
    with pytest.raises(ConfigError, match=said):
        shape(model, **changed)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"a": NaN}', b"1e999"]
)
def test_what_is_no_configuration_is_an_error(text):
    with pytest.raises(ConfigError, match=r"^config.json"):
        parse_config(text, "config.json")


def test_a_huge_file_is_not_read_whole(tmp_path):
    path = tmp_path / "config.json"
    path.write_bytes(b" " * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="larger than 1 MB"):
        read_config(path)


VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers())


@given(st.sampled_from(["llama-3.1-8b", "deepseek-v3", "qwen3-30b-a3b"]), st.data())
def test_damaged_configurations_end_in_a_size_or_in_an_error_of_ours(model, data):
    values = keys(model)
    for key in data.draw(st.lists(st.sampled_from(sorted(values)), max_size=3)):
        values[key] = data.draw(VALUES)
    try:
        found = shape_of(config_of(values), "config.json")
        assert found.parameters >= found.active_parameters > 0
        assert found.kv_elements > 0
    except AgentctlError:
        pass
