"""From a file's layout to quire's: each is undone exactly, packed or plain."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, quants
from torch import Tensor

from quire.layers.stored import StoredTensor
from quire.layers.weights import dense
from quire.models.loading.layouts import as_file, laid_out
from quire.spec.layout import (
    AS_STORED,
    MINUS_ONE,
    TRANSPOSED,
    GroupedRows,
    PairedRows,
    TransposedHeads,
    file_shape,
)


def plain(values: Tensor) -> StoredTensor:
    return StoredTensor("t", str(values.dtype).removeprefix("torch."), tuple(values.shape), values)


def packed(values: Tensor) -> StoredTensor:
    data = quants.quantize(values.numpy(), GGMLQuantizationType.Q8_0)
    return StoredTensor("t", "Q8_0", tuple(values.shape), torch.from_numpy(np.ascontiguousarray(data)))


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def test_what_lies_as_quire_holds_it_is_not_copied() -> None:
    stored = plain(random(4, 6))
    assert laid_out(stored, AS_STORED) is stored


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_transposed(dtype: torch.dtype) -> None:
    values = random(4, 6).to(dtype)
    found = laid_out(plain(values), TRANSPOSED)
    assert (found.kind, found.shape) == (str(dtype).removeprefix("torch."), (6, 4))
    assert torch.equal(found.data, values.t())
    assert file_shape((6, 4), TRANSPOSED) == (4, 6)


def test_packed_rows_are_unpacked_to_be_turned_into_columns() -> None:
    stored = packed(random(4, 32))
    found = laid_out(stored, TRANSPOSED)
    assert (found.kind, found.shape, found.is_quantized) == ("float32", (32, 4), False)
    assert torch.equal(found.data, dense(stored, torch.float32).t())


def test_minus_one() -> None:
    found = laid_out(plain(torch.tensor([1.5, 0.0], dtype=torch.float16)), MINUS_ONE)
    assert (found.kind, found.data.tolist()) == ("float32", [0.5, -1.0])


def test_pairs_become_halves() -> None:
    """Of the rows of each head that turn; the others stay behind them."""
    rows = torch.tensor([0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15])
    found = laid_out(plain(rows), PairedRows(num_heads=2, head_dim=6, rotary=4))
    assert found.data.tolist() == [0, 2, 1, 3, 4, 5, 10, 12, 11, 13, 14, 15]


def test_groups_become_queries_keys_and_values() -> None:
    """Two keys with two queries each, heads of two rows."""
    names = ["q0", "q0", "q1", "q1", "k0", "k0", "v0", "v0", "q2", "q2", "q3", "q3", "k1", "k1", "v1", "v1"]
    order = GroupedRows(num_groups=2, queries=2, head_dim=2).source_rows()
    assert [names[row] for row in order] == [
        *("q0", "q0", "q1", "q1", "q2", "q2", "q3", "q3"),
        *("k0", "k0", "k1", "k1", "v0", "v0", "v1", "v1"),
    ]
    assert sorted(order) == list(range(16))


@pytest.mark.parametrize("layout", [PairedRows(2, 8, 8), PairedRows(2, 8, 4), GroupedRows(2, 2, 2)])
def test_packed_rows_move_as_plain_ones_do(layout: PairedRows | GroupedRows) -> None:
    stored = packed(random(16, 64))
    found = laid_out(stored, layout)
    assert found.is_quantized
    values = laid_out(plain(dense(stored, torch.float32)), layout)
    assert torch.equal(dense(found, torch.float32), values.data)
    assert not torch.equal(found.data, stored.data)


@pytest.mark.parametrize("is_packed", [False, True], ids=["plain", "packed"])
def test_heads_that_are_transposed(is_packed: bool) -> None:
    """Of 2 heads with 32 rows of 8 columns each; packed ones are unpacked."""
    layout = TransposedHeads(2)
    stored = replace(packed(random(16, 32)), shape=(2, 8, 32)) if is_packed else plain(random(2, 8, 32))
    found = laid_out(stored, layout)
    values = dense(stored, torch.float32)
    assert (found.kind, found.shape) == ("float32", (64, 8))
    assert torch.equal(found.data, values.transpose(1, 2).reshape(64, 8))
    assert torch.equal(as_file(found.data, layout), values)


def test_norms_of_heads_move_with_their_rows() -> None:
    """[heads, size], whose rows are heads and whose order is that of a head's rows."""
    values = torch.arange(8.0).view(2, 4)
    found = laid_out(plain(values), PairedRows(2, 4, 4))
    assert found.data.tolist() == [[0, 2, 1, 3], [4, 6, 5, 7]]
