"""The kernels that write and read a cache in fp8, against their definitions."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from quire.ops.reference.paged_attention import paged_attention as attend_reference
from quire.ops.reference.prepare_heads import prepare_heads as prepare_reference
from tests.ops.triton.device import DEVICE, needs_triton
from tests.ops.triton.test_paged_attention import Sequences, both_kernels, make_step
from tests.ops.triton.test_prepare_heads import BLOCK_SIZE, angles_of
from tests.ops.triton.test_shared_prefix_attention import make_tiles, share
from tests.rarely import rarely

pytestmark = needs_triton

FORMATS = (torch.float8_e4m3fn, torch.float8_e5m2)
both_formats = pytest.mark.parametrize("stored", FORMATS, ids=["e4m3", "e5m2"])
SCALES = (0.03, 0.25)
CLOSE = 4e-3
"""Numbers of a cache are exact in float16; queries and weights are rounded to it."""


def scales_of(keys: float, values: float) -> Tensor:
    return torch.tensor([keys, values], device=DEVICE)


def bits(cache: Tensor) -> Tensor:
    return cache.view(torch.uint8)


def check_stored(
    heads: Tensor, num_kv_heads: int, angles: tuple[Tensor, Tensor] | None, stored: torch.dtype, scales: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The cache as kernel and definition leave it; what is not a slot of these tokens must stay."""
    from quire.ops.triton.prepare_heads import prepare_heads

    tokens, _, head_dim = heads.shape
    slots = torch.randperm(3 * BLOCK_SIZE, device=DEVICE)[:tokens]
    cache = torch.randn(2, 3, BLOCK_SIZE, num_kv_heads, head_dim, device=DEVICE).to(stored)
    expected = bits(cache).clone().view(stored)
    wanted = prepare_reference(heads.clone(), num_kv_heads, None, angles, *expected, slots, scales)
    query = prepare_heads(heads, num_kv_heads, None, angles, *cache, slots, scales)
    torch.testing.assert_close(query, wanted, rtol=3e-2, atol=3e-2)
    return cache, expected


shapes = pytest.mark.parametrize(
    ("tokens", "num_heads", "num_kv_heads", "head_dim", "half"),
    [(3, 32, 8, 128, 64), (5, 14, 2, 64, 12), (4, 3, 1, 80, 0)],
)


@pytest.mark.sanitize
@both_formats
@shapes
@pytest.mark.parametrize("scales", [None, (0.25, 4.0)])
def test_numbers_that_fp8_holds_are_stored_exactly(
    stored: torch.dtype,
    tokens: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    half: int,
    scales: tuple[float, float] | None,
) -> None:
    torch.manual_seed(1)
    heads = torch.randn(tokens, num_heads + 2 * num_kv_heads, head_dim, device=DEVICE).clamp(0.1).to(stored).bfloat16()
    quarter = torch.randint(0, 2, (tokens, half), device=DEVICE).float()
    given = None if scales is None else scales_of(*scales)
    cache, expected = check_stored(heads, num_kv_heads, (quarter, 1 - quarter) if half else None, stored, given)
    assert torch.equal(bits(cache), bits(expected))


@pytest.mark.sanitize
@pytest.mark.skipif(DEVICE.type == "cpu", reason="Triton's interpreter does not round to fp8 as GPUs do")
@both_formats
@shapes
@pytest.mark.parametrize("scales", [None, SCALES])
def test_other_numbers_are_rounded_as_the_reference_rounds_them(
    stored: torch.dtype,
    tokens: int,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    half: int,
    scales: tuple[float, float] | None,
) -> None:
    torch.manual_seed(2)
    heads = torch.randn(tokens, num_heads + 2 * num_kv_heads, head_dim, device=DEVICE).bfloat16()
    given = None if scales is None else scales_of(*scales)
    angles = angles_of(tokens, half) if half else None
    cache, expected = check_stored(heads, num_kv_heads, angles, stored, given)
    # what turns out otherwise in the last bit of bfloat16 may be a neighbour in fp8
    torch.testing.assert_close(cache.float(), expected.float(), rtol=torch.finfo(stored).eps, atol=2e-3)
    assert (bits(cache) != bits(expected)).float().mean() < 0.01


