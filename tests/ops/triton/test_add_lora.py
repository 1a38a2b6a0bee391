"""The kernels of LoRA adapters against their definitions: mixtures of adapters and ranks, parts, DoRA and experts."""

import pytest
import torch
from torch import Tensor

from quire.ops.lora_tensors import PAGE_RANK, AdapterRows, ExpertLora, LoraMatrix
from quire.ops.reference.add_lora import add_lora as reference
from quire.ops.reference.embed_lora import embed_lora as reference_embed
from quire.ops.reference.experts_mlp import experts_mlp as reference_experts
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton

pytestmark = needs_triton

COUNTS = (1, 3, 0, 2)
"""Pages of the adapters in four slots; one leaves the matrix alone."""


def matrix(
    parts: tuple[int, ...], columns: int, dtype: torch.dtype, *, experts: int = 1, dora: tuple[int, ...] = (0, 0, 0, 0)
) -> LoraMatrix:
    """Pages that lie apart, as those of a whole model do."""
    random = torch.Generator().manual_seed(columns)
    num_pages, rows = 7, sum(parts)
    down_elements, up_elements = experts * len(parts) * columns * PAGE_RANK, experts * (PAGE_RANK + 1) * rows
    pool = torch.randn(num_pages, down_elements + 64 + up_elements, generator=random)
    pool[:, :down_elements] /= columns**0.5
    pool[:, down_elements:] /= 4
    pool = pool.to(DEVICE, dtype)
    down = pool[:, :down_elements].unflatten(1, (experts, len(parts), columns, PAGE_RANK))
    up = pool[:, down_elements + 64 :].unflatten(1, (experts, PAGE_RANK + 1, rows))
    pages = torch.tensor([[4, 0, 0], [6, 1, 2], [0, 0, 0], [3, 5, 0]], dtype=torch.int32, device=DEVICE)
    counts = torch.tensor(COUNTS, dtype=torch.int32, device=DEVICE)
    return LoraMatrix(down, up, parts, pages, counts, torch.tensor(dora, dtype=torch.int32, device=DEVICE))


def slots_of(rows: int) -> Tensor:
    random = torch.Generator().manual_seed(rows)
    return torch.randint(-1, len(COUNTS), (rows,), generator=random, dtype=torch.int32).to(DEVICE)


def given(rows: int, columns: int, outputs: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    random = torch.Generator().manual_seed(rows + columns)
    x, y = torch.randn(rows, columns, generator=random), torch.randn(rows, outputs, generator=random)
    return x.to(DEVICE, dtype), y.to(DEVICE, dtype)


def check(
    rows: int, parts: tuple[int, ...], columns: int, dtype: torch.dtype, dora: tuple[int, ...] = (0, 0, 0, 0)
) -> None:
    from quire.ops.triton.add_lora import add_lora
    from quire.ops.triton.group_adapters import group_adapters

    weights = matrix(parts, columns, dtype, dora=dora)
    x, y = given(rows, columns, sum(parts), dtype)
    bias = torch.linspace(-1, 1, sum(parts)).to(DEVICE, dtype) if any(dora) else None
    slots = slots_of(rows)
    expected = reference(y.clone(), x, weights, AdapterRows(slots, len(COUNTS)), bias)
    found = add_lora(y.clone(), x, weights, group_adapters(slots, len(COUNTS), None, 1), bias)
    close = 4 * TOLERANCES[dtype]
    torch.testing.assert_close(found, expected, rtol=close, atol=close)
    torch.testing.assert_close(found[slots < 0], y[slots < 0], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [0, 1, 5, 40])
def test_rows(rows: int, dtype: torch.dtype) -> None:
    check(rows, (48,), 96, dtype)


@pytest.mark.parametrize("parts", [(144, 24, 24), (136, 136), (300,)])
def test_parts_with_rests_of_blocks(parts: tuple[int, ...]) -> None:
    check(19, parts, 600, torch.float32)


def test_dora() -> None:
    check(23, (40, 16), 72, torch.float32, dora=(1, 0, 0, 1))


def test_nobody_has_an_adapter() -> None:
    from quire.ops.triton.add_lora import add_lora
    from quire.ops.triton.group_adapters import group_adapters

    x, y = given(9, 64, 32, torch.float32)
    slots = torch.full((9,), -1, dtype=torch.int32, device=DEVICE)
    found = add_lora(y.clone(), x, matrix((32,), 64, torch.float32), group_adapters(slots, len(COUNTS), None, 1), None)
    torch.testing.assert_close(found, y, rtol=0, atol=0)


def test_a_long_prompt_is_the_same_as_its_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether one program adds up all chunks of inputs or many do, sums are the same bit for bit."""
    from quire.ops.triton import add_lora as kernels
    from quire.ops.triton.group_adapters import group_adapters

    weights = matrix((32,), 1100, torch.float32)
    x, y = given(20, 1100, 32, torch.float32)
    rows = group_adapters(slots_of(20), len(COUNTS), None, 1)
    split = kernels.add_lora(y.clone(), x, weights, rows, None)
    monkeypatch.setattr(kernels, "_MOST_SPLIT_ROWS", 8)
    whole = kernels.add_lora(y.clone(), x, weights, rows, None)
    if DEVICE.type == "cuda":
        torch.testing.assert_close(whole, split, rtol=0, atol=0)
    torch.testing.assert_close(whole, split, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", DTYPES)
def test_embeddings(dtype: torch.dtype) -> None:
    from quire.ops.triton.embed_lora import embed_lora
    from quire.ops.triton.group_adapters import group_adapters

    weights = matrix((48,), 90, dtype)
    _, x = given(21, 90, 48, dtype)
    ids = torch.arange(21, device=DEVICE) * 4
    slots = slots_of(21)
    expected = reference_embed(x.clone(), ids, weights, AdapterRows(slots, len(COUNTS)))
    found = embed_lora(x.clone(), ids, weights, group_adapters(slots, len(COUNTS), None, 1))
    close = 4 * TOLERANCES[dtype]
    torch.testing.assert_close(found, expected, rtol=close, atol=close)


@pytest.mark.parametrize("tokens", [3, 17])
def test_experts(tokens: int) -> None:
    from quire.ops.triton.experts_mlp import experts_mlp
    from quire.ops.triton.group_adapters import group_adapters

    experts, size, hidden, top_k = 5, 40, 72, 2
    random = torch.Generator().manual_seed(tokens)
    up = (torch.randn(2 * experts * size, hidden, generator=random) / hidden**0.5).to(DEVICE)
    down = (torch.randn(experts * hidden, size, generator=random) / size**0.5).to(DEVICE)
    x = torch.randn(tokens, hidden, generator=random).to(DEVICE)
    ids = torch.rand(tokens, experts, generator=random).argsort(dim=-1)[:, :top_k].to(DEVICE)
    weights = torch.rand(ids.shape, generator=random).to(DEVICE)
    matrices = (
        matrix((size, size), hidden, torch.float32, experts=experts),
        matrix((hidden,), size, torch.float32, experts=experts),
    )
    slots = slots_of(tokens).repeat_interleave(top_k)
    pairs = ids.flatten()
    expected = ExpertLora(*matrices, AdapterRows(slots, len(COUNTS), pairs, experts))
    grouped = ExpertLora(*matrices, group_adapters(slots, len(COUNTS), pairs, experts))
    torch.testing.assert_close(
        experts_mlp(x, ids, weights, up, down, "silu", lora=grouped),
        reference_experts(x, ids, weights, up, down, "silu", lora=expected),
        rtol=1e-4,
        atol=1e-4,
    )
