"""transformers reads the fp8 folders of our tests as quire does."""

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

from quire.layers.policy import WeightPolicy
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.build import build_model
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_checkpoint
from tests.models.quantized_folders import fp8, write_folder
from tests.models.running import logits_of

IDS = [5, 17, 3, 80, 41]


def test_blocks(tmp_path: Path) -> None:
    path = write_folder(tmp_path, fp8((64, 64)))
    # without a GPU it expands the weights as it loads them
    oracle = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).float()
    assert oracle.model.layers[0].mlp.down_proj.weight.dtype == torch.float32
    checkpoint = open_checkpoint(path)
    method = QuantizedMethod(checkpoint.schemes, torch.float32, expand=True)
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, torch.device("cpu"), method))
    load_weights(model, checkpoint)
    with torch.no_grad():
        expected = oracle(torch.tensor([IDS])).logits[0]
    torch.testing.assert_close(logits_of(model, IDS), expected, rtol=1e-4, atol=1e-4)
