"""A rank's part of a model: sizes, which rows and columns it takes, and that all ranks together have the whole."""

from collections import Counter
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.models.registry import describe
from quire.spec.experts import ExpertsSpec
from quire.spec.layer import AttentionSpec, LayerSpec
from quire.spec.mlp import MlpSpec
from quire.spec.model import ModelSpec
from quire.spec.rank import Place, heads_of, rank_spec
from quire.spec.share import AxisShare, cut_parts, even_share
from tests.config.examples import DEEPSEEK_V3_CONFIG
from tests.spec.test_experts import MIXTRAL_8X7B

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "vocab_size": 101,
    "max_position_embeddings": 128,
    "attention_bias": True,
}


def spec_of(**given: Any) -> ModelSpec:
    return describe({**LLAMA, **given}, "config.json")


@given(st.integers(1, 500), st.integers(1, 9), st.sampled_from([1, 4, 32]))
def test_shares_are_even_and_cover_everything(whole: int, ranks: int, grain: int) -> None:
    shares = [even_share(whole, rank, ranks, grain) for rank in range(ranks)]
    assert [place for share in shares for place in share] == list(range(whole))
    sizes = list(map(len, shares))
    assert sizes == sorted(sizes, reverse=True)
    in_grains = whole > grain * (ranks - 1)
    if whole % grain == 0 or not in_grains:
        assert sizes[0] - sizes[-1] <= (grain if in_grains else 1)
    if in_grains:
        assert all(share.start % grain == 0 for share in shares)


def test_ranges_over_parts_become_ranges_of_parts() -> None:
    assert cut_parts([4, 2, 2], [range(2, 4), range(5, 6), range(7, 8)]) == [
        AxisShare(4, (range(2, 4),)),
        AxisShare(2, (range(1, 2),)),
        AxisShare(2, (range(1, 2),)),
    ]
    assert cut_parts([8], [range(2, 4), range(5, 6)]) == [AxisShare(8, (range(2, 4), range(5, 6)))]


def test_heads_are_replicated_where_ranks_exceed_them() -> None:
    assert [heads_of(2, Place(rank, 4)) for rank in range(4)] == [range(1), range(1), range(1, 2), range(1, 2)]
    assert [heads_of(6, Place(rank, 2)) for rank in range(2)] == [range(3), range(3, 6)]


def test_a_rank_is_a_smaller_model() -> None:
    part = rank_spec(spec_of(), Place(1, 2))
    attention, mlp = part.layers[0].attention, part.layers[0].mlp
    assert isinstance(mlp, MlpSpec)
    assert (attention.num_heads, attention.num_kv_heads, attention.qkv.rows, attention.out.columns) == (4, 1, 48, 32)
    assert (mlp.up.rows, mlp.down.columns) == (96, 48)
    assert (part.vocab_size, part.embedding.words.rows) == (101, 50)
    query, key, _ = attention.qkv.parts
    assert query.share == AxisShare(64, (range(32, 64),))
    assert key.share == AxisShare(16, (range(8, 16),))
    weight = attention.qkv.weight(query)
    assert weight.shape == (32, 64)
    assert weight.share is not None
    assert weight.share.rows == query.share


def test_the_bias_of_a_sum_is_the_first_ranks() -> None:
    first, second = (rank_spec(spec_of(), Place(rank, 2)).layers[0].attention for rank in range(2))
    assert first.out.bias
    assert not second.out.bias
    assert first.qkv.bias
    assert second.qkv.bias


