"""Linear takes its weights in any order and form, and computes the same whether packed ones are kept or expanded."""

import pytest
import torch
from torch.nn import functional

from quire.core.ggml_types import PACKED
from quire.layers.embedding import Embedding
from quire.layers.linear import Linear
from quire.layers.policy import WeightPolicy
from quire.layers.quant.dense import DenseMethod
from quire.layers.quant.gguf import GgufMethod
from quire.layers.stored import StoredTensor
from quire.layers.weights import dense
from quire.models.loading.layouts import laid_out
from quire.spec.layout import TRANSPOSED
from quire.spec.matrix import MatrixSpec, Part

CPU = torch.device("cpu")
GENERATOR = torch.Generator().manual_seed(0)


def plain(name: str, *shape: int) -> StoredTensor:
    return StoredTensor(name, "float32", shape, torch.randn(*shape, generator=GENERATOR))


def packed(name: str, kind: str, rows: int, columns: int) -> StoredTensor:
    row_bytes = PACKED[kind].bytes_of(columns)
    data = torch.randint(0, 60, (rows, row_bytes), dtype=torch.uint8, generator=GENERATOR)  # small: finite scales
    return StoredTensor(name, kind, (rows, columns), data)


def policy(*, keep: bool = False) -> WeightPolicy:
    return WeightPolicy(torch.float32, CPU, (GgufMethod if keep else DenseMethod)(torch.float32))


def load(layer: Linear | Embedding, tensors: list[StoredTensor]) -> None:
    wanted = {expected.name: expected for expected in layer.expected()}
    assert set(wanted) == {tensor.name for tensor in tensors}
    for tensor in tensors:
        assert wanted[tensor.name].shape == tensor.shape
        wanted[tensor.name].take(tensor)


PARTS = (Part("q", "q", 6), Part("k", "k", 2), Part("v", "v", 2))


def test_stacked_parts_are_one_matrix_whatever_their_order() -> None:
    layer = Linear(MatrixSpec(PARTS, 32, "rows", bias=True), policy())
    tensors = [plain(f"{part.name}.weight", part.rows, 32) for part in PARTS]
    biases = [plain(f"{part.name}.bias", part.rows) for part in PARTS]
    load(layer, [biases[1], tensors[2], tensors[0], biases[0], tensors[1], biases[2]])
    x = torch.randn(3, 32, generator=GENERATOR)
    expected = [functional.linear(x, w.data, b.data) for w, b in zip(tensors, biases, strict=True)]
    torch.testing.assert_close(layer(x), torch.cat(expected, dim=-1))
    assert len(list(layer.buffers())) == 2


@pytest.mark.parametrize("keep", [True, False])
def test_packed_parts_of_different_types(keep: bool) -> None:
    layer = Linear(MatrixSpec(PARTS, 256, "rows"), policy(keep=keep))
    kinds = ("Q4_1", "Q6_K", "Q8_0")
    tensors = [packed(f"{part.name}.weight", kind, part.rows, 256) for part, kind in zip(PARTS, kinds, strict=True)]
    load(layer, tensors)
    x = torch.randn(3, 256, generator=GENERATOR)
    expected = torch.cat([functional.linear(x, dense(tensor, torch.float32)) for tensor in tensors], dim=-1)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-3)
    held = sum(buffer.nbytes for buffer in layer.buffers())
    assert held == (sum(t.data.nbytes for t in tensors) if keep else 10 * 256 * 4)


def test_parts_in_planes_are_one_matrix_where_neighbours_are_of_one_type() -> None:
    method = GgufMethod(torch.float32, in_planes=True)
    layer = Linear(MatrixSpec(PARTS, 256, "rows", bias=True), WeightPolicy(torch.float32, CPU, method))
    kinds = ("Q4_K", "Q4_K", "IQ1_S")
    tensors = [packed(f"{part.name}.weight", kind, part.rows, 256) for part, kind in zip(PARTS, kinds, strict=True)]
    biases = [plain(f"{part.name}.bias", part.rows) for part in PARTS]
    load(layer, [tensors[1], *biases, tensors[2], tensors[0]])
    x = torch.randn(3, 256, generator=GENERATOR)
    expected = torch.cat([functional.linear(x, dense(tensor, torch.float32)) for tensor in tensors], dim=-1)
    expected += torch.cat([bias.data for bias in biases])
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-3)
    names = {name.rpartition(".")[2] for name, _ in layer.named_buffers()}
    assert names == {"values", "scales", "mins", "super_scales", "super_mins", "data", "bias"}


def test_an_embedding_in_planes() -> None:
    method = GgufMethod(torch.float32, in_planes=True)
    layer = Embedding(MatrixSpec((Part("e", "words", 20),), 256, "rows"), WeightPolicy(torch.float32, CPU, method))
    tensor = packed("e.weight", "Q6_K", 20, 256)
    load(layer, [tensor])
    ids = torch.tensor([[3, 19], [0, 3]])
    torch.testing.assert_close(layer(ids), dense(tensor, torch.float32)[ids])


@pytest.mark.parametrize("keep", [True, False])
def test_a_transposed_checkpoint(keep: bool) -> None:
    layer = Linear(MatrixSpec((Part("c", "out", 4, TRANSPOSED),), 8, "columns"), policy(keep=keep))
    tensor = plain("c.weight", 8, 4)
    load(layer, [laid_out(tensor, TRANSPOSED)])
    x = torch.randn(2, 8, generator=GENERATOR)
    torch.testing.assert_close(layer(x), x @ tensor.data)


@pytest.mark.parametrize("keep", [True, False])
def test_plain_weights_are_held_in_the_dtype_asked_for(keep: bool) -> None:
    method = (GgufMethod if keep else DenseMethod)(torch.bfloat16)
    layer = Linear(MatrixSpec(PARTS, 32, "rows", bias=True), WeightPolicy(torch.bfloat16, CPU, method))
    load(layer, [plain(f"{part.name}.{end}", part.rows, *size) for part in PARTS for end, size in ENDS.items()])
    assert {buffer.dtype for buffer in layer.buffers()} == {torch.bfloat16}
    assert layer(torch.ones(1, 32, dtype=torch.bfloat16)).dtype == torch.bfloat16


ENDS: dict[str, tuple[int, ...]] = {"weight": (32,), "bias": ()}


@pytest.mark.parametrize("keep", [True, False])
def test_an_embedding_looks_up_and_projects(keep: bool) -> None:
    layer = Embedding(MatrixSpec((Part("e", "words", 20),), 32, "rows"), policy(keep=keep))
    tensor = packed("e.weight", "Q5_0", 20, 32)
    load(layer, [tensor])
    values = dense(tensor, torch.float32)
    ids = torch.tensor([[3, 19], [0, 3]])
    torch.testing.assert_close(layer(ids), values[ids])
    x = torch.randn(2, 32, generator=GENERATOR)
    torch.testing.assert_close(layer.project(x), x @ values.t(), rtol=1e-4, atol=1e-3)
