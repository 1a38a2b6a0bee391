"""Dequantization of every packed ggml type, bit for bit what the `gguf` package computes."""

import gguf
import numpy as np
import pytest
import torch
from gguf import quants
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.core.ggml_types import PACKED
from quire.ops.reference.gguf import dequantize as module
from quire.ops.reference.gguf.dequantize import TYPES, dequantize

WITHOUT_ORACLE = {"Q8_K"}
"""Types that the gguf package cannot dequantize."""
ORACLES = [name for name in TYPES if name not in WITHOUT_ORACLE]


def random_rows(name: str, rows: int, blocks: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (rows, blocks * PACKED[name].num_bytes)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def expected(name: str, data: Tensor) -> Tensor:
    with np.errstate(all="ignore"):  # random scales may be infinite or no number
        values = quants.dequantize(np.ascontiguousarray(data.numpy()), gguf.GGMLQuantizationType[name])
    return torch.from_numpy(values)


def assert_same_bits(found: Tensor, wanted: Tensor) -> None:
    """The same bits everywhere; of numbers that are none, only that they are none."""
    assert found.shape == wanted.shape
    assert found.dtype == wanted.dtype == torch.float32
    nothing = wanted.isnan()
    assert torch.equal(found.isnan(), nothing)
    assert torch.equal(found.view(torch.int32)[~nothing], wanted.view(torch.int32)[~nothing])


@pytest.mark.parametrize("name", ORACLES)
def test_random_blocks(name: str) -> None:
    data = random_rows(name, 257, 3)
    values = expected(name, data)
    assert values.isfinite().float().mean() > 0.5
    assert_same_bits(dequantize(data, name), values)


@pytest.mark.parametrize("name", ORACLES)
@pytest.mark.parametrize("byte", [0, 255, 0x80, 0x0F, 0xF0])
def test_blocks_of_one_byte(name: str, byte: int) -> None:
    data = torch.full((1, PACKED[name].num_bytes), byte, dtype=torch.uint8)
    assert_same_bits(dequantize(data, name), expected(name, data))


@pytest.mark.parametrize("name", ORACLES)
@given(data=st.data())
def test_any_block(name: str, data: st.DataObject) -> None:
    block = data.draw(st.binary(min_size=PACKED[name].num_bytes, max_size=PACKED[name].num_bytes))
    rows = torch.tensor(list(block), dtype=torch.uint8).view(1, -1)
    assert_same_bits(dequantize(rows, name), expected(name, rows))


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4"])
def test_what_the_gguf_package_quantized(name: str) -> None:
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(5, 512, generator=generator)
    packed = quants.quantize(weights.numpy(), gguf.GGMLQuantizationType[name])
    assert_same_bits(dequantize(torch.from_numpy(packed), name), expected(name, torch.from_numpy(packed)))


def test_q8_k() -> None:
    q = torch.arange(-128, 128, dtype=torch.int8)
    block = torch.cat((torch.tensor([0.25]).view(torch.uint8), q.view(torch.uint8), torch.zeros(32, dtype=torch.uint8)))
    assert torch.equal(dequantize(block.view(1, -1), "Q8_K"), 0.25 * q.float().view(1, -1))


@pytest.mark.parametrize("name", TYPES)
def test_rows_that_do_not_lie_side_by_side(name: str) -> None:
    wide = random_rows(name, 8, 4)
    part = wide[1::2, PACKED[name].num_bytes : 3 * PACKED[name].num_bytes]
    assert not part.is_contiguous()
    assert torch.equal(dequantize(part, name).nan_to_num(), dequantize(part.contiguous(), name).nan_to_num())


@pytest.mark.parametrize("name", TYPES)
def test_rows_at_an_odd_address(name: str) -> None:
    data = random_rows(name, 1, 1)
    shifted = torch.cat((torch.zeros(1, dtype=torch.uint8), data[0]))[1:].view(1, -1)
    assert shifted.storage_offset() == 1
    assert torch.equal(dequantize(shifted, name).nan_to_num(), dequantize(data, name).nan_to_num())


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("shape", [(0, 2), (3, 0), (0, 0)])
def test_nothing_to_do(name: str, shape: tuple[int, int]) -> None:
    rows, blocks = shape
    data = torch.empty(rows, blocks * PACKED[name].num_bytes, dtype=torch.uint8)
    assert dequantize(data, name).shape == (rows, blocks * PACKED[name].block)


def test_pieces_join(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_rows("Q6_K", 7, 2)
    whole = dequantize(data, "Q6_K")
    for elements in (1, 1024):
        monkeypatch.setattr(module, "_ELEMENTS_AT_ONCE", elements)
        assert_same_bits(dequantize(data, "Q6_K"), whole)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_dtypes_are_rounded_once(dtype: torch.dtype) -> None:
    data = random_rows("Q4_K", 3, 2)
    found = dequantize(data, "Q4_K", dtype)
    assert found.dtype == dtype
    assert torch.equal(found.nan_to_num(), dequantize(data, "Q4_K").to(dtype).nan_to_num())


def test_only_types_that_hold_no_weights_are_left_out() -> None:
    assert set(PACKED) - set(TYPES) == {"Q8_1", "Q1_0"}


@pytest.mark.parametrize(
    ("data", "name", "message"),
    [
        (torch.zeros(1, 18, dtype=torch.uint8), "Q9_9", "'Q9_9' cannot be dequantized; known are Q4_0"),
        (torch.zeros(1, 18, dtype=torch.uint8), "float32", "'float32' cannot be dequantized"),
        (torch.zeros(1, 17, dtype=torch.uint8), "Q4_0", "a multiple of 18 each, not from"),
        (torch.zeros(18, dtype=torch.uint8), "Q4_0", r"of shape \[18\]"),
        (torch.zeros(1, 18, dtype=torch.int8), "Q4_0", "not from torch.int8"),
    ],
)
def test_what_is_not_rows_of_blocks_is_refused(data: Tensor, name: str, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        dequantize(data, name)
