"""quantized_linear is a product with what the codes mean, element by element, on shapes of every kind."""

import pytest
import torch
from torch import Tensor

from quire.core.quantized import Codes, chunk_columns
from quire.ops.bit_planes import pack_bits, unpack_bits
from quire.ops.code_tables import NF4
from quire.ops.functional import quantized_linear
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.dequantize_matrix import dequantize_matrix, dequantize_rows
from quire.ops.round_to_nearest import round_to_nearest

GENERATOR = torch.Generator().manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=GENERATOR)


def meaning(matrix: QuantizedMatrix) -> Tensor:
    """Element by element, from the contract's words."""
    dense = torch.empty(matrix.rows, matrix.columns)
    half = matrix.chunk // 2 if matrix.codes in ("int4", "nf4") else 0
    for row in range(matrix.rows):
        for column in range(matrix.columns):
            if half:
                chunk, place = divmod(column, 2 * half)
                byte = int(matrix.values[row, chunk * half + place % half])
                code: float = byte & 15 if place < half else byte >> 4
            else:
                code = float(matrix.values[row, column])
            group = column // matrix.group
            if matrix.codes == "nf4":
                code = NF4[int(code)]
            elif matrix.zeros is not None:
                code -= int(matrix.zeros[row, group])
            elif matrix.codes == "int4":
                code -= 8
            target = column if matrix.order is None else int(matrix.order[column])
            dense[row, target] = code * float(matrix.scales[row, group])
    return dense


CASES: list[tuple[Codes, int | None, bool]] = [
    ("int4", 32, False),
    ("int4", 16, True),
    ("int4", None, True),
    ("nf4", 64, False),
    ("int8", None, False),
    ("int8", 24, True),
    ("fp8_e4m3", None, False),
    ("fp8_e4m3", 20, False),
    ("fp8_e5m2", None, False),
]


@pytest.mark.parametrize(("codes", "group", "with_zeros"), CASES)
@pytest.mark.parametrize(("rows", "columns"), [(5, 96), (1, 34), (3, 66)])
def test_it_multiplies_by_what_the_codes_mean(
    codes: Codes, group: int | None, with_zeros: bool, rows: int, columns: int
) -> None:
    weight = random(rows, columns)
    matrix = round_to_nearest(weight, codes, group, with_zeros=with_zeros)
    expected = meaning(matrix)
    torch.testing.assert_close(dequantize_matrix(matrix), expected)
    ids = torch.tensor([[0, rows - 1]])
    torch.testing.assert_close(dequantize_rows(matrix, ids), expected[ids])
    x, bias = random(2, 3, columns), random(rows)
    torch.testing.assert_close(quantized_linear(x, matrix, bias), x @ expected.T + bias, rtol=1e-5, atol=1e-4)
    worst = {"int4": 0.6, "nf4": 0.6, "fp8_e5m2": 0.4, "fp8_e4m3": 0.2}.get(codes, 0.05)
    assert float((expected - weight).abs().max()) < worst


def test_columns_in_an_order_of_their_own() -> None:
    order = torch.randperm(64, generator=GENERATOR)
    weight = random(4, 64)
    plain = round_to_nearest(weight[:, order], "int4", 32)
    matrix = QuantizedMatrix("int4", plain.values, plain.scales, None, 64, 32, order)
    torch.testing.assert_close(dequantize_matrix(matrix), meaning(matrix))
    x = random(2, 64)
    torch.testing.assert_close(quantized_linear(x, matrix), quantized_linear(x[:, order], plain))


@pytest.mark.parametrize(("codes", "largest"), [("int8", 127), ("fp8_e4m3", 448)])
@pytest.mark.parametrize("activations", ["a scale each token", "a scale each group", "one scale"])
def test_activations_are_quantized_first(codes: Codes, largest: float, activations: str) -> None:
    matrix = round_to_nearest(random(6, 40), codes, 16, activations=activations)  # type: ignore[arg-type]
    matrix = QuantizedMatrix(
        *(matrix.codes, matrix.values, matrix.scales, None, 40, 16, None, matrix.activations, torch.tensor(0.01))
    )
    x = random(3, 40)
    x[1] = 0
    rounded = torch.empty_like(x)
    size = 16 if activations == "a scale each group" else 40
    for row in range(3):
        for start in range(0, 40, size):
            part = x[row, start : start + size]
            scale = torch.tensor(0.01) if activations == "one scale" else (part.abs().max() / largest).clamp_min(1e-12)
            scaled = (part / scale).clamp(-largest, largest)
            codes_of_x = scaled.round() if codes == "int8" else scaled.to(torch.float8_e4m3fn).float()
            rounded[row, start : start + size] = codes_of_x * scale
    expected = rounded @ meaning(matrix).T
    torch.testing.assert_close(quantized_linear(x, matrix), expected, rtol=1e-4, atol=1e-4)
    assert not quantized_linear(x, matrix)[1].any()


def test_16_bit_activations_keep_their_type() -> None:
    matrix = round_to_nearest(random(3, 32), "int8")
    x = random(2, 32).bfloat16()
    found = quantized_linear(x, matrix)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, (x.float() @ meaning(matrix).T).bfloat16())


@pytest.mark.parametrize(("group", "columns", "chunk"), [(128, 256, 128), (64, 320, 64), (96, 96, 32), (34, 34, 2)])
def test_chunks(group: int, columns: int, chunk: int) -> None:
    assert chunk_columns(group, columns) == chunk
    codes = torch.randint(0, 16, (3, columns), generator=GENERATOR, dtype=torch.uint8)
    assert torch.equal(unpack_bits(pack_bits(codes, 4, chunk), 4, chunk), codes)
