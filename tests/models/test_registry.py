"""Families by name; an encoder is not built as a decoder, and what would be computed wrongly is not built at all."""

from typing import Any

import pytest
import torch

from quire.core.errors import CheckpointError
from quire.layers.weights import WeightPolicy
from quire.models.loading.hf_config import HFShape, read_hf_config
from quire.models.registry import build_encoder, build_model

POLICY = WeightPolicy(torch.float32, torch.device("cpu"))


def bert(**changes: Any) -> HFShape:
    config = {"model_type": "bert", "hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 9}
    return read_hf_config(config | {"intermediate_size": 8} | changes, "config.json")


def test_an_encoder_does_not_generate() -> None:
    with pytest.raises(CheckpointError, match="is of type 'bert', an encoder: it embeds texts and generates none"):
        build_model(bert(), POLICY)


def test_an_unknown_family_is_named() -> None:
    with pytest.raises(CheckpointError, match="is of type 'mamba'; quire runs llama"):
        build_model(bert(model_type="mamba", max_position_embeddings=8), POLICY)


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
        build_encoder(bert(**changes), POLICY)
