"""Slices of a QuantizedMatrix multiply to the whole: rows side by side, columns added up."""

from dataclasses import replace

import pytest
import torch

from quire.core.errors import ConfigError
from quire.core.quantized import Codes
from quire.ops.cut_matrix import cut_columns, cut_rows, stack_rows, stack_together
from quire.ops.functional import quantized_linear
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.dequantize_matrix import dequantize_matrix
from quire.ops.round_to_nearest import round_to_nearest

GENERATOR = torch.Generator().manual_seed(0)
CASES: list[tuple[Codes, int | None, bool]] = [
    ("int4", 32, False),
    ("int4", 64, True),
    ("int4", None, True),
    ("nf4", 64, False),
    ("fp4", 32, False),
    ("int8", None, False),
    ("int8", 32, True),
    ("fp8_e4m3", None, False),
    ("fp8_e4m3", 128, False),
]


def made(codes: Codes, group: int | None, with_zeros: bool, rows: int = 12, columns: int = 256) -> QuantizedMatrix:
    return round_to_nearest(torch.randn(rows, columns, generator=GENERATOR), codes, group, with_zeros=with_zeros)


@pytest.mark.parametrize(("codes", "group", "with_zeros"), CASES)
@pytest.mark.parametrize("ranks", [2, 4])
def test_slices_multiply_to_the_whole(codes: Codes, group: int | None, with_zeros: bool, ranks: int) -> None:
    matrix = made(codes, group, with_zeros)
    x = torch.randn(3, matrix.columns, generator=GENERATOR)
    whole = quantized_linear(x, matrix)
    rows, width = matrix.rows // ranks, matrix.columns // ranks
    by_rows = [quantized_linear(x, cut_rows(matrix, slice(n * rows, (n + 1) * rows))) for n in range(ranks)]
    torch.testing.assert_close(torch.cat(by_rows, dim=-1), whole)
    if group is not None and width % group and width > group:
        return
    by_columns = [
        quantized_linear(x[:, n * width : (n + 1) * width], cut_columns(matrix, n * width, (n + 1) * width))
        for n in range(ranks)
    ]
    torch.testing.assert_close(torch.stack(by_columns).sum(0), whole, rtol=1e-4, atol=1e-4)


def test_the_last_group_may_be_short() -> None:
    matrix = made("int4", 64, False, columns=224)
    parts = [dequantize_matrix(cut_columns(matrix, start, end)) for start, end in ((0, 128), (128, 224))]
    torch.testing.assert_close(torch.cat(parts, dim=1), dequantize_matrix(matrix))


def test_what_cannot_be_cut_is_refused() -> None:
    matrix = made("int4", 64, False)
    with pytest.raises(ConfigError, match="columns 32 to 160 cut through groups of 64 columns"):
        cut_columns(matrix, 32, 160)
    with pytest.raises(ConfigError, match="sorted by act-order cannot be cut by columns"):
        cut_columns(replace(matrix, order=torch.arange(256)), 0, 128)


def test_rows_of_an_ordered_matrix() -> None:
    order = torch.randperm(256, generator=GENERATOR)
    matrix = replace(made("int4", 64, True), order=order)
    some = cut_rows(matrix, torch.tensor([7, 2]))
    torch.testing.assert_close(dequantize_matrix(some), dequantize_matrix(matrix)[[7, 2]])


def test_parts_are_stacked_where_they_are_alike() -> None:
    a, b = made("int8", None, False), made("int8", None, False, rows=5)
    assert stack_together(a, b)
    torch.testing.assert_close(
        dequantize_matrix(stack_rows([a, b])), torch.cat([dequantize_matrix(a), dequantize_matrix(b)])
    )
    order = torch.randperm(256, generator=GENERATOR)
    for other in (made("int8", 32, False), made("int8", None, True), replace(b, order=order)):
        assert not stack_together(a, other)
    assert stack_together(replace(a, order=order), replace(b, order=order.clone()))
    scaled = [
        replace(each, activations="one scale", input_scale=torch.tensor(scale)) for each, scale in ((a, 0.1), (b, 0.3))
    ]
    found = stack_rows(scaled).input_scale
    assert found is not None
    assert float(found) == pytest.approx(0.3)
