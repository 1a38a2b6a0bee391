"""Names of GGUF tensors; that they are the right ones, the round trip of whole models shows."""

import gguf
import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_names import Origin, origin


@pytest.mark.parametrize(
    ("architecture", "name", "expected"),
    [
        ("llama", "blk.3.attn_q.weight", Origin("model.layers.3.self_attn.q_proj.weight", "query_rows")),
        ("llama", "blk.3.attn_k.bias", Origin("model.layers.3.self_attn.k_proj.bias", "key_rows")),
        ("llama", "blk.0.attn_v.weight", Origin("model.layers.0.self_attn.v_proj.weight")),
        ("llama", "output.weight", Origin("lm_head.weight")),
        ("llama", "rope_freqs.weight", None),
        ("qwen2", "blk.11.attn_q.weight", Origin("model.layers.11.self_attn.q_proj.weight")),
        ("gemma2", "blk.0.ffn_norm.weight", Origin("model.layers.0.pre_feedforward_layernorm.weight", "plus_one")),
        ("gemma3", "blk.0.attn_k_norm.weight", Origin("model.layers.0.self_attn.k_norm.weight", "plus_one")),
        ("gemma3", "output_norm.weight", Origin("model.norm.weight", "plus_one")),
        ("phi3", "blk.0.ffn_up.weight", Origin("model.layers.0.mlp.gate_up_proj.weight")),
        ("phi3", "rope_factors_long.weight", None),
        ("gpt2", "position_embd.weight", Origin("transformer.wpe.weight")),
        ("gpt2", "blk.0.attn_qkv.weight", Origin("transformer.h.0.attn.c_attn.weight", "transposed")),
        ("gpt2", "blk.0.attn_qkv.bias", Origin("transformer.h.0.attn.c_attn.bias")),
    ],
)
def test_names(architecture: str, name: str, expected: Origin | None) -> None:
    assert origin(architecture, name, 12, "model.gguf") == expected


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3", "gpt2"])
def test_no_two_tensors_share_a_name(architecture: str) -> None:
    number = next(number for number, text in gguf.MODEL_ARCH_NAMES.items() if text == architecture)
    names = [gguf.TENSOR_NAMES[tensor].format(bid=1) + ".weight" for tensor in gguf.MODEL_TENSORS[number]]
    unknown = {"attn_rot_embd", "ffn_gate_inp", "ffn_gate_exps", "ffn_down_exps", "ffn_up_exps"}
    if architecture == "phi3":
        unknown |= {"attn_q", "attn_k", "attn_v"}
    known = [name for name in names if name.split(".")[-2] not in unknown]
    if architecture in ("qwen2", "qwen3"):
        assert "rope_freqs.weight" in known
    origins = [origin(architecture, name, 2, "model.gguf") for name in known]
    found = [item.name for item in origins if item is not None]
    assert len(set(found)) == len(found) >= len(known) - 2


@pytest.mark.parametrize(
    "name",
    [
        *("blk.2.attn_q.weight", "blk.00.attn_q.weight", "blk.-1.attn_q.weight", "blk.1.attn_q", "blk.1.attn_q.scale"),
        *("attn_q.weight", "blk.1.output.weight", "blk.1.ffn_gate_exps.weight", "", "blk.٣.attn_q.weight"),
        *("blk.99999999999999999999.attn_q.weight", "output.weight\n", "x" * 60_000),
    ],
)
def test_tensors_without_a_place_are_refused(name: str) -> None:
    with pytest.raises(CheckpointError, match="has no place in a llama model of 2 layers") as caught:
        origin("llama", name, 2, "model.gguf")
    assert len(str(caught.value)) < 400


def test_other_architectures_are_refused() -> None:
    with pytest.raises(CheckpointError, match="architecture 'mamba'; of GGUF quire runs llama, qwen2"):
        origin("mamba", "output.weight", 2, "model.gguf")
