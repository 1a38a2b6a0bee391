"""Tiny models of every family through GGUF and back: the same names, the same weights, the same logits."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from quire.layers.experts import Experts
from quire.layers.policy import WeightPolicy
from quire.layers.quant.base import LinearMethod
from quire.layers.quant.dense import DenseMethod
from quire.layers.quant.gguf import GgufMethod
from quire.layers.weights import dense
from quire.models.build import build_model
from quire.models.load import load_weights
from quire.models.loading.checkpoint import Checkpoint, open_checkpoint
from quire.models.registry import GGUF_ARCHITECTURES
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.model import ModelSpec
from tests.models.loading.converted import MODELS, rounded, separated, stacked, tiny_model, write_gguf
from tests.models.running import hidden_states, logits_of
from tests.rarely import rarely

METHODS: dict[str, type[LinearMethod]] = {"expanded": DenseMethod, "kept": GgufMethod}
IDS = [place * 7 % 48 for place in range(40)]  # more than any window


TRANSPOSED = ("k_b",)
"""Roles of matrices that files hold transposed, plain in these tests."""


def _split(values: dict[str, Tensor], spec: ModelSpec) -> dict[str, Tensor]:
    """The tensors of a folder as a file has them: quire holds the keys of latent attention, then the values."""
    split = {tensor.name: tensor.shape[0] for tensor in spec.tensors() if tensor.role in ("k_b", "v_b")}
    for name, rows in split.items():
        whole = name.replace(".k_b_", ".kv_b_").replace(".v_b_", ".kv_b_")
        values[name] = values[whole][:rows] if ".k_b_" in name else values[whole][-rows:]
    return {name: each for name, each in values.items() if not (split and ".kv_b_proj." in name)}


def values_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    return {name: dense(checkpoint.stored(name), torch.float32) for name in checkpoint.names()}


def opened(tmp_path: Path, name: str, kind: str = "F32") -> Checkpoint:
    return open_checkpoint(write_gguf(tmp_path / "model.gguf", name, tiny_model(name), kind))


def test_every_architecture_is_here() -> None:
    assert {original.architecture for original in MODELS.values()} == set(GGUF_ARCHITECTURES)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("kind", rarely(["F32", "F16", "BF16", "Q8_0", "Q5_1"], every=3))
def test_weights_return(tmp_path: Path, name: str, kind: str) -> None:
    """As they come from the safetensors files that the model was converted from, of which parity tests tell."""
    tiny_model(name).save_pretrained(tmp_path / "original")
    original = open_checkpoint(tmp_path / "original")
    checkpoint = opened(tmp_path, name, kind)
    expected = separated(stacked(_split(values_of(original), checkpoint.spec)))
    found = values_of(checkpoint)
    assert set(found) == set(expected)
    matrices = {tensor.name for tensor in checkpoint.spec.tensors() if tensor.use == "matrix"}
    for tensor, stack in expected.items():
        values = stack.flatten(0, 1) if stack.dim() > 2 else stack
        assert torch.equal(found[tensor], rounded(values, kind) if tensor in matrices else values), tensor


@pytest.mark.parametrize("name", MODELS)
def test_matrices_stay_packed(tmp_path: Path, name: str) -> None:
    checkpoint = opened(tmp_path, name, "Q4_0")
    for tensor in checkpoint.spec.tensors():
        stored = checkpoint.stored(tensor.name)
        packed = tensor.use == "matrix" and tensor.role not in TRANSPOSED
        assert stored.is_quantized == packed
        assert stored.kind == ("Q4_0" if packed else "float32")
        if packed:
            assert tuple(stored.data.shape) == (stored.shape[0], stored.shape[1] // 32 * 18)


@torch.no_grad()
def expected_of(model: Any, *, is_encoder: bool) -> Tensor:
    output = model(torch.tensor([IDS]))
    result: Tensor = output.last_hidden_state if is_encoder else output.logits
    return result[0]


@pytest.mark.parametrize("held", METHODS)
@pytest.mark.parametrize("kind", rarely(["Q4_0", "F32", "Q8_0"], every=3))
@pytest.mark.parametrize("name", MODELS)
def test_the_file_computes_what_the_original_does(tmp_path: Path, name: str, kind: str, held: str) -> None:
    checkpoint = opened(tmp_path, name, kind)
    policy = WeightPolicy(torch.float32, torch.device("cpu"), METHODS[held](torch.float32))  # type: ignore[call-arg]
    model = build_model(checkpoint.spec, policy)
    load_weights(model, checkpoint)
    is_encoder = MODELS[name].is_encoder
    expected = expected_of(tiny_model(name, kind), is_encoder=is_encoder)
    found = hidden_states(model, IDS) if is_encoder else logits_of(model, IDS)
    assert expected.std() > 0.01, "too alike to tell anything"
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_the_config_says_what_the_original_said(tmp_path: Path, name: str) -> None:
    original = tiny_model(name).config
    config = opened(tmp_path, name).config()
    assert config["model_type"] == original.model_type
    for field in ("bos_token_id", "eos_token_id", "max_position_embeddings", "vocab_size"):
        assert config.get(field) == getattr(original, field, None)
    if not MODELS[name].is_encoder:
        assert config["tie_word_embeddings"] == original.tie_word_embeddings


def test_experts_in_mxfp4(tmp_path: Path) -> None:
    """Those of gpt-oss as its files have them, packed as they are stored."""
    checkpoint = opened(tmp_path, "gpt-oss", "MXFP4")
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, torch.device("cpu"), GgufMethod(torch.float32)))
    load_weights(model, checkpoint)
    stacks = [weight for part in model.modules() if isinstance(part, Experts) for weight in (part._up, part._down)]
    codes = [stack.codes for stack in (weight.stack() for weight in stacks) if isinstance(stack, QuantizedMatrix)]
    assert codes == ["fp4"] * len(stacks)
    expected = expected_of(tiny_model("gpt-oss", "MXFP4"), is_encoder=False)
    torch.testing.assert_close(logits_of(model, IDS), expected, atol=1e-4, rtol=1e-4)
