"""The kernels of experts against their definitions: few tokens and many, one expert for all, experts without any."""

import pytest
import torch
from torch import Tensor

from quire.core.routing import Routing
from quire.ops.code_tables import TABLES
from quire.ops.quantized_matrix import QuantizedMatrix
from quire.ops.reference.expand_matrix import expand_matrix
from quire.ops.reference.experts_mlp import experts_mlp as reference
from quire.ops.reference.route_tokens import route_tokens as reference_route
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton
from tests.rarely import rarely

pytestmark = needs_triton

SHAPE = (6, 40, 72)
"""Experts, size and hidden, with rests of blocks."""
PACKED_SHAPE = (5, 96, 160)
"""The same, in whole groups."""


def stacks(dtype: torch.dtype, shape: tuple[int, int, int] = SHAPE) -> tuple[Tensor, Tensor]:
    experts, size, hidden = shape
    random = torch.Generator().manual_seed(7)
    up = torch.randn(2 * experts * size, hidden, generator=random) / hidden**0.5
    down = torch.randn(experts * hidden, size, generator=random) / size**0.5
    return up.to(DEVICE, dtype), down.to(DEVICE, dtype)


def given(tokens: int, dtype: torch.dtype, ids: Tensor | None = None, top_k: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, SHAPE[2], generator=random).to(DEVICE, dtype)
    if ids is None:
        ids = torch.rand(tokens, SHAPE[0], generator=random).argsort(dim=-1)[:, :top_k]
    weights = torch.rand(ids.shape, generator=random).to(DEVICE)
    return x, ids.to(DEVICE), weights


def check(x: Tensor, ids: Tensor, weights: Tensor, activation: str = "silu") -> None:
    from quire.ops.triton.experts_mlp import experts_mlp

    matrices, close = stacks(x.dtype), TOLERANCES[x.dtype]
    found = experts_mlp(x, ids, weights, *matrices, activation)
    torch.testing.assert_close(found, reference(x, ids, weights, *matrices, activation), rtol=close, atol=close)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [0, 1, 4, 5, 33])
def test_tokens(tokens: int, dtype: torch.dtype) -> None:
    check(*given(tokens, dtype))


@pytest.mark.parametrize("activation", ["gelu", "gelu_tanh", "relu"])
def test_activations(activation: str) -> None:
    check(*given(3, torch.float32), activation)
    check(*given(7, torch.float32), activation)


