"""Reading back what was written, as quire runs it."""

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
