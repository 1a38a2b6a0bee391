"""Specs of real models: parameters against the published counts, names of tensors, caches and what a head is."""

from typing import Any

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.header import config_facts
from quire.models.registry import FAMILIES, describe
from quire.spec.cache import KeyValueCache
from quire.spec.experts import ExpertsSpec
from quire.spec.latent import LatentAttentionSpec
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.model import ModelSpec
from tests.config.examples import (
    BERT,
    DEEPSEEK_V3_CONFIG,
    LLAMA_3_8B,
    LLAMA_3_8B_CONFIG,
    TINY,
    TINY_CONFIG,
    with_windows,
)


def sizes(model_type: str, layers: int, hidden: int, width: int, heads: int, kv: int, vocab: int, **more: Any) -> Any:
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
    } | more


GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
OPT = sizes("opt", 12, 768, 0, 12, 12, 50272, ffn_dim=3072, max_position_embeddings=2048)
BASE = {"max_position_embeddings": 512}
TIED = {"tie_word_embeddings": True}

KNOWN: dict[str, tuple[dict[str, Any], int]] = {
    "Llama-3-8B": (LLAMA_3_8B_CONFIG, 8_030_261_248),
    "SmolLM2-135M": (sizes("llama", 30, 576, 1536, 9, 3, 49152, **TIED), 134_515_008),
    "Mistral-7B-v0.1": (sizes("mistral", 32, 4096, 14336, 32, 8, 32000), 7_241_732_096),
    "Qwen2.5-0.5B": (sizes("qwen2", 24, 896, 4864, 14, 2, 151_936, **TIED), 494_032_768),
    "Qwen3-0.6B": (sizes("qwen3", 28, 1024, 3072, 16, 8, 151_936, head_dim=128, **TIED), 596_049_920),
    "Gemma-2-2B": (sizes("gemma2", 26, 2304, 9216, 8, 4, 256_000, head_dim=256), 2_614_341_888),
    "Gemma-3-1B": (sizes("gemma3_text", 26, 1152, 6912, 4, 1, 262_144, head_dim=256), 999_885_952),
    "Phi-3-mini": (sizes("phi3", 32, 3072, 8192, 32, 32, 32064), 3_821_079_552),
    "GPT-2": (GPT2, 124_439_808),
    "OPT-125M": (OPT, 125_239_296),
    "Pythia-160M": (sizes("gpt_neox", 12, 768, 3072, 12, 12, 50304), 162_322_944),
    "DeepSeek-V3": (DEEPSEEK_V3_CONFIG, 671_026_419_200),
    "BERT base": (sizes("bert", 12, 768, 3072, 12, 12, 30_522, architectures=["BertModel"], **BASE), 108_891_648),
}
"""BERT's published count has its pooler too, 590,592 parameters that embeddings do not need."""


def facts(config: dict[str, Any], **changes: Any) -> ModelSpec:
    return config_facts("model", config | changes).spec


@pytest.mark.parametrize("name", KNOWN)
def test_known_model(name: str) -> None:
    config, expected = KNOWN[name]
    assert config_facts(name, config).num_parameters == expected


def test_biases_are_counted_where_the_config_has_them() -> None:
    biased = facts(LLAMA_3_8B_CONFIG, attention_bias=True, mlp_bias=True)
    attention, mlp = 4096 + 2 * 1024 + 4096, 2 * 14336 + 4096
    assert biased.num_parameters == LLAMA_3_8B.num_parameters + 32 * (attention + mlp)


def test_other_families_are_refused() -> None:
    with pytest.raises(CheckpointError, match="is of type 'starcoder2'; quire runs llama"):
        facts(LLAMA_3_8B_CONFIG, model_type="starcoder2")


ANY_FAMILY: dict[str, Any] = sizes("", 6, 64, 96, 4, 2, 50) | {
    "n_inner": 96,
    "ffn_dim": 96,
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim"), 96),
    "encoder_layers": 2,
    "encoder_attention_heads": 4,
    "sliding_window": 16,
    "head_dim": 16,
    "type_vocab_size": 2,
    "prenorm": False,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 48,
    "n_group": 2,
    "topk_group": 1,
}


@pytest.mark.parametrize("family", list(FAMILIES))
def test_every_family_names_each_tensor_once(family: str) -> None:
    spec = describe(ANY_FAMILY | {"model_type": family}, "config.json")
    names = [tensor.name for tensor in spec.tensors()]
    assert len(names) == len(set(names))
    matrices = [matrix.name for matrix in spec.matrices()]
    assert len(matrices) == len(set(matrices))
    assert all(tensor.name.endswith(tensor.ending) for tensor in spec.tensors())
    assert {tensor.layer for tensor in spec.tensors()} >= set(range(6))


