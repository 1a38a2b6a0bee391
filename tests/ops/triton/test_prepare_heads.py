"""The prepare_heads kernel against its definition."""

from itertools import product

import pytest
import torch

from quire.ops.head_norms import HeadNorms
from quire.ops.reference.prepare_heads import prepare_heads as reference
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton
from tests.rarely import rarely

pytestmark = needs_triton

BLOCK_SIZE = 4


def norms_of(head_dim: int, dtype: torch.dtype) -> HeadNorms:
    query, key = torch.rand(2, head_dim, dtype=dtype, device=DEVICE)
    return HeadNorms(query, key, 1e-6, 0.25)


OTHER_NORMS = [("rms", "of each head"), ("rms", "of all"), ("layer", "of a head"), ("layer", "of each head"),
               ("layer", "of all")]  # fmt: skip


def other_norms(
    num_heads: int, num_kv_heads: int, head_dim: int, kind: str, weights: str, dtype: torch.dtype
) -> HeadNorms:
    shapes = {
        "of a head": ((head_dim,), (head_dim,)),
        "of each head": ((num_heads, head_dim), (num_kv_heads, head_dim)),
        "of all": ((num_heads * head_dim,), (num_kv_heads * head_dim,)),
    }[weights]
    query, key = (torch.rand(shape, dtype=dtype, device=DEVICE) for shape in shapes)
    return HeadNorms(query, key, 1e-6, 0.25, kind=kind, span="all" if weights == "of all" else "head")


def angles_of(tokens: int, half: int) -> tuple[torch.Tensor, torch.Tensor]:
    angles = torch.rand(tokens, half, device=DEVICE) * 100
    return angles.cos(), angles.sin()


def check(
    heads: torch.Tensor,
    num_kv_heads: int,
    norms: HeadNorms | None,
    angles: tuple[torch.Tensor, torch.Tensor] | None,
) -> None:
    """Compares the queries, and the whole cache: what is not a slot of these tokens must stay."""
    from quire.ops.triton.prepare_heads import prepare_heads

    tokens, _, head_dim = heads.shape
    num_blocks = tokens // BLOCK_SIZE + 2
    slots = torch.randperm(num_blocks * BLOCK_SIZE, device=DEVICE)[:tokens]
    shape = (2, num_blocks, BLOCK_SIZE, num_kv_heads, head_dim)
    cache = torch.randn(shape, dtype=heads.dtype, device=DEVICE)
    expected_cache = cache.clone()
    expected = reference(heads.clone(), num_kv_heads, norms, angles, *expected_cache, slots)
    query = prepare_heads(heads, num_kv_heads, norms, angles, *cache, slots)
    close = TOLERANCES[heads.dtype]
    assert query.is_contiguous()
    torch.testing.assert_close(query, expected, rtol=close, atol=close)
    torch.testing.assert_close(cache, expected_cache, rtol=close, atol=close)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("normed", "turned"), list(product((False, True), repeat=2)))
