"""What makes keys and values of latents in the native core's layouts, from every form in which checkpoints have it."""

from typing import Any

import pytest
import torch
from torch import Tensor

from quire.layers.quant.packed_up import PackedUpWeight
from quire.layers.stored import StoredTensor
from quire.ops.cpu.packed_heads import PackedHeads
from quire.ops.cpu.packed_linear import PackedLinear
from quire.ops.cpu.packing import Packing
from quire.spec.layout import HeadParts
from quire.spec.matrix import MatrixSpec, Part
from quire.spec.quantization import WeightScheme
from tests.models.quantized_folders import fp8
from tests.ops.cpu.blocks import random_rows, values_of
from tests.ops.cpu.machines import VARIANTS, machine, needs_core

pytestmark = needs_core

HEADS, KEY, VALUE, LATENT = 3, 20, 24, 64
KEYS, VALUES = HEADS * KEY, HEADS * VALUE


def weight_of(packing: Packing, *, keep: bool, schemes: dict[str, WeightScheme] | None = None) -> PackedUpWeight:
    parts = (Part("k_b_proj", "k_b", KEYS), Part("v_b_proj", "v_b", VALUES))
    matrix = MatrixSpec(parts, LATENT, "rows", heads=HeadParts(HEADS, KEY, VALUE))
    return PackedUpWeight(matrix, packing, keep, schemes or {})


def give(weight: PackedUpWeight, tensors: dict[str, StoredTensor]) -> None:
    """In an order that is not that of the rows."""
    for expected in sorted(weight.expected(), key=lambda expected: expected.name, reverse=True):
        expected.take(tensors[expected.name])


def plain(name: str, values: Tensor) -> StoredTensor:
    return StoredTensor(name, str(values.dtype).removeprefix("torch."), tuple(values.shape), values)


def unpacked(packing: Packing, packed: PackedHeads) -> Tensor:
    """[heads, rows, columns]."""
    rows = PackedLinear(packing.machine, [packed.stack]).lookup(torch.arange(packed.stack.rows))
    return rows.unflatten(0, (packed.num_heads, -1))[:, : packed.size]


def assert_holds(packing: Packing, weight: PackedUpWeight, rows: Tensor, dtype: torch.dtype) -> None:
    rows = rows.to(dtype).float()
    keys, values = rows[:KEYS].view(HEADS, KEY, LATENT), rows[KEYS:].view(HEADS, VALUE, LATENT)
    assert torch.equal(unpacked(packing, weight.values.keys), keys.transpose(1, 2))
    assert torch.equal(unpacked(packing, weight.values.values), values)
    assert weight.values.keys.stack.form.kinds == (str(dtype).removeprefix("torch."),)


@pytest.fixture
def packing() -> Packing:
    return Packing(machine(VARIANTS[0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("keep", [True, False])
def test_plain_numbers_stay_as_they_are(packing: Packing, dtype: torch.dtype, keep: bool) -> None:
    rows, weight = torch.randn(KEYS + VALUES, LATENT).to(dtype), weight_of(packing, keep=keep)
    names = {"k_b_proj.weight": rows[:KEYS], "v_b_proj.weight": rows[KEYS:]}
    give(weight, {name: plain(name, part) for name, part in names.items()})
    assert_holds(packing, weight, rows, dtype if keep else torch.float32)


@pytest.mark.parametrize("keep", [True, False])
def test_packed_types_are_expanded(packing: Packing, keep: bool) -> None:
    weight, rows = weight_of(packing, keep=keep), [random_rows("Q8_0", each, LATENT // 32) for each in (KEYS, VALUES)]
    tensors = {}
    for name, part in zip(("k_b_proj.weight", "v_b_proj.weight"), rows, strict=True):
        tensors[name] = StoredTensor(name, part.kind, (part.rows, LATENT), part.data)
    give(weight, tensors)
    assert_holds(packing, weight, torch.cat([*map(values_of, rows)]), torch.float16 if keep else torch.float32)


@pytest.mark.parametrize("keep", [True, False])
def test_blocks_of_fp8_are_expanded(packing: Packing, keep: bool) -> None:
    form: Any = fp8((24, 32))
    scheme = WeightScheme("fp8", "fp8_e4m3", group=32, block_rows=24)
    weight = weight_of(packing, keep=keep, schemes={"k_b_proj": scheme, "v_b_proj": scheme})
    tensors, meant = {}, []
    for part, rows in (("k_b_proj", KEYS), ("v_b_proj", VALUES)):
        stored, values = form.quantize(torch.randn(rows, LATENT).numpy(), None)
        scale = stored["weight_scale_inv"]
        tensors |= {f"{part}.weight": plain("codes", stored["weight"]), f"{part}.weight_scale": plain("scale", scale)}
        meant.append(torch.from_numpy(values))
    give(weight, tensors)
    assert_holds(packing, weight, torch.cat(meant), torch.float16 if keep else torch.float32)