@pytest.mark.parametrize("family", list(FAMILIES))
def test_matrices_of_every_family_fit_one_another(family: str) -> None:
    spec = describe(ANY_FAMILY | {"model_type": family}, "config.json")
    for layer in spec.layers:
        attention, mlp = layer.attention, layer.mlp
        if isinstance(attention, LatentAttentionSpec):
            first, value_dim = attention.down, attention.value_dim
            assert first.rows == attention.num_heads * attention.head_dim + attention.latent_dim + attention.rope_dim
            assert attention.up.rows == attention.num_heads * (attention.nope_dim + value_dim)
        else:
            first, value_dim = attention.qkv, attention.head_dim
            assert first.rows == (attention.num_heads + 2 * attention.num_kv_heads) * attention.head_dim
        assert attention.out.columns == attention.num_heads * value_dim
        count = mlp.num_experts if isinstance(mlp, ExpertsSpec) else 1
        assert mlp.up.rows == count * mlp.down.columns * (1 + (count > 1 or mlp.gated))
        stacked = count if isinstance(mlp, ExpertsSpec) else 0
        assert (mlp.up.experts, mlp.down.experts) == (stacked, stacked)
        widths = {first.columns, attention.out.rows, mlp.up.columns, mlp.down.rows // count}
        assert widths == {spec.hidden_size}
    assert not (spec.is_encoder and spec.generates)
    assert spec.is_encoder or spec.generates or family == "clip_text_model"  # causal, and read for its vector alone


def test_parts_are_tensors_of_one_matrix() -> None:
    matrix = MatrixSpec((Part("q", "q", 4), Part("k", "k", 2)), columns=8, cut="rows", bias=True, layer=3)
    assert [(tensor.name, tensor.shape, tensor.use) for tensor in matrix.tensors()] == [
        ("q.weight", (4, 8), "matrix"),
        ("q.bias", (4,), "vector"),
        ("k.weight", (2, 8), "matrix"),
        ("k.bias", (2,), "vector"),
    ]
    held = sum(tensor.num_elements for tensor in matrix.tensors())
    assert (matrix.rows, held, matrix.name) == (6, 6 * 9, "q")


def test_a_model_without_its_head_needs_no_tensor_of_it() -> None:
    whole, headless = TINY.spec, TINY.spec.without_head()
    assert (whole.generates, headless.generates) == (True, False)
    assert whole.num_parameters - headless.num_parameters == 256 * 64
    assert "lm_head.weight" in {tensor.name for tensor in whole.tensors()}
    assert "lm_head.weight" not in {tensor.name for tensor in headless.tensors()}
    assert r"lm_head\.weight" in headless.unused
    tied = facts(TINY_CONFIG, tie_word_embeddings=True)
    assert (tied.generates, tied.without_head().generates) == (True, False)
    assert tied.without_head().num_parameters == tied.num_parameters


def test_windows_and_caches_are_by_layer() -> None:
    spec = with_windows(TINY, (8, None, 8, None)).spec
    assert spec.windows == (8, None, 8, None)
    assert spec.caches == tuple(KeyValueCache(2, 16, window) for window in spec.windows)


def test_an_encoder_has_no_caches() -> None:
    assert (BERT.spec.is_encoder, BERT.spec.generates) == (True, False)
    with pytest.raises(CheckpointError, match="BertModel embeds texts and generates none: it keeps no KV"):
        _ = BERT.spec.caches


def test_prompts_share_kv_where_their_angles_are_the_same() -> None:
    plain = TINY.spec
    assert (plain.angles_change_at, {plain.kv_variant(length) for length in (1, 10**6)}) == (None, {""})
    dynamic = facts(TINY_CONFIG, rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    assert (dynamic.angles_change_at, dynamic.angles_follow_length) == (2048, True)
    assert [dynamic.kv_variant(length) for length in (2048, 2049, 3000)] == ["", "2049", "3000"]
    scaling = {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [2.0] * 8}
    long = facts(TINY_CONFIG, model_type="phi3", original_max_position_embeddings=100, rope_scaling=scaling)
    assert (long.angles_change_at, long.angles_follow_length) == (100, False)
    assert [long.kv_variant(length) for length in (100, 101, 2000)] == ["", "long", "long"]


def test_the_widest_point_of_a_layer_is_its_mlp_or_its_heads() -> None:
    layer = LLAMA_3_8B.spec.layers[0]
    assert layer.widest() == (3 * 4096, 3 * 14336)
    narrow = facts(LLAMA_3_8B_CONFIG, intermediate_size=1000).layers[0]
    assert narrow.widest() == (3 * 4096, 4096 + 2 * 1024 + 4096)
    plain = facts(GPT2).layers[0]
    assert plain.widest() == (3 * 768, 2 * 4 * 768)
