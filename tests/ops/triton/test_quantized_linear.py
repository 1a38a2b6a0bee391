"""Products with quantized matrices agree with those of the expanded matrix, however they are computed."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor

from quire.core.ggml_types import PACKED
from quire.ops.quantized_matrix import Activations, Codes, QuantizedMatrix
from quire.ops.reference.expand_matrix import expand_matrix as reference
from quire.ops.reference.gguf.dequantize import dequantize
from quire.ops.reference.gguf.planes import KINDS, as_matrix
from tests.ops.triton.cards import H200, OTHERS
from tests.ops.triton.device import DEVICE, needs_triton
from tests.ops.triton.quantized import random_matrix
from tests.rarely import rarely

if TYPE_CHECKING:
    from quire.ops.triton.card import Card

pytestmark = needs_triton


@dataclass(frozen=True)
class Case:
    codes: Codes
    group: int
    made: dict[str, bool] = field(default_factory=dict)

    def matrix(self, rows: int, columns: int, **more: Any) -> QuantizedMatrix:
        return random_matrix(self.codes, rows, columns, self.group, **self.made, **more)


CASES = {
    "fp8_e4m3": Case("fp8_e4m3", 0),
    "fp8_e4m3 in groups": Case("fp8_e4m3", 128),
    "fp8_e5m2": Case("fp8_e5m2", 0),
    "int8": Case("int8", 0),
    "int8 with zeros": Case("int8", 64, {"zeros": True}),
    "int4": Case("int4", 128),
    "int4, one scale": Case("int4", 0),
    "int4, groups of 32, zeros": Case("int4", 32, {"zeros": True}),
    "int4, groups of 64": Case("int4", 64),
    "int4, one zero": Case("int4", 0, {"zeros": True}),
    "nf4": Case("nf4", 64),
    "MXFP4": Case("fp4", 32),
    "Q8_0": Case("int8", 32),
    "Q4_1": Case("int4", 32, {"mins": True}),
    "Q4_K": Case("int4", 32, {"mins": True, "supers": True}),
    "Q5_K": Case("int5", 32, {"mins": True, "supers": True}),
    "Q6_K": Case("int6", 16, {"supers": True}),
    "Q3_K": Case("int3", 16, {"supers": True}),
    "Q2_K": Case("int2", 16, {"mins": True, "supers": True}),
    "IQ4_XS": Case("iq4", 32, {"supers": True}),
    "IQ3_S": Case("iq3_s", 32, {"supers": True}),
    "IQ2_XS": Case("iq2", 16, {"supers": True}),
    "IQ2_XXS": Case("iq2", 32, {"supers": True}),
    "NVFP4": Case("fp4", 16),
}
WAYS = {
    "cuda": ("cuda", 4, 512, 1, 1, 1),
    "cuda, split": ("cuda", 8, 256, 3, 1, 2),
    "tensor": ("tensor", 32, 128, 1, 2, 3),
    "tensor, split": ("tensor", 16, 256, 2, 1, 2),
}
"""Fields of choices: cores, block_out, block_in, splits, num_warps, num_stages."""


def random(*shape: int, dtype: torch.dtype = torch.bfloat16, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def expected(x: Tensor, matrix: QuantizedMatrix, bias: Tensor | None = None) -> Tensor:
    given = x if matrix.order is None else x[..., matrix.order]
    product = given.float() @ reference(matrix, torch.float32).t()
    return product if bias is None else product + bias.float()


def assert_close(got: Tensor, wanted: Tensor, farthest: float = 5e-3) -> None:
    """As ‖difference‖ / ‖result‖; a row or column that is wrong would stand out, unless it happens to be near zero."""
    assert got.shape == wanted.shape
    for dim in (0, 1):
        sizes = wanted.norm(dim=dim)
        distance = (got.float() - wanted).norm(dim=dim) / sizes.clamp(min=float(sizes.mean()) / 4)
        assert float(distance.max()) < 4 * farthest
    assert float((got.float() - wanted).norm() / wanted.norm()) < farthest


@pytest.mark.parametrize(
    ("way", "case"),
    rarely(
        [(way, case) for way in WAYS for case in (CASES if "split" not in way else ("fp8_e4m3", "int4", "Q6_K"))],
        every=5,
    ),
)
def test_every_way_multiplies_by_every_kind_of_codes(way: str, case: str) -> None:
    from quire.ops.triton.quantized_skinny import multiply_by
    from quire.ops.triton.skinny_gemm_choices import Choice

    out_size, rows = (9, 3) if "cuda" in way else (21, 17)
    matrix = CASES[case].matrix(out_size, 768)
    x, bias = random(rows, 768), random(out_size, seed=2)
    assert_close(multiply_by(Choice(*WAYS[way]), x, matrix, bias), expected(x, matrix, bias))


@pytest.mark.parametrize("case", rarely(CASES, every=2))
def test_expanded_to_the_bit(case: str) -> None:
    from quire.ops.triton.expand_matrix import expand_matrix

    matrix = CASES[case].matrix(9, 1280)
    found = expand_matrix(matrix, torch.float32)
    if DEVICE.type == "cpu" or matrix.mins is None:
        assert torch.equal(found, reference(matrix, torch.float32))
    else:  # a GPU multiplies and subtracts in one rounding
        assert_close(found, reference(matrix, torch.float32), 1e-6)
    assert_close(expand_matrix(matrix, torch.bfloat16), reference(matrix, torch.float32))


@pytest.mark.parametrize("case", rarely(["fp8_e4m3", "int8", "int4", "Q4_K", "Q6_K"], every=2))
@pytest.mark.parametrize("rows", rarely([1, 3, 8, 17, 64, 130], every=2))
def test_the_op(rows: int, case: str) -> None:
    from quire.ops.triton.quantized_linear import quantized_linear

    matrix = CASES[case].matrix(19, 256)
    x, bias = random(rows, 256), random(19, seed=2)
    assert_close(quantized_linear(x, matrix, bias), expected(x, matrix, bias))


@pytest.mark.parametrize(
    ("columns", "group"), rarely([(96, 32), (160, 0), (48, 16), (72, 8), (30, 10), (576, 64)], every=2, first=1)
)
@pytest.mark.parametrize("codes", ["int4", "int8"])
def test_odd_sizes(codes: Codes, columns: int, group: int) -> None:
    from quire.ops.triton.quantized_linear import quantized_linear

    for rows, zeros in ((1, False), (5, True)):
        matrix = random_matrix(codes, 9, columns, group, zeros=zeros)
        x = random(rows, columns)
        assert_close(quantized_linear(x, matrix, None), expected(x, matrix))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_other_numbers_of_x(dtype: torch.dtype) -> None:
    from quire.ops.triton.quantized_linear import quantized_linear

    matrix = CASES["int4"].matrix(6, 256)
    for rows in (2, 5):
        x = random(rows, 256, dtype=dtype)
        got = quantized_linear(x, matrix, None)
        assert got.dtype == dtype
        assert_close(got, expected(x, matrix), 1e-3)


@pytest.mark.parametrize("case", rarely(["int4", "int8", "Q6_K"], every=3))
def test_one_row_in_fixed_point(case: str) -> None:
    """Small numbers count beside large ones, of zeros alone comes zero, and what is no number stays none."""
    from quire.ops.triton.quantized_linear import quantized_linear

    matrix = CASES[case].matrix(6, 512)
    x = random(1, 512)
    x[0, 7] = 300.0
    assert_close(quantized_linear(x, matrix, None), expected(x, matrix))
    beside = expected(x, matrix) - expected(torch.where(x == 300.0, x, 0.0), matrix)
    found = quantized_linear(x.half(), matrix, None).float() - expected(torch.where(x == 300.0, x, 0.0), matrix)
    assert float((found - beside).norm() / beside.norm()) < 0.05  # of float16 numbers 300 times as large
    x[0, 256:] = 0
    assert_close(quantized_linear(x, matrix, None), expected(x, matrix))
    assert not quantized_linear(torch.zeros_like(x), matrix, None).any()
    for wrong in (float("nan"), float("inf")):
        x[0, 100] = wrong
        assert not quantized_linear(x, matrix, None).isfinite().any()


def test_columns_may_be_in_another_order() -> None:
    from quire.ops.triton.quantized_linear import quantized_linear

    matrix = CASES["int4"].matrix(6, 256, ordered=True)
    for rows in (1, 6):
        x = random(rows, 256)
        assert_close(quantized_linear(x, matrix, None), expected(x, matrix))


def test_leading_dimensions_stay() -> None:
    from quire.ops.triton.quantized_linear import quantized_linear

    matrix = CASES["int8"].matrix(16, 128)
    assert quantized_linear(random(2, 1, 2, 128), matrix, None).shape == (2, 1, 2, 16)
    assert quantized_linear(random(0, 128), matrix, None).shape == (0, 16)


QUANTIZED: dict[str, tuple[Case, Activations, float]] = {
    "fp8 by token": (Case("fp8_e4m3", 0), "a scale each token", 0.08),
    "fp8 by group": (Case("fp8_e4m3", 128), "a scale each group", 0.08),
    "fp8 by token, weights in groups": (Case("fp8_e4m3", 128), "a scale each token", 0.08),
    "int8 by token": (Case("int8", 0), "a scale each token", 0.015),
    "int8 by group": (Case("int8", 128), "a scale each group", 0.015),
    "int8 by one scale": (Case("int8", 0), "one scale", 0.015),
}
"""And how far from the result the rounding of activations may take it; the interpreter cuts float8 off."""


@pytest.mark.parametrize("case", QUANTIZED)
def test_many_rows_are_multiplied_in_8_bits(case: str) -> None:
    from quire.ops.triton.quantized_linear import quantized_linear

    made, activations, farthest = QUANTIZED[case]
    matrix, x = made.matrix(80, 384), random(70, 384)
    scale = (x.abs().max().float() / 127).reshape(1) if activations == "one scale" else None
    matrix = replace(matrix, activations=activations, input_scale=scale)
    assert_close(quantized_linear(x, matrix, random(80, seed=3)), expected(x, matrix, random(80, seed=3)), farthest)


def test_quantized_rows_are_what_their_scales_say() -> None:
    from quire.ops.triton.quantize_rows import quantize_rows

    x = random(3, 256, dtype=torch.float32)
    x[1] = 0
    values, scales = quantize_rows(x, torch.int8, 0, None)
    torch.testing.assert_close(scales[[0, 2], 0], x[[0, 2]].abs().amax(1) / 127)
    assert torch.equal(values[0], (x[0] / scales[0]).round().to(torch.int8))
    assert not values[1].any()
    by_group = quantize_rows(x, torch.int8, 64, None)[1]
    torch.testing.assert_close(by_group[0], x[0].view(4, 64).abs().amax(1) / 127)


@pytest.mark.parametrize("kind", rarely(KINDS, every=2))
def test_ggml_types_as_they_are_packed(kind: str) -> None:
    from quire.ops.triton.quantized_linear import quantized_linear

    generator = torch.Generator().manual_seed(0)
    data = torch.randint(0, 50, (7, PACKED[kind].bytes_of(512)), dtype=torch.uint8, generator=generator).to(DEVICE)
    if kind == "MXFP4":
        data[:, :: PACKED[kind].num_bytes] += 80  # exponents of scales: in the range that sums hold
    matrix = as_matrix(data, kind)
    for rows in (1, 5):
        x = random(rows, 512)
        wanted = x.float() @ dequantize(data, kind).t()
        assert_close(quantized_linear(x, matrix, None), wanted, 1e-2)


@pytest.mark.parametrize("codes", ["fp8_e4m3", "fp8_e5m2"])
def test_float8_is_put_together_from_bits_where_a_gpu_cannot_convert(codes: Codes) -> None:
    from quire.ops.triton import expand_matrix as module

    dtype = torch.float8_e4m3fn if codes == "fp8_e4m3" else torch.float8_e5m2
    every = torch.arange(256, dtype=torch.uint8, device=DEVICE).view(dtype).float()
    finite = torch.where(every.isfinite(), every, 0).to(dtype)[None, :]
    matrix = QuantizedMatrix(codes, finite, torch.ones(1, 1, device=DEVICE), None, 256, 256)
    arguments = module.plane_arguments(matrix) | {"values_at": finite.view(torch.uint8), "bits_of": codes}
    found = torch.empty(1, 256, device=DEVICE)
    module._expand[(1, 1)](found, 1, 256, **arguments, block_out=1, block=256, run=8, overlapped=False)
    assert torch.equal(found, finite.float())


@pytest.mark.parametrize("card", [H200, *OTHERS], ids=lambda card: card.name)
def test_choices_by_formula_can_be_launched(card: "Card") -> None:
    from quire.ops.triton.quantized_skinny_choices import choose, form_of, rows_of_a_block

    unmeasured = replace(card, name="unmeasured")
    for name in ("fp8_e4m3", "int4", "int4, one scale", "Q4_K", "Q6_K"):
        form = form_of(CASES[name].matrix(1, 256), in_8_bits=False)
        for rows in (1, 2, 3, 16, 64, 128, 256):
            for out_size, in_size in ((16, 256), (1024, 2048), (4096, 14336), (128256, 4096)):
                choice = choose(unmeasured, form, rows, out_size, in_size)
                assert choice is not None
                assert choice.block_in % form.chunk == 0
                if choice.cores == "tensor":
                    least = choice.block_in * (choice.block_out // form.halves + 2 * rows_of_a_block(rows))
                    assert choice.num_stages == 1 or choice.num_stages * least <= card.shared_memory


def test_tiles_of_many_rows_fit() -> None:
    from quire.ops.triton.scaled_gemm_choices import choose_tile, shared_memory

    assert choose_tile(H200, 8192, 4096, in_groups=False).block_out == 256
    assert choose_tile(H200, 8192, 4096, in_groups=True).block_out == 128
    assert choose_tile(H200, 128, 4096, in_groups=False).block_rows == 64
    for card in (H200, *OTHERS):
        for rows in (65, 256, 8192):
            tile = choose_tile(card, rows, 4096, in_groups=False)
            assert shared_memory(tile) <= max(card.shared_memory, 6 * 128 * 128)
