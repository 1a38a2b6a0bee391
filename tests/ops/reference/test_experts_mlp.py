"""Experts against a plain loop over tokens."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from quire.ops.functional import experts_mlp
from quire.ops.reference.dequantize_matrix import dequantize_matrix
from quire.ops.round_to_nearest import round_to_nearest

EXPERTS, SIZE, HIDDEN = 5, 32, 64


def stacks(seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    up = torch.randn(2 * EXPERTS * SIZE, HIDDEN, generator=generator) * 0.2
    return up, torch.randn(EXPERTS * HIDDEN, SIZE, generator=generator) * 0.2


def by_token(x: Tensor, ids: Tensor, weights: Tensor, up: Tensor, down: Tensor) -> Tensor:
    gates, ups = up.view(2, EXPERTS, SIZE, HIDDEN)
    downs = down.view(EXPERTS, HIDDEN, SIZE)
    rows = []
    for token, chosen, shares in zip(x, ids.tolist(), weights, strict=True):
        inner = [functional.silu(gates[expert] @ token) * (ups[expert] @ token) for expert in chosen]
        rows.append(sum(downs[e] @ each * share for e, each, share in zip(chosen, inner, shares, strict=True)))
    return torch.stack(rows)


@pytest.mark.parametrize("case", ["any", "all one expert", "one has none"])
def test_as_token_by_token(case: str) -> None:
    generator = torch.Generator().manual_seed(3)
    x, (up, down) = torch.randn(17, HIDDEN, generator=generator), stacks(1)
    ids = torch.stack([torch.randperm(EXPERTS, generator=generator)[:2] for _ in range(17)])
    if case == "all one expert":
        ids = torch.tensor([[3, 1]]).expand(17, 2)
    elif case == "one has none":
        ids = torch.stack([torch.randperm(EXPERTS - 1, generator=generator)[:2] for _ in range(17)])
    weights = torch.rand(17, 2, generator=generator)
    found = experts_mlp(x, ids, weights, up, down, "silu")
    torch.testing.assert_close(found, by_token(x, ids, weights, up, down), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("codes", ["int8", "int4", "fp8_e4m3"])
def test_quantized_stacks(codes: str) -> None:
    generator = torch.Generator().manual_seed(4)
    x, (up, down) = torch.randn(9, HIDDEN, generator=generator), stacks(2)
    matrices = [round_to_nearest(each, codes, 32) for each in (up, down)]
    ids, weights = torch.randint(EXPERTS, (9, 3), generator=generator), torch.rand(9, 3, generator=generator)
    found = experts_mlp(x, ids, weights, *matrices, "silu")
    expected = by_token(x, ids, weights, *map(dequantize_matrix, matrices))
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
