"""Experts in specs: what they are called in files, how many parameters there are, and how many a step reads."""

from typing import Any

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.tensor_names import gguf_names
from quire.models.registry import describe
from quire.spec.experts import ExpertsSpec
from quire.spec.layout import StackedRows, file_shape
from quire.spec.model import ModelSpec

MIXTRAL_8X7B: dict[str, Any] = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN3_30B_A3B: dict[str, Any] = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "norm_topk_prob": True,
}


def experts_of(spec: ModelSpec) -> ExpertsSpec:
    mlp = spec.layers[0].mlp
    assert isinstance(mlp, ExpertsSpec)
    return mlp


@pytest.mark.parametrize(
    ("config", "total", "active"),
    # what the models' makers count
    [(MIXTRAL_8X7B, 46_702_792_704, 12_879_925_248), (QWEN3_30B_A3B, 30_532_122_624, 3_353_032_704)],
)
def test_parameters(config: dict[str, Any], total: int, active: int) -> None:
    spec = describe(config, "config.json")
    assert (spec.num_parameters, spec.num_active_parameters) == (total, active)


def test_every_experts_tensors_are_rows_of_two_stacks() -> None:
    mlp = experts_of(describe(MIXTRAL_8X7B, "config.json"))
    start = "model.layers.0.block_sparse_moe.experts"
    assert [part.name for part in mlp.up.parts] == [f"{start}.{n}.{name}" for name in ("w1", "w3") for n in range(8)]
    assert [part.name for part in mlp.down.parts] == [f"{start}.{n}.w2" for n in range(8)]
    assert (mlp.up.rows, mlp.down.rows, mlp.num_experts, mlp.size) == (2 * 8 * 14336, 8 * 4096, 8, 14336)


def test_in_gguf_each_stack_is_a_tensor() -> None:
    names = gguf_names(describe({**QWEN3_30B_A3B, "experts_are_stacked": True}, "model.gguf"))
    for name, shape in {"gate": (128, 768, 2048), "up": (128, 768, 2048), "down": (128, 2048, 768)}.items():
        tensor = names.spelled[f"blk.3.ffn_{name}_exps.weight"]
        assert file_shape(tensor.shape, names.layout(tensor)) == shape
    assert names.spelled["blk.3.ffn_gate_inp.weight"].shape == (128, 2048)


def test_rows_of_gates_and_ups_that_a_file_has_expert_by_expert() -> None:
    stacked = StackedRows(experts=2, size=2, parts=2)
    assert stacked.source_rows() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert file_shape((8, 3), stacked) == (2, 4, 3)


def test_a_step_touches_the_more_experts_the_more_tokens_it_has() -> None:
    mlp = experts_of(describe(QWEN3_30B_A3B, "config.json"))
    assert mlp.touched(1) == pytest.approx(1 / 16)
    assert mlp.touched(2) == pytest.approx(1 - (15 / 16) ** 2)
    assert mlp.touched(4096) == pytest.approx(1)


def test_choices_that_cannot_be_made_are_refused() -> None:
    with pytest.raises(CheckpointError, match="gives every token 9 experts, but there are 8 to choose from"):
        describe({**MIXTRAL_8X7B, "num_experts_per_tok": 9}, "config.json")
    glm = {**QWEN3_30B_A3B, "model_type": "glm4_moe", "n_routed_experts": 128, "n_group": 3, "topk_group": 1}
    with pytest.raises(CheckpointError, match="128 experts in 3 groups"):
        describe(glm, "config.json")
