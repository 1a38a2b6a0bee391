"""What a config.json alone refuses."""

from typing import Any

import pytest

from quire.models.fallback.refused import problem_of


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quantization_config": {"quant_method": "gptq"}}, "quantized (quantization_config: gptq)"),
        ({"text_config": {"quantization_config": {}}}, "quantized (quantization_config: unknown)"),
        ({"is_encoder_decoder": True}, "an encoder and a decoder"),
        ({"add_cross_attention": True}, "another model's states"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "change with the length of a sequence (dynamic)"),
        ({"rope_parameters": {"full_attention": {"rope_type": "longrope"}}}, "length of a sequence (longrope)"),
        ({"text_config": {"rope_parameters": {"rope_type": "longrope"}}}, "length of a sequence (longrope)"),
        ({"model_type": "llama4_text"}, "the length of transformers' own cache"),
        ({"model_type": "phi3_v", "rope_scaling": {"type": "su"}}, "its code lies in the checkpoint"),
    ],
)
def test_refused(config: dict[str, Any], message: str) -> None:
    problem = problem_of(config)
    assert problem is not None
    assert message in problem


@pytest.mark.parametrize(
    "config",
    [
        {"model_type": "mixtral", "is_encoder_decoder": False, "quantization_config": None},
        {"rope_parameters": {"rope_type": "yarn", "factor": 2.0}},
    ],
)
def test_not_refused(config: dict[str, Any]) -> None:
    assert problem_of(config) is None
