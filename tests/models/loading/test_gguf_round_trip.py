"""Tiny models of every family through GGUF and back: the same names, the same weights, the same logits."""

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import quants
from torch import Tensor

from quire.layers.weights import dense
from quire.models.loading.checkpoint import Checkpoint
from quire.models.loading.open_checkpoint import open_checkpoint
from tests.models.loading.converted import MODELS, config_class, model_class, tiny_model, weights, write_gguf


def rounded(name: str, hf_name: str, values: Tensor, kind: str) -> Tensor:
    """What quantizing leaves of a matrix; GPT-2's are quantized transposed."""
    if values.dim() == 1:
        return values
    turned = name == "gpt2" and hf_name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
    matrix = np.ascontiguousarray((values.t() if turned else values).numpy())
    number = gguf.GGMLQuantizationType[kind]
    back = torch.from_numpy(quants.dequantize(quants.quantize(matrix, number).view(np.uint8), number).copy())
    return back.t() if turned else back


def values_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    return {stored.name: dense(stored, torch.float32) for stored in checkpoint.iterate()}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q5_1"])
def test_weights_return(tmp_path: Path, name: str, kind: str) -> None:
    model = tiny_model(name)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "model.gguf", name, model, kind))
    found, original = values_of(checkpoint), weights(model)
    assert set(found) == set(original)
    for hf_name, values in original.items():
        assert torch.equal(found[hf_name], rounded(name, hf_name, values, kind)), hf_name


@pytest.mark.parametrize("name", MODELS)
def test_matrices_stay_packed(tmp_path: Path, name: str) -> None:
    checkpoint = open_checkpoint(write_gguf(tmp_path / "model.gguf", name, tiny_model(name), "Q4_0"))
    for stored in checkpoint.iterate():
        turned = stored.name.endswith((".c_attn.weight", ".c_proj.weight", ".c_fc.weight"))
        packed = len(stored.shape) == 2 and not turned
        assert stored.is_quantized == packed
        assert stored.kind == ("Q4_0" if packed else "float32")
        if packed:
            assert tuple(stored.data.shape) == (stored.shape[0], stored.shape[1] // 32 * 18)


def logits(model: Any) -> Tensor:
    tokens = torch.arange(40).view(1, -1) % 48  # longer than the windows
    with torch.no_grad():
        result: Tensor = model(tokens).logits
    return result


@pytest.mark.parametrize("name", MODELS)
def test_the_config_makes_the_same_model(tmp_path: Path, name: str) -> None:
    model = tiny_model(name)
    checkpoint = open_checkpoint(write_gguf(tmp_path / "model.gguf", name, model))
    config = checkpoint.config()
    family, _ = MODELS[name]
    assert config["architectures"] == [type(model).__name__]
    assert config["model_type"] == model.config.model_type
    again = model_class(family)(config_class(family)(**config)).eval()
    missing = again.load_state_dict(values_of(checkpoint), strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"lm_head.weight"}
    again.tie_weights()
    for field in ("bos_token_id", "eos_token_id", "tie_word_embeddings", "max_position_embeddings", "vocab_size"):
        assert getattr(again.config, field) == getattr(model.config, field)
    assert torch.equal(logits(again), logits(model))
