"""Experts in the formats of Linear: quantized as they are loaded, and stacks of which not all parts are alike."""

from pathlib import Path
from typing import Literal

import pytest
import torch

from quire.layers.experts import Experts
from quire.layers.policy import WeightPolicy
from quire.layers.quant.base import LinearMethod
from quire.layers.quant.dense import DenseMethod
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.build import build_model
from quire.models.language_model import LanguageModel
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_checkpoint
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.spec.quantization import online_schemes
from tests.models.running import logits_of
from tests.parity.tiny import make_tiny

CPU = torch.device("cpu")
IDS = [5, 17, 3, 80, 41, 2, 66]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny("qwen2_moe", tmp_path_factory.mktemp("experts")).path


def loaded(folder: Path, method: LinearMethod) -> LanguageModel:
    checkpoint = open_checkpoint(folder)
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, CPU, method))
    load_weights(model, checkpoint)
    return model


def stacks(model: LanguageModel) -> list[object]:
    experts = [part for part in model.modules() if isinstance(part, Experts)]
    assert len(experts) == 3, "one layer of four has none"
    return [weight.stack() for each in experts for weight in (each._up, each._down)]


@pytest.mark.parametrize("quantization", ["fp8", "int8"])
def test_quantized_as_they_are_loaded(folder: Path, quantization: Literal["fp8", "int8"]) -> None:
    schemes = online_schemes(open_checkpoint(folder).spec, quantization)
    assert not [name for name in schemes if name.endswith((".mlp.gate", "shared_expert_gate"))], "routers stay plain"
    model = loaded(folder, QuantizedMethod(schemes, torch.float32))
    assert all(isinstance(stack, QuantizedMatrix) for stack in stacks(model))
    expected = logits_of(loaded(folder, DenseMethod(torch.float32)), IDS)
    found = logits_of(model, IDS)
    assert (found - expected).norm() / expected.norm() < 0.2
    expanded = logits_of(loaded(folder, QuantizedMethod(schemes, torch.float32, expand=True)), IDS)
    assert (found - expanded).norm() / expected.norm() < 0.1


def test_experts_that_are_not_all_quantized_are_one_plain_stack(folder: Path) -> None:
    schemes = online_schemes(open_checkpoint(folder).spec, "int8")
    some = {name: scheme for name, scheme in schemes.items() if ".experts.2." not in name}
    model = loaded(folder, QuantizedMethod(some, torch.float32))
    assert all(isinstance(stack, torch.Tensor) for stack in stacks(model))
    expected = logits_of(loaded(folder, DenseMethod(torch.float32)), IDS)
    assert (logits_of(model, IDS) - expected).norm() / expected.norm() < 0.2


@pytest.mark.parametrize("name", ["gpt_oss", "granitemoe"])
def test_stacks_in_an_order_of_their_own_are_quantized_too(name: str, tmp_path: Path) -> None:
    folder = make_tiny(name, tmp_path).path
    schemes = online_schemes(open_checkpoint(folder).spec, "int8")
    expected = logits_of(loaded(folder, DenseMethod(torch.float32)), IDS)
    found = logits_of(loaded(folder, QuantizedMethod(schemes, torch.float32)), IDS)
    assert (found - expected).norm() / expected.norm() < 0.1
