"""Angles of positions with several axes (M-RoPE), against the code of Qwen2-VL."""

import torch
from transformers.models.qwen2_vl.configuration_qwen2_vl import Qwen2VLTextConfig
from transformers.models.qwen2_vl.modeling_qwen2_vl import Qwen2VLRotaryEmbedding

from quire.layers.rope import Rope
from quire.spec.rope import read_rope

_CONFIG = {
    "hidden_size": 64,
    "num_attention_heads": 2,
    "max_position_embeddings": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10_000.0, "mrope_section": [4, 6, 6]},
}


def test_three_axes() -> None:
    generator = torch.Generator().manual_seed(0)
    positions = torch.randint(0, 100, (3, 7), generator=generator)
    oracle = Qwen2VLRotaryEmbedding(Qwen2VLTextConfig(**_CONFIG))
    rope = Rope(read_rope(_CONFIG, 32), torch.device("cpu"))
    expected = oracle(torch.zeros(1), positions.unsqueeze(1))
    for found, both_halves in zip(rope(positions, torch.full((7,), 7)), expected, strict=True):
        torch.testing.assert_close(found, both_halves[0, :, :16], atol=1e-5, rtol=0)


def test_equal_axes_are_one() -> None:
    rope = Rope(read_rope(_CONFIG, 32), torch.device("cpu"))
    positions, lengths = torch.arange(9), torch.full((9,), 9)
    for found, expected in zip(rope(positions.expand(3, 9), lengths), rope(positions, lengths), strict=True):
        torch.testing.assert_close(found, expected)
