"""Quantized matrices in the native core's layouts: which layout, and how little is lost."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from quire.core.quantized import Codes
from quire.ops.cpu import machine as cpu_machine
from quire.ops.cpu.layouts import IN_8_BITS
from quire.ops.cpu.packing import Packing
from quire.ops.cpu.quantized_rows import rows_for_core
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.dequantize_matrix import dequantize_matrix
from quire.ops.round_to_nearest import round_to_nearest

GENERATOR = torch.Generator().manual_seed(0)
ROWS, COLUMNS = 21, 192

pytestmark = pytest.mark.skipif(cpu_machine.machine() is None, reason="the native core is not installed")


def made(codes: Codes, group: int | None, *, zeros: bool = False, columns: int = COLUMNS) -> QuantizedMatrix:
    weight = 0.05 * torch.randn(ROWS, columns, generator=GENERATOR)
    return round_to_nearest(weight, codes, group, with_zeros=zeros)


def held(matrix: QuantizedMatrix) -> Tensor:
    """What the core holds, looked up row by row."""
    machine = cpu_machine.machine()
    assert machine is not None
    packed = Packing(machine).linear("weight", [rows_for_core(matrix)], matrix.columns, None)
    return packed.lookup(torch.arange(matrix.rows))


def lost(matrix: QuantizedMatrix) -> float:
    """The largest error over the largest weight."""
    expected = dequantize_matrix(matrix)
    return float((held(matrix) - expected).abs().max() / expected.abs().max())


@pytest.mark.parametrize(
    ("matrix", "kind", "limit"),
    [
        (made("int4", 32), "int4", 2e-3),
        (made("int4", 64, zeros=True), "int4", 2e-3),
        (made("int4", None), "int4", 2e-3),
        (made("int8", None), "int8", 1e-3),
        (made("int8", 32), "int8", 1e-3),
        (made("fp4", 32), "MXFP4", 0.0),
        (made("fp4", 16), IN_8_BITS, 5e-3),
        (made("int4", 16), IN_8_BITS, 5e-3),
        (made("int4", 32, columns=72), IN_8_BITS, 5e-3),
        (made("int8", None, zeros=True), IN_8_BITS, 5e-3),
        (made("nf4", 64), IN_8_BITS, 5e-3),
        (made("fp8_e4m3", None), IN_8_BITS, 5e-3),
        (made("fp8_e4m3", 64), IN_8_BITS, 5e-3),
    ],
)
def test_layouts_and_their_loss(matrix: QuantizedMatrix, kind: str, limit: float) -> None:
    assert rows_for_core(matrix).kind == kind
    assert lost(matrix) <= limit


def test_scales_that_are_exact_in_16_bits_stay_exact() -> None:
    codes = torch.randint(0, 256, (ROWS, COLUMNS // 2), generator=GENERATOR, dtype=torch.uint8)
    scales = torch.rand(ROWS, COLUMNS // 32, generator=GENERATOR).half() * 0.01
    signed = QuantizedMatrix("int4", codes, scales, None, COLUMNS, 32)
    assert torch.equal(held(signed), dequantize_matrix(signed))


def test_floats_of_4_bits_whose_scales_are_no_powers_of_two_go_through_floats() -> None:
    matrix = made("fp4", 32)
    between = replace(matrix, scales=matrix.scales * 1.5)
    assert rows_for_core(between).kind == IN_8_BITS
    assert lost(between) < 5e-3
    below = replace(matrix, scales=-matrix.scales)
    assert rows_for_core(below).kind == IN_8_BITS


@pytest.mark.parametrize("columns", [32, 64, 96, 2880])
def test_mxfp4_of_any_width(columns: int) -> None:
    matrix = made("fp4", 32, columns=columns)
    assert torch.equal(held(matrix), dequantize_matrix(matrix))


def test_zero_points_too_far_apart_go_through_floats() -> None:
    values = torch.tensor([[0, 255] * 16], dtype=torch.uint8)
    matrix = QuantizedMatrix("int8", values, torch.ones(1, 1), torch.zeros(1, 1, dtype=torch.uint8), 32, 32)
    assert rows_for_core(matrix).kind == IN_8_BITS


@pytest.mark.parametrize("scale", [1e-9, 1e5])
def test_scales_that_float16_cannot_hold_go_through_floats(scale: float) -> None:
    codes = torch.full((2, 16), 0x79, dtype=torch.uint8)
    matrix = QuantizedMatrix("int4", codes, torch.full((2, 1), scale), None, 32, 32)
    assert rows_for_core(matrix).kind == IN_8_BITS