def packed(dtype: torch.dtype) -> tuple[QuantizedMatrix, QuantizedMatrix]:
    """Stacks in MXFP4 whose scales differ by powers of two, both with rests of blocks."""
    experts, size, hidden = PACKED_SHAPE
    random = torch.Generator().manual_seed(9)

    def matrix(rows: int, columns: int) -> QuantizedMatrix:
        values = torch.randint(0, 256, (rows, columns // 2), generator=random, dtype=torch.uint8)
        scales = torch.exp2(torch.randint(-5, -1, (rows, columns // 32), generator=random)).bfloat16()
        return QuantizedMatrix("fp4", values.to(DEVICE), scales.to(DEVICE), None, columns, 32)

    return matrix(2 * experts * size, hidden), matrix(experts * hidden, size)


def distance(found: Tensor, wanted: Tensor) -> float:
    """Relative to all of it: the definition rounds activations at every step, kernels once."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())


def biases(dtype: torch.dtype, shape: tuple[int, int, int]) -> dict[str, Tensor]:
    experts, size, hidden = shape
    random = torch.Generator().manual_seed(11)
    above, below = (torch.randn(rows, generator=random) for rows in (2 * experts * size, experts * hidden))
    return {"up_bias": above.to(DEVICE, dtype), "down_bias": below.to(DEVICE, dtype)}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [3, 9])
@pytest.mark.parametrize("weighs_input", [False, True])
def test_biases_clamped_gates_and_weights_of_inputs(tokens: int, dtype: torch.dtype, weighs_input: bool) -> None:
    from quire.ops.triton.experts_mlp import experts_mlp

    x, ids, weights = given(tokens, dtype)
    x = x * 4  # so that gates and ups go beyond their limits
    how = (x, ids, weights, *stacks(dtype), "clamped_swiglu")
    more = biases(dtype, SHAPE)
    found = experts_mlp(*how, **more, weighs_input=weighs_input)
    assert distance(found, reference(*how, **more, weighs_input=weighs_input)) < TOLERANCES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("tokens", [2, 9])
def test_mxfp4_is_multiplied_as_it_is_packed(tokens: int, dtype: torch.dtype) -> None:
    from quire.ops.triton.experts_mlp import experts_mlp

    experts, _, hidden = PACKED_SHAPE
    random = torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, hidden, generator=random).to(DEVICE, dtype) / 8
    ids = torch.rand(tokens, experts, generator=random).argsort(dim=-1)[:, :2].to(DEVICE)
    weights = torch.rand(ids.shape, generator=random).to(DEVICE)
    up, down = packed(dtype)
    more = biases(dtype, PACKED_SHAPE)
    found = experts_mlp(x, ids, weights, up, down, "clamped_swiglu", **more)
    plain = [expand_matrix(matrix, dtype) for matrix in (up, down)]
    assert all(torch.equal(values.float(), expand_matrix(matrix, torch.float32)) for values, matrix in
               zip(plain, (up, down), strict=True)), "expanded, nothing is rounded"  # fmt: skip
    wanted = reference(x, ids, weights, *plain, "clamped_swiglu", **more)
    assert distance(found, wanted) < TOLERANCES[dtype]


def test_every_code_of_mxfp4() -> None:
    """An expert for each code: what it multiplies by is that code alone."""
    from quire.ops.triton.experts_mlp import experts_mlp

    codes = torch.arange(16, dtype=torch.uint8)
    values = (codes | codes << 4).repeat_interleave(32)[:, None].expand(-1, 16).contiguous().to(DEVICE)
    scales = torch.full((16 * 32, 1), 0.25, dtype=torch.bfloat16, device=DEVICE)
    down = QuantizedMatrix("fp4", values, scales, None, 32, 32)
    up = torch.zeros(2 * 16 * 32, 32, device=DEVICE)
    up[: 16 * 32] = up[16 * 32 :] = torch.eye(32, device=DEVICE).repeat(16, 1)
    x = torch.zeros(16, 32, device=DEVICE)
    x[:, 5] = 1.0  # gate and up give 1 there, and relu leaves it
    for ids in (codes.view(-1, 1).long().to(DEVICE), codes.view(-1, 1)[:3].long().to(DEVICE)):
        count = len(ids)
        found = experts_mlp(x[:count], ids, torch.ones(count, 1, device=DEVICE), up, down, "relu")
        wanted = torch.tensor(TABLES["fp4"], device=DEVICE)[:count, None].expand(-1, 32) * 0.25
        assert torch.equal(found, wanted)


@pytest.mark.parametrize("tokens", [2, 70])
def test_all_tokens_choose_the_same_experts(tokens: int) -> None:
    check(*given(tokens, torch.float16, torch.tensor([[5, 0]]).expand(tokens, 2)))


def test_an_expert_has_no_token() -> None:
    check(*given(20, torch.float16, torch.tensor([[1, 4]]).repeat(20, 1)))


def test_one_expert_each() -> None:
    check(*given(19, torch.bfloat16, top_k=1))


@pytest.mark.parametrize("block_rows", [16, 64])
@pytest.mark.parametrize("tokens", [1, 130, 4096])
def test_tiles_hold_every_pair_once_beside_its_like(tokens: int, block_rows: int) -> None:
    from quire.ops.triton.expert_tiles import EMPTY, expert_tiles, most_tiles

    random = torch.Generator().manual_seed(tokens)
    ids = torch.rand(tokens, 13, generator=random).argsort(dim=-1)[:, :3].contiguous()
    tiles = expert_tiles(ids.to(DEVICE), 13, block_rows).cpu().view(-1, block_rows)
    assert len(tiles) == most_tiles(3 * tokens, 13, block_rows)
    assert tiles[tiles != EMPTY].sort().values.tolist() == list(range(3 * tokens))
    for tile in tiles:
        experts = ids.flatten()[tile[tile != EMPTY].long()]
        assert len(experts.unique()) <= 1
        assert (tile == EMPTY).all() or tile[0] != EMPTY


def test_a_token_alone_and_among_others() -> None:
    """To the bit, where both are computed in tiles of the same size."""
    from quire.ops.triton.experts_mlp import experts_mlp

    x, ids, weights = given(30, torch.float16)
    matrices = stacks(torch.float16)
    expected = experts_mlp(x, ids, weights, *matrices, "silu")
    for begin, end in ((0, 5), (7, 16), (20, 30)):
        part = slice(begin, end)
        assert torch.equal(experts_mlp(x[part], ids[part], weights[part], *matrices, "silu"), expected[part])


@pytest.mark.parametrize("scores", ["softmax", "sigmoid", "sparsemixer"])
@pytest.mark.parametrize("renormalize", [True, False])
@pytest.mark.parametrize(("experts", "top_k"), rarely([(60, 4), (8, 2), (5, 5), (128, 8)], every=2))
@pytest.mark.parametrize("corrected", [True, False])
def test_routes(scores: str, renormalize: bool, experts: int, top_k: int, corrected: bool) -> None:
    from quire.ops.triton.route_tokens import route_tokens

    random = torch.Generator().manual_seed(experts)
    logits = torch.randn(9, experts, generator=random).to(DEVICE)
    has_correction = corrected and scores != "sparsemixer"
    correction = torch.randn(experts, generator=random).to(DEVICE) if has_correction else None
    routing = Routing(top_k, scores, renormalize, scale=1.5, nearness=0.7)  # type: ignore[arg-type]
    ids, weights = route_tokens(logits, correction, routing)
    expected_ids, expected_weights = reference_route(logits, correction, routing)
    assert torch.equal(ids, expected_ids)
    torch.testing.assert_close(weights, expected_weights)


@pytest.mark.parametrize("group_score", ["largest", "two largest"])
@pytest.mark.parametrize(("experts", "groups", "top_groups"), [(16, 4, 2), (8, 8, 3), (12, 3, 2)])
def test_groups_of_experts(experts: int, groups: int, top_groups: int, group_score: str) -> None:
    from quire.ops.triton.route_tokens import route_tokens

    random = torch.Generator().manual_seed(groups)
    logits = torch.randn(11, experts, generator=random).to(DEVICE)
    correction = torch.randn(experts, generator=random).to(DEVICE)
    for scores in ("sigmoid", "softmax"):
        routing = Routing(3, scores, True, groups=groups, top_groups=top_groups, group_score=group_score)  # type: ignore[arg-type]
        ids, weights = route_tokens(logits, correction, routing)
        expected_ids, expected_weights = reference_route(logits, correction, routing)
        assert torch.equal(ids, expected_ids)
        torch.testing.assert_close(weights, expected_weights)


@pytest.mark.parametrize("routing", [Routing(2), Routing(2, "sigmoid", groups=3, top_groups=1)])
@pytest.mark.parametrize("counted", [None, 5, 0])
def test_choices_are_counted(routing: Routing, counted: int | None) -> None:
    """Of all tokens, or of the first ones; on top of what was counted before."""
    from quire.ops.triton.route_tokens import route_tokens

    logits = torch.randn(9, 12, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    counts = torch.full((12,), 7, dtype=torch.int32, device=DEVICE)
    most = None if counted is None else torch.tensor([counted], device=DEVICE)
    ids, _ = route_tokens(logits, None, routing, counts, most)
    assert (counts - 7).tolist() == ids[:counted].flatten().bincount(minlength=12).tolist()
    again = torch.full_like(counts, 7)
    reference_route(logits, None, routing, again, most)
    assert torch.equal(counts, again)


def test_equal_scores_and_groups() -> None:
    from quire.ops.triton.route_tokens import route_tokens

    logits = torch.zeros(3, 12, device=DEVICE)
    assert route_tokens(logits, None, Routing(3))[0].tolist() == [[0, 1, 2]] * 3
    grouped = Routing(2, "sigmoid", groups=3, top_groups=1)
    assert torch.equal(route_tokens(logits, None, grouped)[0], reference_route(logits, None, grouped)[0])


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [1, 4, 64, 4096])
def test_nothing_waits_and_graphs_hold_it(tokens: int) -> None:
    """A graph whose tokens choose other experts when it is replayed."""
    from quire.ops.triton.experts_mlp import experts_mlp
    from quire.ops.triton.route_tokens import route_tokens

    shape = (16, 128, 256)
    matrices, routing = stacks(torch.bfloat16, shape), Routing(4)
    x = torch.randn(tokens, shape[2], device=DEVICE, dtype=torch.bfloat16)
    logits = torch.randn(tokens, shape[0], device=DEVICE, dtype=torch.bfloat16)

    def layer() -> Tensor:
        return experts_mlp(x, *route_tokens(logits, None, routing), *matrices, "silu")

    layer()
    torch.cuda.set_sync_debug_mode("error")
    try:
        layer()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = layer()
    for one_expert in (False, True):
        logits.normal_()
        if one_expert:
            logits[:, 3] = 100.0
        graph.replay()
        expected = reference(x, *reference_route(logits, None, routing), *matrices, "silu")
        torch.testing.assert_close(found, expected, rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("tokens", [2, 9])
def test_experts_elsewhere_add_nothing(tokens: int) -> None:
    """Of the two halves of the experts each rank has one; both sums together are the sum over all."""
    from quire.ops.triton.experts_mlp import experts_mlp

    x, ids, weights = given(tokens, torch.float32)
    (experts, size, hidden), (up, down) = SHAPE, stacks(torch.float32)
    half, total = experts // 2, torch.zeros_like(x)
    for first in (0, half):
        rows = [up.view(2, experts, size, hidden)[:, first : first + half].reshape(-1, hidden)]
        rows.append(down.view(experts, hidden, size)[first : first + half].reshape(-1, size))
        here = (ids >= first) & (ids < first + half)
        own = torch.where(here, ids - first, -1)
        found = experts_mlp(x, own, weights, *rows, "silu", some_elsewhere=True)
        wanted = reference(x, own, weights, *rows, "silu", some_elsewhere=True)
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        total += wanted
    torch.testing.assert_close(total, reference(x, ids, weights, up, down, "silu"), rtol=1e-5, atol=1e-5)
