"""Families by name; what would be computed wrongly is not described at all."""

from typing import Any, get_args

import pytest

from quire.config.model import ModelImpl
from quire.core.errors import CheckpointError
from quire.models.families.family import Family
from quire.models.registry import FAMILIES, GGUF_ARCHITECTURES, ROWS, describe, describe_gguf, family_of
from quire.spec.model import ModelSpec

BERT = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 9}


def bert(**changes: Any) -> ModelSpec:
    return describe(BERT | {"intermediate_size": 8} | changes, "config.json")


def test_an_encoder_does_not_generate() -> None:
    spec = bert()
    assert spec.is_encoder
    assert not spec.generates
    with pytest.raises(CheckpointError, match="bert embeds texts and generates none"):
        assert spec.caches


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(CheckpointError, match="is of type 'mamba'; quire runs llama"):
        bert(model_type="mamba", max_position_embeddings=8)
    with pytest.raises(CheckpointError, match=r"is of type 'qwen4'.* Did you mean 'qwen3'\?"):
        bert(model_type="qwen4", max_position_embeddings=8)


@pytest.mark.parametrize(
    ("architecture", "generates"), [("GPT2LMHeadModel", True), ("GPT2Model", False), ("gpt2", True)]
)
def test_the_class_says_whether_there_is_a_head(architecture: str, generates: bool) -> None:
    config = {"model_type": "gpt2", "architectures": [architecture], "n_embd": 8, "n_layer": 1, "n_head": 2}
    assert describe(config | {"vocab_size": 9, "n_positions": 8}, "config.json").generates == generates


@pytest.mark.parametrize("impl", [impl for impl in get_args(ModelImpl) if impl != "quire"])
def test_what_transformers_runs_is_an_outline(impl: ModelImpl) -> None:
    spec = describe(BERT | {"model_type": "mamba", "max_position_embeddings": 8}, "config.json", impl)
    assert not spec.is_described
    assert list(spec.tensors()) == []
    assert (spec.num_layers, spec.hidden_size) == (1, 8)


def test_a_family_of_ours_is_an_outline_where_transformers_is_to_run_it() -> None:
    config = BERT | {"intermediate_size": 8}
    assert describe(config, "config.json", "auto").is_described
    assert not describe(config, "config.json", "transformers").is_described
    falcon = {"model_type": "falcon", "new_decoder_architecture": True, "num_kv_heads": 1, **BERT}
    outline = describe(falcon | {"model_type": "falcon"}, "config.json", "transformers")
    assert (outline.num_kv_heads, outline.max_position) == (1, 2048)  # by what only the family knows


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"position_embedding_type": "relative_key"}, "positions of type 'relative_key'"),
        ({"is_decoder": True}, "is a bert that decodes"),
        ({"hidden_act": "relu"}, "has the activation 'relu'"),
        ({"hidden_act": "silu"}, "has the activation 'silu'"),
    ],
)
def test_variants_of_bert_that_would_be_wrong_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        bert(**changes)


def test_every_row_leads_to_a_family() -> None:
    for row in ROWS:
        assert all(isinstance(family_of(name), Family) for name in row.model_types)
    assert len(list(FAMILIES)) == sum(len(row.model_types) for row in ROWS), "a name stands in two rows"
    assert len(GGUF_ARCHITECTURES) == sum(len(row.gguf) for row in ROWS), "an architecture stands in two rows"


def test_a_gguf_of_another_architecture_is_refused() -> None:
    with pytest.raises(CheckpointError, match="architecture 'mamba'; of GGUF quire runs llama, qwen2"):
        describe_gguf({"model_type": "mamba"}, "model.gguf")
    with pytest.raises(CheckpointError, match="architecture 'opt'; of GGUF quire runs llama"):
        describe_gguf({"model_type": "opt"}, "model.gguf")
