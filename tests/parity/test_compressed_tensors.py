"""Folders that compressed-tensors itself writes hold the weights that it reads back."""

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from quire.layers.policy import WeightPolicy
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.build import build_model
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_checkpoint
from tests.models.running import logits_of

compressed_tensors = pytest.importorskip("compressed_tensors", reason="pip install compressed-tensors")

PRESETS = ["W8A16", "W4A16", "W4A16_ASYM", "W8A8", "FP8", "FP8_DYNAMIC", "FP8_BLOCK"]
IDS = [3, 14, 15, 92, 65]


def write(folder: Path, preset: str) -> Any:
    """Write a tiny model by round-to-nearest, and return what the library makes of it again."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams

    torch.manual_seed(0)
    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 97}
    model = LlamaForCausalLM(LlamaConfig(**sizes, num_attention_heads=4, num_key_value_heads=4))
    for parameter in model.parameters():
        if parameter.ndim == 2:
            torch.nn.init.normal_(parameter, std=0.1)
    groups = {"group_0": preset_name_to_scheme(preset, ["Linear"])}
    apply_quantization_config(model, QuantizationConfig(config_groups=groups, ignore=["lm_head"]))
    for module in model.modules():
        scheme = getattr(module, "quantization_scheme", None)
        if scheme is None:
            continue
        args, weight = scheme.weights, module.weight.data
        shape = module.weight_scale.shape
        grid = weight.reshape(1, -1) if args.strategy == "tensor" else weight
        if args.strategy == "block":
            high, wide = args.block_structure
            blocks = weight.reshape(weight.shape[0] // high, high, weight.shape[1] // wide, wide)
            low, top = blocks.amin((1, 3)), blocks.amax((1, 3))
        else:
            parts = grid.reshape(grid.shape[0], -1, args.group_size or grid.shape[1])
            low, top = parts.amin(-1), parts.amax(-1)
        scale, zero = calculate_qparams(low, top, args)
        module.weight_scale.data = scale.reshape(shape).to(module.weight_scale.dtype)
        if getattr(module, "weight_zero_point", None) is not None:
            module.weight_zero_point.data = zero.reshape(shape).to(module.weight_zero_point.dtype)
        if getattr(module, "input_scale", None) is not None:
            module.input_scale.data.fill_(0.03)
    compressor = ModelCompressor.from_pretrained_model(model)
    assert compressor is not None
    compressor.compress_model(model)
    model.save_pretrained(folder)
    compressor.update_config(str(folder))
    compressor.decompress_model(model)
    return model


@pytest.mark.parametrize("preset", PRESETS)
def test_a_folder_of_the_librarys_own(tmp_path: Path, preset: str) -> None:
    oracle = write(tmp_path, preset)
    weights = {name: each for name, each in oracle.state_dict().items() if name.endswith("_proj.weight")}
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.schemes.keys() == {name.removesuffix(".weight") for name in weights}
    method = QuantizedMethod(checkpoint.schemes, torch.float32, expand=True)
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, torch.device("cpu"), method))
    load_weights(model, checkpoint)
    plain = LlamaForCausalLM(oracle.config)
    plain.load_state_dict({name: oracle.state_dict()[name] for name in plain.state_dict()})
    with torch.no_grad():
        expected = plain(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(logits_of(model, IDS), expected, rtol=1e-3, atol=1e-3)