@both_formats
def test_what_is_out_of_range_is_the_largest_and_nan_stays(stored: torch.dtype) -> None:
    from quire.ops.triton.prepare_heads import prepare_heads

    most = torch.finfo(stored).max
    nan = torch.nan if DEVICE.type == "cuda" else 0.5  # which Triton's interpreter makes a number
    values = [0.0, 1.5 * most, -1e18, most, 2.0**-6, nan, 1e18, 1.0]
    heads = torch.tensor(values, device=DEVICE).repeat(4).view(1, 4, 8)
    keys, numbers = torch.zeros(2, 1, BLOCK_SIZE, 1, 8, device=DEVICE).to(stored)
    prepare_heads(heads, 1, None, None, keys, numbers, torch.tensor([2], device=DEVICE))
    wanted = torch.tensor([0.0, most, -most, most, 2.0**-6, nan, most, 1.0], device=DEVICE)
    for cache in (keys, numbers):
        assert torch.equal(cache[0, 2, 0].float().nan_to_num(-1), wanted.nan_to_num(-1))


@pytest.mark.sanitize
@both_kernels
@both_formats
@pytest.mark.parametrize(
    ("head_dim", "scales"),
    rarely(
        [(8, SCALES), (80, None), (8, None), (80, SCALES), (64, SCALES), (128, SCALES), (64, None), (256, None)],
        every=4,
    ),
)
def test_attention_over_what_the_cache_stands_for(
    sequences: Sequences, stored: torch.dtype, head_dim: int, scales: tuple[float, float] | None
) -> None:
    from quire.ops.triton.paged_attention import paged_attention

    step = make_step(sequences, (2, 2, head_dim), torch.bfloat16, cache_dtype=stored)
    given = None if scales is None else scales_of(*scales)
    scale = head_dim**-0.5 / (1 if scales is None else scales[0])
    found = paged_attention(*step.arguments(), scale, None, None, given)
    wanted = attend_reference(*step.arguments(), scale, None, None, given)
    assert wanted.isfinite().all()
    torch.testing.assert_close(found, wanted, atol=1e-2, rtol=1e-2)  # that of a query in bfloat16


@both_kernels
@both_formats
@pytest.mark.parametrize(("window", "softcap"), [(17, None), (None, 3.0), (100, 3.0)])
def test_windows_and_caps(sequences: Sequences, stored: torch.dtype, window: int | None, softcap: float | None) -> None:
    from quire.ops.triton.paged_attention import paged_attention

    step = make_step(sequences, (1, 3, 16), torch.float16, cache_dtype=stored)
    given = scales_of(*SCALES)
    found = paged_attention(*step.arguments(), 10.0, window, softcap, given)
    wanted = attend_reference(*step.arguments(), 10.0, window, softcap, given)
    torch.testing.assert_close(found, wanted, atol=CLOSE, rtol=CLOSE)


@both_formats
@pytest.mark.parametrize("scales", [None, SCALES])
def test_a_shared_prefix(stored: torch.dtype, scales: tuple[float, float] | None) -> None:
    from quire.ops.triton.shared_prefix_attention import shared_prefix_attention

    tiles = [([0, 1, 2, 3, 4], 256)]
    lengths = (300, 289, 400, 417, 257)
    step = share(make_step(tuple((length, 1) for length in lengths), (2, 3, 64), torch.float16, 16, stored), tiles)
    given = None if scales is None else scales_of(*scales)
    found = shared_prefix_attention(*step.arguments(), make_tiles(5, tiles, 16), 0.3, None, None, given)
    wanted = attend_reference(*step.arguments(), 0.3, None, None, given)
    torch.testing.assert_close(found, wanted, atol=CLOSE, rtol=CLOSE)


@pytest.mark.filterwarnings("ignore:All-NaN")
@both_kernels
def test_a_query_beyond_the_range_of_float16(sequences: Sequences) -> None:
    """It attends as one at the end of that range does; NaN spoils its own head alone."""
    from quire.ops.triton.paged_attention import paged_attention

    step = make_step(sequences, (1, 2, 16), torch.bfloat16, cache_dtype=torch.float8_e4m3fn)
    huge = step.query.clone()
    huge[0, 0] = 1e9
    huge[1, 1, 3] = torch.nan
    found = paged_attention(*replace(step, query=huge).arguments(), 0.3, None, None)
    assert found[0].isfinite().all()
    assert found[1, 1].isnan().all()
    assert found[1, 0].isfinite().all()
