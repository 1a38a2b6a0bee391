"""Quantized folders load and run as the dense model that they stand for, on torch and on the native core."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from quire.config.holding import Holding
from quire.config.memory import weights_on_device
from quire.config.parallel import ParallelConfig
from quire.layers.policy import WeightPolicy
from quire.layers.quant.dense import DenseMethod
from quire.layers.quant.matrix_buffers import MatrixBuffers
from quire.layers.quant.packed import PackedMethod
from quire.layers.quant.quantized import QuantizedMethod, QuantizedWeight
from quire.models.build import build_model
from quire.models.language_model import LanguageModel
from quire.models.load import load_layer_by_layer, load_weights
from quire.models.loading.checkpoint import Checkpoint, open_checkpoint
from quire.models.loading.header import read_model_facts
from quire.ops.cpu import machine as cpu_machine
from quire.ops.cpu.packing import Packing
from quire.ops.reference.dequantize_matrix import dequantize_matrix
from quire.spec.quantization import online_schemes
from tests.models.quantized_folders import WEIGHTS_ALONE, WITH_ACTIVATIONS, Format, gptq, write_folder
from tests.models.running import logits_of
from tests.parity.tiny import make_tiny

CPU = torch.device("cpu")
IDS = [5, 17, 3, 80, 41, 2, 66]
ALL = WEIGHTS_ALONE | WITH_ACTIVATIONS


def load(path: Path, method: object = None, **changes: object) -> LanguageModel:
    checkpoint = open_checkpoint(path)
    if method is None:
        method = QuantizedMethod(checkpoint.schemes, torch.float32, **changes)  # type: ignore[arg-type]
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, CPU, method))  # type: ignore[arg-type]
    load_weights(model, checkpoint)
    return model


def core_method(checkpoint: Checkpoint, *, keep: bool = True) -> PackedMethod:
    machine = cpu_machine.machine()
    if machine is None:
        pytest.skip("the native core is not installed")
    return PackedMethod(Packing(machine), keep=keep, schemes=checkpoint.schemes)


def dense_logits(path: Path) -> Tensor:
    return logits_of(load(path / "dense", DenseMethod(torch.float32)), IDS)


def distance(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).norm() / expected.norm())


@pytest.mark.parametrize("name", WEIGHTS_ALONE)
def test_a_quantized_folder_is_the_dense_model_it_stands_for(tmp_path: Path, name: str) -> None:
    path = write_folder(tmp_path, WEIGHTS_ALONE[name])
    expected = dense_logits(path)
    torch.testing.assert_close(logits_of(load(path), IDS), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits_of(load(path, expand=True), IDS), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", WITH_ACTIVATIONS)
def test_weights_of_formats_that_quantize_activations(tmp_path: Path, name: str) -> None:
    path = write_folder(tmp_path, WITH_ACTIVATIONS[name])
    expected = dense_logits(path)
    torch.testing.assert_close(logits_of(load(path, expand=True), IDS), expected, rtol=1e-4, atol=1e-4)
    limit = {"fp8 e5m2": 0.2, "fp8 static": 0.2}.get(name, 0.1 if name.startswith("fp8") else 0.03)
    assert 0 < distance(logits_of(load(path), IDS), expected) < limit


@pytest.mark.parametrize("name", ALL)
def test_the_native_core_runs_it(tmp_path: Path, name: str) -> None:
    path = write_folder(tmp_path, ALL[name])
    checkpoint = open_checkpoint(path)
    expected = dense_logits(path)
    exact = logits_of(load(path, core_method(checkpoint, keep=False)), IDS)
    assert distance(exact, expected) < 1e-3
    assert distance(logits_of(load(path, core_method(checkpoint)), IDS), expected) < 0.02


@pytest.mark.parametrize("name", ALL)
def test_it_takes_what_is_planned(tmp_path: Path, name: str) -> None:
    from tests.models.test_build import held_bytes

    path = write_folder(tmp_path, ALL[name])
    checkpoint, facts = open_checkpoint(path), read_model_facts(str(path))
    held = held_bytes(load(path))
    planned = weights_on_device(facts, Holding("float32", keep_packed=True), ParallelConfig())
    assert planned == pytest.approx(held, rel=0.02)
    core = held_bytes(load(path, core_method(checkpoint)))
    assert weights_on_device(facts, Holding("float32", True, True), ParallelConfig()) == pytest.approx(core, rel=0.01)


def test_the_rest_of_a_checkpoint_stays_plain(tmp_path: Path) -> None:
    path = write_folder(tmp_path, WEIGHTS_ALONE["awq with plain modules"])
    model = load(path)
    weights = [part for part in model.modules() if isinstance(part, QuantizedWeight)]
    kinds = [[type(run).__name__ for run in weight._runs] for weight in weights]
    assert kinds[:4] == [
        ["MatrixBuffers", "PlainRows"],  # q and k, v
        ["MatrixBuffers"],
        ["MatrixBuffers", "PlainRows"],  # gate, up
        ["MatrixBuffers"],
    ]


def test_parts_in_orders_of_their_own_stay_apart(tmp_path: Path) -> None:
    path = write_folder(tmp_path, WEIGHTS_ALONE["gptq act-order"])
    first = next(part for part in load(path).modules() if isinstance(part, QuantizedWeight))
    assert [run.count for run in first._runs] == [128, 64, 64]
    assert all(isinstance(run, MatrixBuffers) and run.order is not None for run in first._runs)


def test_layers_load_in_the_background(tmp_path: Path) -> None:
    path = write_folder(tmp_path, gptq())
    checkpoint = open_checkpoint(path)
    method = QuantizedMethod(checkpoint.schemes, torch.float32)
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, CPU, method))
    assert load_layer_by_layer(model, checkpoint)()
    torch.testing.assert_close(logits_of(model, IDS), dense_logits(path), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["gptq act-order", "awq with plain modules", "fp8 static"])
def test_layers_in_host_memory(tmp_path: Path, name: str) -> None:
    path = write_folder(tmp_path, ALL[name])
    checkpoint = open_checkpoint(path)
    method = QuantizedMethod(checkpoint.schemes, torch.float32)
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, CPU, method, frozenset({0, 1})))
    load_weights(model, checkpoint)
    assert torch.equal(logits_of(model, IDS), logits_of(load(path), IDS))


@pytest.mark.parametrize(("kind", "limit"), [("fp8", 0.1), ("int8", 0.03)])
def test_plain_weights_are_quantized_as_they_are_loaded(tmp_path: Path, kind: str, limit: float) -> None:
    path = write_folder(tmp_path, None)
    schemes = online_schemes(open_checkpoint(path).spec, kind)  # type: ignore[arg-type]
    model = load(path, QuantizedMethod(schemes, torch.float32))
    quantized = [part for part in model.modules() if isinstance(part, MatrixBuffers)]
    assert len(quantized) == 2 * 4  # q, k and v; out; gate and up; down
    assert 0 < distance(logits_of(model, IDS), dense_logits(path)) < limit


@pytest.mark.parametrize("name", ["cohere", "gpt_neox"])
def test_plain_weights_whose_rows_a_file_has_in_another_order(tmp_path: Path, name: str) -> None:
    """They come in quire's: in codes they must not be moved again."""
    make_tiny(name, tmp_path)
    schemes = online_schemes(open_checkpoint(tmp_path).spec, "int8")
    found = logits_of(load(tmp_path, QuantizedMethod(schemes, torch.float32)), IDS)
    expected = logits_of(load(tmp_path, DenseMethod(torch.float32)), IDS)
    assert 0 < distance(found, expected) < 0.03


