"""Linear takes its weights in any order and form, and computes the same whether packed ones are kept or expanded."""

import pytest
import torch
from torch.nn import functional

from quire.core.ggml_types import PACKED
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear, Source
from quire.layers.stored import StoredTensor
from quire.layers.weights import WeightPolicy, dense

CPU = torch.device("cpu")
GENERATOR = torch.Generator().manual_seed(0)


def plain(name: str, *shape: int) -> StoredTensor:
    return StoredTensor(name, "float32", shape, torch.randn(*shape, generator=GENERATOR))


def packed(name: str, kind: str, rows: int, columns: int) -> StoredTensor:
    row_bytes = PACKED[kind].bytes_of(columns)
    data = torch.randint(0, 60, (rows, row_bytes), dtype=torch.uint8, generator=GENERATOR)  # small: finite scales
    return StoredTensor(name, kind, (rows, columns), data)


def load(layer: torch.nn.Module, tensors: list[StoredTensor]) -> None:
    wanted = dict(layer.expected())
    assert set(wanted) == {tensor.name for tensor in tensors}
    for tensor in tensors:
        wanted[tensor.name].take(tensor)


SOURCES = [Source("q", 6), Source("k", 2), Source("v", 2)]


def test_stacked_sources_are_one_matrix_whatever_their_order():
    layer = Linear(SOURCES, 32, WeightPolicy(torch.float32, CPU), bias=True)
    tensors = [plain(f"{source.name}.weight", source.rows, 32) for source in SOURCES]
    biases = [plain(f"{source.name}.bias", source.rows) for source in SOURCES]
    load(layer, [biases[1], tensors[2], tensors[0], biases[0], tensors[1], biases[2]])
    x = torch.randn(3, 32, generator=GENERATOR)
    expected = [functional.linear(x, w.data, b.data) for w, b in zip(tensors, biases, strict=True)]
    torch.testing.assert_close(layer(x), torch.cat(expected, dim=-1))
    assert len(list(layer.buffers())) == 2


@pytest.mark.parametrize("keep", [True, False])
def test_packed_sources_of_different_types(keep):
    layer = Linear(SOURCES, 256, WeightPolicy(torch.float32, CPU, keep_quantized=keep))
    kinds = ("Q4_1", "Q6_K", "Q8_0")
    tensors = [packed(f"{s.name}.weight", kind, s.rows, 256) for s, kind in zip(SOURCES, kinds, strict=True)]
    load(layer, tensors)
    x = torch.randn(3, 256, generator=GENERATOR)
    expected = torch.cat([functional.linear(x, dense(tensor, torch.float32)) for tensor in tensors], dim=-1)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-3)
    held = sum(buffer.nbytes for buffer in layer.buffers())
    assert held == (sum(t.data.nbytes for t in tensors) if keep else 10 * 256 * 4)


def test_a_transposed_checkpoint():
    layer = Linear([Source("c", 4)], 8, WeightPolicy(torch.float32, CPU), transposed=True)
    tensor = plain("c.weight", 8, 4)
    load(layer, [tensor])
    x = torch.randn(2, 8, generator=GENERATOR)
    torch.testing.assert_close(layer(x), x @ tensor.data)


@pytest.mark.parametrize("keep", [True, False])
def test_an_embedding_looks_up_and_projects(keep):
    layer = Embedding("e", 20, 32, WeightPolicy(torch.float32, CPU, keep_quantized=keep))
    tensor = packed("e.weight", "Q5_0", 20, 32)
    load(layer, [tensor])
    values = dense(tensor, torch.float32)
    ids = torch.tensor([[3, 19], [0, 3]])
    torch.testing.assert_close(layer(ids), values[ids])
    x = torch.randn(2, 32, generator=GENERATOR)
    torch.testing.assert_close(layer.project(x), x @ values.t(), rtol=1e-4, atol=1e-3)