@pytest.mark.parametrize("config", [LLAMA, {**LLAMA, "num_key_value_heads": 8}, MIXTRAL_8X7B])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_together_have_every_row_and_column(config: dict[str, Any], ranks: int) -> None:
    whole = describe(config, "config.json")
    parts = [rank_spec(whole, Place(rank, ranks)) for rank in range(ranks)]
    replicas = max(1, ranks // whole.num_kv_heads)
    sizes = Counter[str]()
    for part in parts:
        for matrix in part.matrices():
            for piece in matrix.parts:
                sizes[piece.name] += piece.rows * matrix.columns
    for matrix in whole.matrices():
        for piece in matrix.parts:
            times = ranks if matrix.cut == "none" else replicas if piece.role in ("k", "v") else 1
            assert sizes[piece.name] == times * piece.rows * matrix.columns, piece.name


def test_experts_are_cut_inside_each() -> None:
    mlp = rank_spec(describe(MIXTRAL_8X7B, "config.json"), Place(1, 2)).layers[0].mlp
    assert isinstance(mlp, ExpertsSpec)
    assert (mlp.size, mlp.num_experts) == (7168, 8)
    assert all(part.share is None for part in mlp.router.parts)
    assert all(part.share == AxisShare(14336, (range(7168, 14336),)) for part in mlp.up.parts)
    assert mlp.down.column_share == AxisShare(14336, (range(7168, 14336),))


def test_every_field_of_a_layer_is_decided() -> None:
    """Who adds a field decides here, and in `spec/rank.py`, whether ranks share it."""
    norms = {"attention_norm", "mlp_norm", "added_attention_norm", "added_mlp_norm"}
    whole_or_derived = {
        LayerSpec: {*norms, "wiring", "residual_scale", "cross"},  # models with cross-attention run on one device
        AttentionSpec: {"head_dim", "scale", "window", "softcap", "rope", "causal", "chunk", "has_temperature"},
        MlpSpec: {"activation", "gated"},
        ExpertsSpec: {"router", "routing", "activation", "correction", "shared_gate", "weighs_input"},
    }
    cut = {
        LayerSpec: {"attention", "mlp"},
        AttentionSpec: {"qkv", "out", "num_heads", "num_kv_heads", "head_norms", "sinks"},
        MlpSpec: {"up", "down"},
        ExpertsSpec: {"up", "down", "shared", "held"},
    }
    for kind, known in whole_or_derived.items():
        assert {field.name for field in fields(kind)} == known | cut[kind]


def test_one_rank_is_the_model_itself() -> None:
    whole = spec_of()
    assert rank_spec(whole, Place(0, 1)) is whole


def test_whole_experts_are_spread() -> None:
    """Every tensor of every expert is on one rank, and a rank's experts are those that its spec names."""
    spec = describe(MIXTRAL_8X7B, "config.json")
    ranks = [rank_spec(spec, Place(rank, 3, whole_experts=True)) for rank in range(3)]
    mlps = [part.layers[0].mlp for part in ranks]
    assert [_held(mlp) for mlp in mlps] == [(0, 1, 2), (3, 4, 5), (6, 7)]
    names = [{part.name for matrix in (mlp.up, mlp.down) for part in matrix.parts} for mlp in mlps]
    assert not names[0] & names[1]
    whole = spec.layers[0].mlp
    assert sum(mlp.up.rows for mlp in mlps) == whole.up.rows
    assert sum(mlp.down.rows for mlp in mlps) == whole.down.rows
    assert {mlp.down.columns for mlp in mlps} == {whole.down.columns}


def test_spare_places_hold_the_experts_that_follow() -> None:
    spec = describe(MIXTRAL_8X7B, "config.json")
    mlps = [rank_spec(spec, Place(rank, 3, 1, True, 2)).layers[0].mlp for rank in range(3)]
    assert [_held(mlp) for mlp in mlps] == [(0, 1, 2, 3, 4), (3, 4, 5, 6, 7), (0, 1, 6, 7)]
    gates = [part.name for part in mlps[2].up.parts if part.name.endswith("w1")]
    assert [name.split(".experts.")[1] for name in gates] == ["0.w1", "1.w1", "6.w1", "7.w1"]
    assert mlps[2].down.rows == 4 * spec.hidden_size


def test_experts_alone_are_spread() -> None:
    """Where ranks attend each to sequences of their own; experts that all tokens share stay with these."""
    config = {**DEEPSEEK_V3_CONFIG, "num_hidden_layers": 4, "n_routed_experts": 16}
    spec = describe(config, "config.json")
    ranks = [rank_spec(spec, Place(rank, 2, whole_experts=True, experts_alone=True)) for rank in range(2)]
    for part in ranks:
        assert replace(part, layers=spec.layers) == spec
        for layer, whole in zip(part.layers, spec.layers, strict=True):
            assert replace(layer, mlp=whole.mlp) == whole
            if isinstance(whole.mlp, ExpertsSpec):
                assert isinstance(layer.mlp, ExpertsSpec)
                assert layer.mlp.shared == whole.mlp.shared
                assert layer.mlp.router == whole.mlp.router
            else:
                assert layer.mlp == whole.mlp
    assert [_held(part.layers[-1].mlp) for part in ranks] == [tuple(range(8)), tuple(range(8, 16))]


def _held(mlp: MlpSpec | ExpertsSpec) -> tuple[int, ...]:
    assert isinstance(mlp, ExpertsSpec)
    assert mlp.held is not None
    assert mlp.up.experts == mlp.down.experts == len(mlp.held.experts)
    return mlp.held.experts