def test_names_without_their_prefix(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    path = write_folder(tmp_path, gptq())
    tensors = load_file(path / "model.safetensors")
    save_file({name.removeprefix("model."): each for name, each in tensors.items()}, path / "model.safetensors")
    torch.testing.assert_close(logits_of(load(path), IDS), dense_logits(path), rtol=1e-4, atol=1e-4)


def test_biases_of_zeros_that_gptqs_tools_write_are_left_out(tmp_path: Path) -> None:
    form: Format = replace(gptq(), extra={"model.layers.0.self_attn.o_proj.bias": torch.zeros(128)})
    path = write_folder(tmp_path, form)
    torch.testing.assert_close(logits_of(load(path), IDS), dense_logits(path), rtol=1e-4, atol=1e-4)


def test_matrices_mean_what_was_written(tmp_path: Path) -> None:
    path = write_folder(tmp_path, WEIGHTS_ALONE["gptq act-order asymmetric"])
    run = next(part for part in load(path).modules() if isinstance(part, MatrixBuffers))
    expected = open_checkpoint(path / "dense").stored("model.layers.0.self_attn.q_proj.weight").data
    torch.testing.assert_close(dequantize_matrix(run.matrix()), expected)
    assert json.loads((path / "config.json").read_text())["quantization_config"]["desc_act"]


@pytest.mark.parametrize("name", ["cohere", "gpt_neox"])
def test_rows_in_an_order_of_their_own_are_ordered_once(name: str, tmp_path: Path) -> None:
    """Where weights are quantized as they are loaded, files have brought them in quire's order already."""
    path = make_tiny(name, tmp_path).path
    expected = logits_of(load(path, DenseMethod(torch.float32)), IDS)
    schemes = online_schemes(open_checkpoint(path).spec, "int8")
    assert distance(logits_of(load(path, QuantizedMethod(schemes, torch.float32)), IDS), expected) < 0.1
