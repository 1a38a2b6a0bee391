"""What files call the tensors of a spec; that they are the right ones, round trips and parity show."""

from typing import Any

import gguf
import pytest

from quire.models.loading.tensor_names import gguf_names, safetensors_names
from quire.models.registry import GGUF_ARCHITECTURES, describe
from quire.spec.layout import AS_STORED, MINUS_ONE, Layout, PairedRows
from quire.spec.model import ModelSpec

SHAPE: dict[str, Any] = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 12,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": 48,
    "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}


def spec_of(model_type: str, **changes: Any) -> ModelSpec:
    return describe({"model_type": model_type, **SHAPE, **changes}, "config.json")


@pytest.mark.parametrize(
    ("architecture", "name", "expected", "layout"),
    [
        ("llama", "blk.3.attn_q.weight", "model.layers.3.self_attn.q_proj.weight", PairedRows(4, 16, 16)),
        ("llama", "blk.3.attn_k.bias", "model.layers.3.self_attn.k_proj.bias", PairedRows(2, 16, 16)),
        ("llama", "blk.0.attn_v.weight", "model.layers.0.self_attn.v_proj.weight", AS_STORED),
        ("llama", "output.weight", "lm_head.weight", AS_STORED),
        ("qwen2", "blk.11.attn_q.weight", "model.layers.11.self_attn.q_proj.weight", AS_STORED),
        ("gemma2", "blk.0.ffn_norm.weight", "model.layers.0.pre_feedforward_layernorm.weight", MINUS_ONE),
        ("gemma3", "blk.0.attn_k_norm.weight", "model.layers.0.self_attn.k_norm.weight", MINUS_ONE),
        ("gemma3", "output_norm.weight", "model.norm.weight", MINUS_ONE),
        ("phi3", "blk.0.ffn_up.weight", "model.layers.0.mlp.gate_up_proj.weight", AS_STORED),
        ("gpt2", "position_embd.weight", "transformer.wpe.weight", AS_STORED),
        ("gpt2", "blk.0.attn_qkv.weight", "transformer.h.0.attn.c_attn.weight", AS_STORED),
        ("gpt2", "blk.0.attn_qkv.bias", "transformer.h.0.attn.c_attn.bias", AS_STORED),
        ("falcon", "blk.0.attn_norm.weight", "transformer.h.0.input_layernorm.weight", AS_STORED),
        ("gptneox", "blk.1.attn_qkv.weight", "gpt_neox.layers.1.attention.query_key_value.weight", AS_STORED),
        ("command-r", "blk.1.attn_q.weight", "model.layers.1.self_attn.q_proj.weight", PairedRows(4, 16, 16)),
        ("bert", "blk.1.layer_output_norm.bias", "bert.encoder.layer.1.output.LayerNorm.bias", AS_STORED),
        ("nomic-bert", "blk.1.ffn_gate.weight", "bert.encoder.layers.1.mlp.fc12.weight", AS_STORED),
    ],
)
def test_names_of_gguf(architecture: str, name: str, expected: str, layout: Layout) -> None:
    names = gguf_names(spec_of(GGUF_ARCHITECTURES[architecture], attention_bias=True))
    found = names.find(name)
    assert found is not None
    assert (found.name, names.layout(found)) == (expected, layout)


def test_a_falcon_with_two_norms_calls_the_mlp_s_the_first() -> None:
    names = gguf_names(spec_of("falcon", new_decoder_architecture=True, num_kv_heads=2))
    found = {name: names.spelled[f"blk.0.{name}.weight"].name for name in ("attn_norm", "attn_norm_2")}
    assert found == {"attn_norm": "transformer.h.0.ln_mlp.weight", "attn_norm_2": "transformer.h.0.ln_attn.weight"}


@pytest.mark.parametrize("name", ["rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"])
def test_tensors_that_are_part_of_the_config(name: str) -> None:
    names = gguf_names(spec_of("llama"))
    assert names.find(name) is None
    assert names.unused.fullmatch(name)


@pytest.mark.parametrize("architecture", GGUF_ARCHITECTURES)
def test_every_tensor_has_a_name_that_the_format_knows(architecture: str) -> None:
    """And no two share one."""
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "experts_are_stacked": True, "moe_intermediate_size": 32}
    spec = spec_of(GGUF_ARCHITECTURES[architecture], num_hidden_layers=2, **experts)
    number = next(number for number, text in gguf.MODEL_ARCH_NAMES.items() if text == architecture)
    known = {gguf.TENSOR_NAMES[tensor].format(bid=layer) for tensor in gguf.MODEL_TENSORS[number] for layer in (0, 1)}
    spelled = gguf_names(spec).spelled
    assert len(spelled) == len(list(spec.tensors()))
    known |= {"output"} if spec.head is not None else set()
    assert {name.rpartition(".")[0] for name in spelled} <= known


@pytest.mark.parametrize(
    "name",
    [
        *("blk.12.attn_q.weight", "blk.00.attn_q.weight", "blk.-1.attn_q.weight", "blk.1.attn_q", "blk.1.attn_q.scale"),
        *("attn_q.weight", "blk.1.output.weight", "blk.1.ffn_gate_exps.weight", "", "blk.٣.attn_q.weight"),
        *("blk.99999999999999999999.attn_q.weight", "output.weight\n", "x" * 60_000),
    ],
)
def test_names_without_a_place(name: str) -> None:
    names = gguf_names(spec_of("llama"))
    assert names.find(name) is None
    assert not names.unused.fullmatch(name)


@pytest.mark.parametrize(
    ("model_type", "stored", "expected"),
    [
        ("llama", "model.norm.weight", "model.norm.weight"),
        ("llama", "norm.weight", "model.norm.weight"),
        ("gpt2", "wte.weight", "transformer.wte.weight"),
        ("bert", "embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight"),
        ("bert", "bert.embeddings.word_embeddings.weight", "bert.embeddings.word_embeddings.weight"),
        ("bert", "bert.encoder.layer.3.output.LayerNorm.gamma", "bert.encoder.layer.3.output.LayerNorm.weight"),
        ("bert", "embeddings.LayerNorm.beta", "bert.embeddings.LayerNorm.bias"),
        ("roberta", "roberta.encoder.layer.0.output.dense.bias", "roberta.encoder.layer.0.output.dense.bias"),
        ("roberta", "encoder.layer.0.output.dense.bias", "roberta.encoder.layer.0.output.dense.bias"),
    ],
)
def test_names_of_safetensors(model_type: str, stored: str, expected: str) -> None:
    """Whoever saved them."""
    found = safetensors_names(spec_of(model_type, num_key_value_heads=4), [stored]).find(stored)
    assert found is not None
    assert found.name == expected


@pytest.mark.parametrize(
    ("model_type", "name", "is_unused"),
    [
        ("bert", "cls.predictions.bias", True),
        ("bert", "bert.pooler.dense.weight", True),
        ("bert", "embeddings.position_ids", True),
        ("bert", "bert.encoder.layer.0.output.dense.scale", False),
        ("llama", "model.layers.0.self_attn.rotary_emb.inv_freq", True),
        ("llama", "model.layers.0.self_attn.q_proj.weight_scale", False),
        ("gpt2", "h.0.attn.bias", True),
        ("gpt2", "transformer.h.0.attn.masked_bias", True),
    ],
)
def test_what_a_model_has_no_need_of(model_type: str, name: str, is_unused: bool) -> None:
    names = safetensors_names(spec_of(model_type, num_key_value_heads=4), [name])
    assert names.find(name) is None
    assert bool(names.unused.fullmatch(name)) == is_unused
