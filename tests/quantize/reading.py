"""Reading back what was written, as quire runs it."""

import json
from pathlib import Path

import torch
from torch import Tensor

from quire.layers.policy import WeightPolicy
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.build import build_model
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_checkpoint
from tests.models.running import logits_of

IDS = [5, 17, 3, 80, 41, 2, 66, 120, 9]


def quire_logits(path: Path, *, expand: bool = False) -> Tensor:
    """[tokens, vocabulary] of IDS, in float32."""
    checkpoint = open_checkpoint(path)
    method = QuantizedMethod(checkpoint.schemes, torch.float32, expand=expand)
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, torch.device("cpu"), method))
    load_weights(model, checkpoint)
    return logits_of(model, IDS)


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


def expand_with_their_library(out: Path) -> dict[str, torch.Tensor]:
    """The folder's weights as compressed-tensors expands them, module by module."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from safetensors.torch import load_file

    read = QuantizationConfig.model_validate(json.loads((out / "config.json").read_text())["quantization_config"])
    (scheme,) = read.config_groups.values()
    compressor = BaseCompressor.get_value_from_registry(read.format)
    modules: dict[str, dict[str, torch.Tensor]] = {}
    for file in out.glob("*.safetensors"):
        for name, tensor in load_file(file).items():
            module, _, part = name.rpartition(".")
            modules.setdefault(module, {})[part] = tensor.float() if part == "weight_scale" else tensor
    expanded = {}
    for module, parts in modules.items():
        held = {name: tensor for name, tensor in parts.items() if not name.startswith("weight_")}
        if "weight_scale" in parts:
            held["weight"] = compressor.decompress(parts, scheme)["weight"]
        expanded |= {f"{module}.{name}": tensor.float() for name, tensor in held.items()}
    expanded.setdefault("lm_head.weight", expanded["model.embed_tokens.weight"])  # tied
    return expanded