@pytest.mark.parametrize(
    ("tokens", "num_heads", "num_kv_heads", "head_dim"),
    [(1, 32, 8, 128), (5, 14, 2, 64), (3, 3, 1, 80), (2, 6, 6, 96), (0, 4, 2, 64)],
)
def test_shapes(
    tokens: int, num_heads: int, num_kv_heads: int, head_dim: int, normed: bool, turned: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    heads = torch.randn(tokens, num_heads + 2 * num_kv_heads, head_dim, dtype=dtype, device=DEVICE)
    norms = norms_of(head_dim, dtype) if normed else None
    check(heads, num_kv_heads, norms, angles_of(tokens, head_dim // 2) if turned else None)


@pytest.mark.sanitize
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("kind", "weights"), rarely(OTHER_NORMS, every=2))
@pytest.mark.parametrize(
    ("tokens", "num_heads", "num_kv_heads", "head_dim"),
    [(2, 32, 8, 128), (5, 14, 2, 64), (3, 3, 1, 80), (2, 40, 40, 128), (0, 4, 2, 64)],
)
def test_norms_of_every_kind(
    tokens: int, num_heads: int, num_kv_heads: int, head_dim: int, kind: str, weights: str, dtype: torch.dtype
) -> None:
    torch.manual_seed(7)
    heads = torch.randn(tokens, num_heads + 2 * num_kv_heads, head_dim, dtype=dtype, device=DEVICE) + 0.5
    norms = other_norms(num_heads, num_kv_heads, head_dim, kind, weights, dtype)
    assert not norms.is_plain
    check(heads, num_kv_heads, norms, angles_of(tokens, head_dim // 2))


@pytest.mark.parametrize(("kind", "weights"), OTHER_NORMS)
def test_norms_of_every_kind_on_heads_of_a_wider_projection(kind: str, weights: str) -> None:
    """Also that nothing around the heads changes, and no value among them."""
    torch.manual_seed(8)
    wide = torch.randn(3, 20, 100, device=DEVICE)
    before = wide.clone()
    check(wide[:, 2:10, 11:75], 2, other_norms(4, 2, 64, kind, weights, torch.float32), None)
    wide[:, 2:8, 11:75] = before[:, 2:8, 11:75]
    assert torch.equal(wide, before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("half", [1, 12, 16, 30])
def test_only_the_first_of_a_head_is_turned(half: int, dtype: torch.dtype) -> None:
    torch.manual_seed(2)
    check(torch.randn(3, 8, 64, dtype=dtype, device=DEVICE), 2, norms_of(64, dtype), angles_of(3, half))


@pytest.mark.sanitize
def test_more_heads_than_a_program_takes() -> None:
    torch.manual_seed(3)
    check(torch.randn(2, 21 + 2 * 9, 512, device=DEVICE), 9, norms_of(512, torch.float32), angles_of(2, 256))


@pytest.mark.sanitize
def test_heads_of_a_wider_projection() -> None:
    torch.manual_seed(4)
    wide = torch.randn(3, 20, 100, device=DEVICE)
    cos, sin = (torch.cat((each, each), dim=1)[:, 7:39] for each in angles_of(3, 40))
    check(wide[:, 2:10, 11:75], 2, norms_of(64, torch.float32), (cos, sin))


@pytest.mark.parametrize("cache_dtype", [torch.float32, torch.bfloat16])
def test_a_cache_of_another_type(cache_dtype: torch.dtype) -> None:
    from quire.ops.triton.prepare_heads import prepare_heads

    torch.manual_seed(5)
    heads, norms, angles = torch.randn(5, 8, 64, device=DEVICE).half(), norms_of(64, torch.float16), angles_of(5, 32)
    slots = torch.tensor([3, 9, 4, 0, 6], device=DEVICE)
    cache = torch.zeros(2, 3, BLOCK_SIZE, 2, 64, dtype=cache_dtype, device=DEVICE)
    expected = torch.zeros_like(cache)
    reference(heads, 2, norms, angles, *expected, slots)
    prepare_heads(heads, 2, norms, angles, *cache, slots)
    close = max(TOLERANCES[cache_dtype], TOLERANCES[heads.dtype])
    torch.testing.assert_close(cache, expected, rtol=close, atol=close)


@pytest.mark.sanitize
def test_slots_of_any_order_and_stride() -> None:
    from quire.ops.triton.prepare_heads import prepare_heads

    torch.manual_seed(6)
    heads = torch.randn(2, 4, 16, device=DEVICE)
    keys, values = torch.zeros(2, 100, BLOCK_SIZE, 1, 16, device=DEVICE)
    slots = torch.tensor([399, 0, 7], device=DEVICE)[::2]
    query = prepare_heads(heads, 1, None, None, keys, values, slots)
    assert torch.equal(query, heads[:, :2])
    assert torch.equal(keys.view(-1, 16)[slots], heads[:, 2])
    assert torch.equal(values.view(-1, 16)[slots], heads[:, 3])
    assert keys.count_nonzero() == values.count_nonzero() == heads[:, 3].numel()
