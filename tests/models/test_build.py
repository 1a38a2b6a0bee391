"""Modules of every family take exactly the tensors of their spec, and hold as many bytes as are planned for."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoConfig

from quire.config.holding import Holding
from quire.config.memory import weights_on_device
from quire.config.parallel import ParallelConfig
from quire.layers.policy import WeightPolicy
from quire.layers.quant.base import LinearMethod
from quire.layers.quant.dense import DenseMethod
from quire.layers.quant.gguf import GgufMethod
from quire.layers.quant.packed import PackedMethod, PackedWeight
from quire.layers.quant.packed_up import PackedUpWeight
from quire.layers.rope import Rope
from quire.models.build import build_model
from quire.models.load import expected_tensors, load_weights
from quire.models.loading.checkpoint import open_checkpoint
from quire.models.loading.header import read_model_facts
from quire.models.registry import FAMILIES, describe
from quire.ops.cpu import machine as cpu_machine
from quire.ops.cpu.packing import Packing
from quire.spec.model import ModelSpec
from tests.models.loading.converted import MODELS, tiny_model, write_gguf
from tests.parity.tiny import CASES, SHAPE, make_tiny
from tests.parity.tiny_encoders import ENCODERS, make_encoder

CPU = torch.device("cpu")
CLASSIFIERS = {
    "bert": "BertForSequenceClassification",
    "roberta": "RobertaForSequenceClassification",
    "mpnet": "MPNetForSequenceClassification",
    "modernbert": "ModernBertForSequenceClassification",
    "qwen3": "Qwen3ForSequenceClassification",
}


def config_of(fields: dict[str, Any], architectures: list[str] | None = None) -> dict[str, Any]:
    given = {key: value for key, value in fields.items() if key not in ("masked_lm", "first_names")}
    config: Any = AutoConfig.for_model(given.pop("model_type"), **{**SHAPE, "num_key_value_heads": 4, **given})
    config.architectures = architectures
    values: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    return values


def specs() -> dict[str, Callable[[], ModelSpec]]:
    found: dict[str, dict[str, Any]] = {**CASES, **ENCODERS, "smollm2": {"model_type": "llama"}}
    cases: dict[str, Callable[[], ModelSpec]] = {
        name: lambda fields=fields: describe(config_of(fields), "config.json")  # type: ignore[misc]
        for name, fields in found.items()
    }
    for name, architecture in CLASSIFIERS.items():
        fields = found[name]
        cases[architecture] = lambda fields=fields, kind=architecture: describe(  # type: ignore[misc]
            config_of(fields, [kind]), "config.json"
        )
    return cases


SPECS = specs()


@pytest.mark.parametrize("name", SPECS)
def test_modules_take_the_tensors_of_their_spec(name: str) -> None:
    spec = SPECS[name]()
    model = build_model(spec, WeightPolicy(torch.float32, CPU))
    expected = {tensor.name: tensor.shape for tensor in spec.tensors()}
    assert {tensor.name: tensor.shape for tensor in expected_tensors(model).values()} == expected
    assert len(expected) == len(list(spec.tensors())), "two tensors share a name"


def test_every_family_is_here() -> None:
    described = {fields["model_type"] for fields in (*CASES.values(), *ENCODERS.values())}
    described.add("whisper")  # tests/parity/test_whisper.py
    described |= {"clip_text_model", "siglip_text_model"}  # tests/multimodal/test_joint_embeddings.py
    described.add("qwen3_vl_moe_text")  # tests/multimodal/test_qwen3_vl_moe.py
    again = {"smollm2": "llama", "gemma3": "gemma3_text", "llama4": "llama4_text", "camembert": "roberta"}
    assert {again.get(name, name) for name in FAMILIES} == described


def held_bytes(model: nn.Module) -> int:
    """Bytes of weights in memory, wherever a method keeps them; angles are no weights."""
    angles = {id(buffer) for part in model.modules() if isinstance(part, Rope) for buffer in part.buffers()}
    held = {id(buffer): buffer.nbytes for buffer in model.buffers() if id(buffer) not in angles}
    packed = [part.packed for part in model.modules() if isinstance(part, PackedWeight)]
    owned = [matrix.data for weight in packed for matrix in weight._matrices]
    ups = [part.values for part in model.modules() if isinstance(part, PackedUpWeight)]
    owned += [heads.stack.data for up in ups for heads in (up.keys, up.values)]
    return sum(held.values()) + sum(data.nbytes for data in owned)


def assert_planned(path: Path, method: LinearMethod, holding: Holding) -> None:
    checkpoint = open_checkpoint(path)
    dtype: torch.dtype = getattr(torch, holding.dtype)
    model = build_model(checkpoint.spec, WeightPolicy(dtype, CPU, method))
    load_weights(model, checkpoint)
    planned = weights_on_device(read_model_facts(str(path)), holding, ParallelConfig())
    assert planned == pytest.approx(held_bytes(model), rel=0.005)


def packed_method(*, keep: bool) -> PackedMethod:
    machine = cpu_machine.machine()
    if machine is None:
        pytest.skip("the native core is not installed")
    return PackedMethod(Packing(machine), keep=keep)


FAMILIES_HELD = (
    "llama",
    "llama-mqa-tied-biased",
    "gemma3",
    "gpt2",
    "falcon-new",
    "opt-350m",
    "cohere-normed",
    "stablelm-parallel",
    "deepseek_v2",
)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", FAMILIES_HELD)
def test_plain_weights_take_what_is_planned(tmp_path: Path, name: str, dtype: str) -> None:
    make_tiny(name, tmp_path)
    assert_planned(tmp_path, DenseMethod(getattr(torch, dtype)), Holding(dtype))


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("name", FAMILIES_HELD)
def test_plain_weights_in_the_native_core_take_what_is_planned(tmp_path: Path, name: str, keep: bool) -> None:
    make_tiny(name, tmp_path)
    assert_planned(tmp_path, packed_method(keep=keep), Holding("float32", keep_packed=keep, cpu_core=True))


@pytest.mark.parametrize("name", ["bert", "mpnet", "modernbert", "nomic_bert"])
def test_encoders_take_what_is_planned(tmp_path: Path, name: str) -> None:
    make_encoder(name, tmp_path)
    assert_planned(tmp_path, DenseMethod(torch.float32), Holding("float32"))


@pytest.mark.parametrize("kind", ["Q4_0", "Q5_1", "Q8_0", "F16"])
@pytest.mark.parametrize("name", MODELS)
def test_packed_weights_take_what_is_planned(tmp_path: Path, name: str, kind: str) -> None:
    path = write_gguf(tmp_path / "model.gguf", name, tiny_model(name), kind)
    assert_planned(path, GgufMethod(torch.float32), Holding("float32", keep_packed=True))
    assert_planned(path, DenseMethod(torch.bfloat16), Holding("bfloat16"))
    assert_planned(path, packed_method(keep=True), Holding("float32", keep_packed=True, cpu_core=True))
