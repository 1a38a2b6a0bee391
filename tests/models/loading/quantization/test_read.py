"""What a quantization_config says of each Linear."""

from typing import Any

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.quantization.fields import SchemeOf
from quire.models.loading.quantization.read import read_quantization
from quire.spec.quantization import WeightScheme

GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128}
QUERY, DOWN, HEAD = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj", "lm_head"


def read(**fields: Any) -> SchemeOf:
    found = read_quantization({"quantization_config": fields}, "config.json")
    assert found is not None
    return found


@pytest.mark.parametrize("field", ["quantization_config", "compression_config"])
def test_where_it_is(field: str) -> None:
    assert read_quantization({field: GPTQ}, "config.json") is not None
    assert read_quantization({"text_config": {field: GPTQ}}, "config.json") is not None
    assert read_quantization({"model_type": "gemma3", "text_config": {}, field: GPTQ}, "config.json") is not None
    assert read_quantization({field: None}, "config.json") is None
    assert read_quantization({field: {}}, "config.json") is None
    with pytest.raises(CheckpointError, match="gives a format without a name"):
        read_quantization({field: {"bits": 4}}, "config.json")


def test_gptq() -> None:
    scheme_of = read(**GPTQ, dynamic={r"-:.*\.down_proj": {}})
    assert scheme_of(QUERY, True) == WeightScheme("gptq", "int4", 128, zeros_less_one=True)
    assert scheme_of(DOWN, True) is None
    assert scheme_of(HEAD, False) is None
    with_head = read(**GPTQ, lm_head=True, checkpoint_format="gptq_v2", sym=False, desc_act=True)
    assert with_head(HEAD, False) == WeightScheme("gptq", "int4", 128, has_zeros=True, act_order=True)
    with pytest.raises(CheckpointError, match="rules for single modules"):
        read(**GPTQ, dynamic={"+:.*down.*": {"bits": 8}})


def test_awq_by_either_tools_names() -> None:
    expected = WeightScheme("awq", "int4", 64, has_zeros=True)
    plain = ["mlp.down_proj"]
    scheme_of = read(quant_method="awq", bits=4, group_size=64, version="GEMM", modules_to_not_convert=plain)
    assert scheme_of(QUERY, True) == expected
    assert scheme_of(DOWN, True) is None
    assert read(quant_method="awq", w_bit=4, q_group_size=64)(QUERY, True) == expected


def test_fp8() -> None:
    scheme_of = read(quant_method="fp8", activation_scheme="static", ignored_layers=["model.layers.1"])
    assert scheme_of(QUERY, True) == WeightScheme("fp8", "fp8_e4m3", block_rows=None, activations="one scale")
    assert scheme_of(DOWN, True) is None
    blocks = read(quant_method="fp8", weight_block_size=[64, 128])(QUERY, True)
    assert blocks == WeightScheme("fp8", "fp8_e4m3", 128, 64, activations="a scale each group")
    with pytest.raises(CheckpointError, match="static activations with blocks"):
        read(quant_method="fp8", activation_scheme="static", weight_block_size=[64, 128])


def group(targets: list[str], inputs: dict[str, Any] | None = None, **weights: Any) -> dict[str, Any]:
    return {"targets": targets, "weights": weights, "input_activations": inputs}


def test_groups_of_compressed_tensors() -> None:
    dynamic = {"num_bits": 8, "type": "float", "strategy": "token", "dynamic": True}
    scheme_of = read(
        quant_method="compressed-tensors",
        format="mixed-precision",
        ignore=[HEAD, "re:.*layers.7.*"],
        config_groups={
            "all": group(["Linear"], dynamic, num_bits=8, type="float", strategy="channel")
            | {"format": "float-quantized"},
            "down": group(["re:.*down_proj"], num_bits=4, group_size=32, symmetric=False)
            | {"format": "pack-quantized"},
            "one": group([QUERY], num_bits=8, strategy="channel") | {"format": "int-quantized"},
        },
    )
    assert scheme_of("model.layers.0.mlp.up_proj", True) == WeightScheme(
        "fp8", "fp8_e4m3", activations="a scale each token"
    )
    assert scheme_of(DOWN, True) == WeightScheme("packed", "int4", 32, has_zeros=True)
    assert scheme_of(QUERY, True) == WeightScheme("int8", "int8")
    assert scheme_of(HEAD, False) is None
    assert scheme_of("model.layers.7.mlp.up_proj", True) is None


def test_strategies_of_compressed_tensors() -> None:
    def scheme(inputs: dict[str, Any] | None, **weights: Any) -> WeightScheme | None:
        groups = {"a": group(["Linear"], inputs, num_bits=8, type="float", **weights)}
        return read(quant_method="compressed-tensors", format="float-quantized", config_groups=groups)(QUERY, True)

    static = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}
    assert scheme(static, strategy="tensor") == WeightScheme(
        "fp8", "fp8_e4m3", block_rows=None, activations="one scale"
    )
    by_group = {"num_bits": 8, "type": "float", "strategy": "group", "group_size": 128, "dynamic": True}
    assert scheme(by_group, strategy="block", block_structure=[128, 128]) == WeightScheme(
        "fp8", "fp8_e4m3", 128, 128, activations="a scale each group"
    )


def test_bitsandbytes() -> None:
    fields = {"quant_method": "bitsandbytes", "llm_int8_skip_modules": ["lm_head", "down_proj"]}
    scheme_of = read(**fields, load_in_4bit=True, bnb_4bit_quant_type="nf4")
    assert scheme_of(QUERY, True) == WeightScheme("nf4", "nf4", 64)
    assert scheme_of(DOWN, True) is None
    assert read(**fields, load_in_8bit=True)(QUERY, True) == WeightScheme("llm_int8", "int8")
