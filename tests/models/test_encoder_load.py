"""Names of encoders' tensors, whoever saved them."""

import pytest

from quire.models.encoder_load import plain_name


@pytest.mark.parametrize(
    ("stored", "plain"),
    [
        ("embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight"),
        ("bert.embeddings.word_embeddings.weight", "embeddings.word_embeddings.weight"),
        ("roberta.encoder.layer.0.output.dense.bias", "encoder.layer.0.output.dense.bias"),
        ("bert.encoder.layer.3.output.LayerNorm.gamma", "encoder.layer.3.output.LayerNorm.weight"),
        ("bert.embeddings.LayerNorm.beta", "embeddings.LayerNorm.bias"),
        ("cls.predictions.bias", "cls.predictions.bias"),
    ],
)
def test_plain_names(stored: str, plain: str) -> None:
    assert plain_name(stored) == plain
