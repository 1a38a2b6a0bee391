"""Quantized tensors that fit their header and are damaged all the same are refused by name, in one line."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.layers.policy import WeightPolicy
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.build import build_model
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_checkpoint
from tests.models.quantized_folders import Format, fp8, gptq, int8, nf4, packed, write_folder

DOWN = "model.layers.1.mlp.down_proj"
STATE = f"{DOWN}.weight.quant_state.bitsandbytes__nf4"
Change = Callable[[dict[str, Tensor]], object]


def put(name: str, tensor: Tensor) -> Change:
    return lambda tensors: tensors.update({f"{DOWN}.{name}": tensor})


def without(name: str) -> Change:
    return lambda tensors: tensors.pop(f"{DOWN}.{name}")


def cut(name: str) -> Change:
    return lambda tensors: tensors.update({f"{DOWN}.{name}": tensors[f"{DOWN}.{name}"][:-1].clone()})


def text(value: str) -> Tensor:
    return torch.tensor(list(value.encode()), dtype=torch.uint8)


def load(path: Path) -> None:
    checkpoint = open_checkpoint(path)
    method = QuantizedMethod(checkpoint.schemes, torch.float32)
    load_weights(build_model(checkpoint.spec, WeightPolicy(torch.float32, torch.device("cpu"), method)), checkpoint)


CASES: dict[str, tuple[Format, Change, str]] = {
    "groups of uneven sizes": (
        gptq(act_order=True),
        put("g_idx", torch.zeros(192, dtype=torch.int32)),
        "g_idx does not",
    ),
    "a shape that is not the weight's": (packed(), put("weight_shape", torch.tensor([128, 100])), r"says \[128, 100\]"),
    "scales cut short": (int8(), cut("weight_scale"), r"has shape \[127, 1\].* asks for \[128, 1\]"),
    "no scales": (
        fp8(),
        without("weight_scale"),
        "lacks a tensor that its config asks for, .*down_proj.weight_scale alone",
    ),
    "no static scale": (fp8(static=True), without("input_scale"), "lacks a tensor .*down_proj.input_scale alone"),
    "codes of another type": (
        int8(),
        put("weight", torch.zeros(128, 192, dtype=torch.uint8)),
        "stored as uint8, and the",
    ),
    "nf4 without its state": (nf4(), put(STATE.removeprefix(f"{DOWN}."), text("{")), "holds no JSON object"),
    "nf4 of another shape": (
        nf4(),
        put(STATE.removeprefix(f"{DOWN}."), text('{"shape": [3, 3], "blocksize": 64}')),
        r"says shape \[3, 3\], but the weight holds 24576",
    ),
    "nf4 in blocks of nothing": (
        nf4(),
        put(STATE.removeprefix(f"{DOWN}."), text('{"shape": [128, 192], "blocksize": 0}')),
        "gives blocksize as 0",
    ),
    "nf4 with too few scales": (nf4(), cut("weight.absmax"), "absmax has 383 scales"),
    "nf4 with another table": (nf4(), put("weight.quant_map", torch.zeros(16)), "quant_map is not NF4's"),
    "nested scales without theirs": (nf4(nested=True), without("weight.nested_absmax"), "absmax is quantized, but"),
}


@pytest.mark.parametrize(("form", "change", "message"), CASES.values(), ids=CASES)
def test_it_is_refused(tmp_path: Path, form: Format, change: Change, message: str) -> None:
    path = write_folder(tmp_path, form)
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors")
    with pytest.raises(CheckpointError, match=message) as caught:
        load(path)
    assert "\n" not in str(caught.value)
