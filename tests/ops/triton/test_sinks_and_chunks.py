"""Attention with sinks and in chunks of positions: every kernel against the reference."""

import pytest
import torch
from torch import Tensor

from quire.ops.reference.paged_attention import paged_attention as reference
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton
from tests.ops.triton.test_paged_attention import Sequences, Step, both_kernels, make_step
from tests.ops.triton.test_shared_prefix_attention import make_tiles, share

pytestmark = [needs_triton, pytest.mark.sanitize]


def sinks_of(step: Step) -> Tensor:
    """Some of them outweigh all keys, some weigh nothing."""
    sinks = torch.randn(step.query.shape[1], generator=torch.Generator().manual_seed(3)) * 3
    sinks[0], sinks[-1] = 30.0, -300.0
    return sinks.to(DEVICE)


def assert_as_reference(
    step: Step,
    sinks: Tensor | None,
    chunk: int | None = None,
    window: int | None = None,
    softcap: float | None = None,
    scales: Tensor | None = None,
    tolerance: float = 0.0,
) -> None:
    from quire.ops.triton.paged_attention import paged_attention

    how = (0.3, window, softcap, scales, sinks, chunk)
    wanted = reference(*step.arguments(), *how)
    close = tolerance or max(TOLERANCES[step.query.dtype], TOLERANCES[step.keys.dtype])
    torch.testing.assert_close(paged_attention(*step.arguments(), *how), wanted, atol=close, rtol=close)


@both_kernels
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 17])
def test_sinks(sequences: Sequences, dtype: torch.dtype, window: int | None) -> None:
    step = make_step(sequences, (2, 3, 16), dtype)
    assert_as_reference(step, sinks_of(step), window=window)


@both_kernels
def test_sinks_are_not_capped(sequences: Sequences) -> None:
    step = make_step(sequences, (1, 4, 16))
    assert_as_reference(step, sinks_of(step), softcap=3.0)


@both_kernels
@pytest.mark.parametrize("stored", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_sinks_beside_a_cache_in_fp8(sequences: Sequences, stored: torch.dtype) -> None:
    """Sinks are scores as they are, whatever keys were divided by."""
    step = make_step(sequences, (2, 2, 32), torch.bfloat16, cache_dtype=stored)
    assert_as_reference(step, sinks_of(step), scales=torch.tensor([0.5, 0.25], device=DEVICE), tolerance=2e-2)


@both_kernels
@pytest.mark.parametrize("chunk", [1, 16, 40, 500])
def test_chunks(sequences: Sequences, chunk: int) -> None:
    assert_as_reference(make_step(sequences, (1, 3, 16)), None, chunk)


@pytest.mark.parametrize("chunk", [50, 64, 150])
def test_a_prompt_over_several_chunks_in_many_tiles(chunk: int) -> None:
    assert_as_reference(make_step(((301, 260), (5, 1)), (1, 2, 16), torch.float16), None, chunk)


@pytest.mark.parametrize("chunk", [None, 100])
def test_beside_shared_prefixes(chunk: int | None) -> None:
    from quire.ops.triton.shared_prefix_attention import shared_prefix_attention

    tiles = [([0, 1, 2], 384)]
    step = share(make_step(tuple((400 + index, 1) for index in range(3)), (1, 2, 32)), tiles)
    how = (0.3, None, None, None, sinks_of(step), chunk)
    found = shared_prefix_attention(*step.arguments(), make_tiles(3, tiles, 4), *how)
    torch.testing.assert_close(found, reference(*step.arguments(), *how), atol=1e-4, rtol=1e-4)
