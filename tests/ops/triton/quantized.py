"""Random quantized matrices in every arrangement, for tests of kernels that read them."""

import torch
from torch import Tensor

from quire.core.quantized import PLANES, Codes, chunk_columns
from quire.ops.bit_planes import pack_bits
from quire.ops.quantized_matrix import QuantizedMatrix
from tests.ops.triton.device import DEVICE


def random_matrix(
    codes: Codes,
    rows: int,
    columns: int,
    group: int = 0,
    *,
    zeros: bool = False,
    mins: bool = False,
    supers: bool = False,
    ordered: bool = False,
    seed: int = 0,
) -> QuantizedMatrix:
    """A group of 0 is the whole row. Products with normal rows are of order 1."""
    generator = torch.Generator().manual_seed(seed)
    group = group or columns
    low_bits, high_bits = PLANES[codes]
    shape, chunk = (rows, columns), chunk_columns(group, columns)
    scales = _scales(codes, rows, columns, group, generator)
    high = None
    if codes.startswith("fp8"):
        dtype = torch.float8_e4m3fn if codes == "fp8_e4m3" else torch.float8_e5m2
        values = torch.randn(shape, generator=generator).to(dtype)
    elif low_bits == 8:
        values = torch.randint(-128, 128, shape, generator=generator).to(torch.uint8 if zeros else torch.int8)
    else:
        drawn = torch.randint(0, 1 << low_bits + high_bits, shape, generator=generator).to(torch.uint8)
        values = pack_bits(drawn & (1 << low_bits) - 1, low_bits, chunk)
        high = pack_bits(drawn >> low_bits, high_bits, chunk) if high_bits else None
    middle = 1 << low_bits + high_bits - 1
    zero = torch.randint(middle - 2, middle + 3, scales.shape, generator=generator).to(torch.uint8) if zeros else None
    order = torch.randperm(columns, generator=generator).to(DEVICE) if ordered else None
    minimums = (scales * middle).to(torch.float16) if mins else None
    super_scales = super_mins = None
    if supers:
        super_shape = (rows, -(-columns // 256))
        super_scales = torch.full(super_shape, float(scales.mean()) / 20).to(torch.float16)
        scales = torch.randint(10, 31, scales.shape, generator=generator).to(torch.uint8)
        if mins:
            super_mins = super_scales * middle
            minimums = torch.randint(10, 31, scales.shape, generator=generator).to(torch.uint8)
    elif mins:
        scales = scales.to(torch.float16)

    def place(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.to(DEVICE)

    return QuantizedMatrix(
        codes, values.to(DEVICE), scales.to(DEVICE), place(zero), columns, group, order,
        high=place(high), mins=place(minimums), super_scales=place(super_scales), super_mins=place(super_mins),
    )  # fmt: skip


def _scales(codes: Codes, rows: int, columns: int, group: int, generator: torch.Generator) -> Tensor:
    spread = {"nf4": 0.6, "iq4": 70.0, "fp4": 3.0, "iq3_s": 9.0, "iq3_xxs": 9.0, "iq2": 3.5}.get(
        codes, 1.0 if codes.startswith("fp8") else 0.3 * 2 ** sum(PLANES[codes])
    )
    return (0.5 + torch.rand(rows, -(-columns // group), generator=generator)) / spread / columns**0.5
