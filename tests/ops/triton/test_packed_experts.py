"""Experts in every arrangement of codes, multiplied as they are packed, against the same expanded."""

from typing import Any

import pytest
import torch
from torch import Tensor

from quire.core.quantized import multiplies_experts
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.expand_matrix import expand_matrix
from quire.ops.reference.experts_mlp import experts_mlp as reference
from tests.ops.triton.device import DEVICE, TOLERANCES, needs_triton
from tests.ops.triton.test_quantized_linear import CASES, Case
from tests.rarely import rarely

pytestmark = needs_triton

EXPERTS, SIZE, HIDDEN = 2, 256, 256
"""Rows of whole super scales."""


def stacks(case: Case) -> tuple[QuantizedMatrix, QuantizedMatrix]:
    return case.matrix(2 * EXPERTS * SIZE, HIDDEN), case.matrix(EXPERTS * HIDDEN, SIZE, seed=1)


def given(tokens: int, dtype: torch.dtype, hidden: int = HIDDEN, top_k: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, hidden, generator=random).to(DEVICE, dtype)
    ids = torch.rand(tokens, EXPERTS, generator=random).argsort(dim=-1)[:, :top_k]
    return x, ids.to(DEVICE), torch.rand(ids.shape, generator=random).to(DEVICE)


def distance(found: Tensor, wanted: Tensor) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def check(matrices: tuple[Any, Any], tokens: int, dtype: torch.dtype, hidden: int = HIDDEN, **more: Any) -> None:
    from quire.ops.triton.experts_mlp import experts_mlp

    x, ids, weights = given(tokens, dtype, hidden)
    plain = [each if isinstance(each, Tensor) else expand_matrix(each, torch.float32) for each in matrices]
    in_float = {name: each.float() if isinstance(each, Tensor) else each for name, each in more.items()}
    wanted = reference(x.float(), ids, weights, *(each.float() for each in plain), "silu", **in_float)
    found = experts_mlp(x, ids, weights, *matrices, "silu", **more)
    assert found.dtype == dtype
    assert distance(found, wanted) < TOLERANCES[dtype]


COMMON = ("int4, groups of 32, zeros", "Q4_K")


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in COMMON else pytest.mark.slow) for name in CASES if name != "MXFP4"],
)
@pytest.mark.parametrize("tokens", rarely([1, 5], every=2))
def test_every_form(name: str, tokens: int) -> None:
    matrices = stacks(CASES[name])
    assert all(multiplies_experts(each.codes, each.group, each.columns) for each in matrices)
    check(matrices, tokens, torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 5])
def test_other_numbers_and_weights_of_inputs(tokens: int, dtype: torch.dtype) -> None:
    check(stacks(CASES["int4"]), tokens, dtype, weighs_input=True)


@pytest.mark.parametrize("name", ["fp8_e4m3", "int4, groups of 32, zeros"])
@pytest.mark.parametrize("tokens", [1, 5])
def test_rests_of_blocks_and_biases(name: str, tokens: int) -> None:
    """Rows of 160 and 96 columns, and outputs that fill no block."""
    case, size, hidden = CASES[name], 96, 160
    up, down = case.matrix(2 * EXPERTS * size, hidden), case.matrix(EXPERTS * hidden, size, seed=1)
    random = torch.Generator().manual_seed(4)
    above, below = (torch.randn(each.rows, generator=random).to(DEVICE, torch.float16) for each in (up, down))
    check((up, down), tokens, torch.float16, hidden, up_bias=above, down_bias=below)


@pytest.mark.slow
@pytest.mark.parametrize("tokens", [1, 5])
def test_one_packed_stack_beside_a_plain_one(tokens: int) -> None:
    up, down = stacks(CASES["Q4_K"])
    check((up, expand_matrix(down, torch.bfloat16)), tokens, torch.bfloat16)
    check((expand_matrix(up, torch.bfloat16), down), tokens, torch.bfloat16)


@pytest.mark.slow
def test_columns_in_an_order() -> None:
    case = CASES["int4"]
    up = case.matrix(2 * EXPERTS * SIZE, HIDDEN, ordered=True)
    x, ids, weights = given(6, torch.float32)
    from quire.ops.triton.experts_mlp import experts_mlp

    down = case.matrix(EXPERTS * HIDDEN, SIZE, seed=1)
    assert up.order is not None
    sorted_x = x[:, up.order]
    plain = [expand_matrix(each, torch.float32) for each in (up, down)]
    for count in (1, 6):
        found = experts_mlp(x[:count], ids[:count], weights[:count], up, down, "silu")
        wanted = reference(sorted_x[:count], ids[:count], weights[:count], *plain, "silu")
        assert distance(found, wanted) < TOLERANCES[torch.float32]


@pytest.mark.parametrize("tokens", [1, 5])
def test_experts_that_are_elsewhere_add_nothing(tokens: int) -> None:
    from quire.ops.triton.experts_mlp import experts_mlp

    case, size, hidden = CASES["int8"], 32, 64
    up, down = case.matrix(2 * EXPERTS * size, hidden), case.matrix(EXPERTS * hidden, size, seed=1)
    x, ids, weights = given(tokens, torch.float32, hidden)
    is_here = ids != 1
    found = experts_mlp(x, torch.where(is_here, ids, -1), weights, up, down, "silu", some_elsewhere=True)
    wanted = experts_mlp(x, ids, torch.where(is_here, weights, 0.0), up, down, "silu")
    torch.testing.assert_close(found, wanted)


def test_which_forms_are_expanded() -> None:
    assert multiplies_experts("int4", 128, 768)
    assert multiplies_experts("fp8_e4m3", 128, 7168)
    assert not multiplies_experts("int4", 96, 768), "a block would lie in parts of groups"
    assert not multiplies_experts("int8", 20, 20), "rows are not whole words"
    assert not multiplies_experts("int4", 8, 64), "a thread's run would lie in two groups"
