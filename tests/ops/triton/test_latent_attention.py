"""The kernels of latent attention against their definitions: prompts, chunks and decodes, in every form."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from quire.core.pasts import Pasts
from quire.ops.reference.latent_attention import latent_attention as attend_reference
from quire.ops.reference.prepare_latent import prepare_latent as prepare_reference
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton
from tests.rarely import rarely

pytestmark = needs_triton

Sequences = tuple[tuple[int, int], ...]
CASES: dict[str, Sequences] = {
    "mixed": ((1, 1), (9, 9), (20, 1), (33, 7), (20, 20), (65, 2)),
    "decodes": ((1, 1), (200, 1), (64, 1), (65, 1), (17, 1)),
    "prompts": ((5, 5), (36, 36), (1, 1)),
    "sorted": ((30, 1), (4, 1), (8, 8), (25, 25)),
    "chunk": ((80, 67),),
}
"""Length and new tokens of each sequence."""
SHAPES = ((8, 32, 16, 32, 64), (3, 24, 8, 12, 40))
"""Heads, and the sizes of what is not turned, what is, values and latents: powers of 2, and others."""
every_case = pytest.mark.parametrize("sequences", CASES.values(), ids=CASES)


@dataclass(frozen=True)
class Step:
    """What a layer's projections give, and sequences whose earlier tokens are cached; what no one wrote is NaN."""

    query: Tensor
    compressed: Tensor
    weight: Tensor
    angles: tuple[Tensor, Tensor]
    up: Tensor
    cache: Tensor
    slots: Tensor
    tables: Tensor
    query_starts: Tensor
    lengths: Tensor
    nope_dim: int
    pasts: Pasts | None
    scales: Tensor | None = None

    def copy(self) -> "Step":
        cache = self.cache.view(torch.uint8).clone().view(self.cache.dtype)
        return replace(self, query=self.query.clone(), compressed=self.compressed.clone(), cache=cache)


def pasts_of(sequences: Sequences) -> Pasts:
    """As a worker's `PlanLengths` tells."""
    starts = [sum(new for _, new in sequences[:place]) for place in range(len(sequences) + 1)]
    past = max((place + 1 for place, (length, new) in enumerate(sequences) if length > new), default=0)
    fresh = next((place for place, (length, new) in enumerate(sequences) if length == new), len(sequences))
    return Pasts(past, starts[past], fresh, starts[fresh])


def make_step(
    sequences: Sequences,
    shape: tuple[int, int, int, int, int],
    dtype: torch.dtype = torch.float32,
    cache_dtype: torch.dtype | None = None,
    scale: float | None = None,
    block_size: int = 16,
) -> Step:
    heads, nope, rope, value, latent = shape
    generator = torch.Generator().manual_seed(heads + latent)

    def random(*sizes: int) -> Tensor:
        return torch.randn(sizes, generator=generator)

    counts = [-(-length // block_size) for length, _ in sequences]
    unused = iter(torch.randperm(sum(counts) + 1, generator=generator).tolist())
    cache = torch.full((sum(counts) + 1, block_size, latent + rope), torch.nan)
    tables = torch.zeros(len(sequences), max(counts), dtype=torch.int32)
    slots = []
    for table, (length, new), count in zip(tables, sequences, counts, strict=True):
        table[:count] = torch.tensor([next(unused) for _ in range(count)], dtype=torch.int32)
        positions = torch.arange(length)
        places = table.long()[positions // block_size] * block_size + positions % block_size
        cache.view(-1, latent + rope)[places[: length - new]] = random(length - new, latent + rope)
        slots.append(places[length - new :])
    starts = torch.tensor([0, *(new for _, new in sequences)]).cumsum(0)
    tokens = int(starts[-1])
    angle = random(tokens, rope // 2)
    # as a model gives them: views of wider rows
    projected = random(tokens, heads * (nope + rope) + latent + rope).to(DEVICE, dtype)
    stored = cache_dtype or dtype
    return Step(
        query=projected[:, : heads * (nope + rope)].view(tokens, heads, nope + rope),
        compressed=projected[:, heads * (nope + rope) :],
        weight=(1 + 0.1 * random(latent)).to(DEVICE, dtype),
        angles=(angle.cos().to(DEVICE), angle.sin().to(DEVICE)),
        up=(random(heads * (nope + value), latent) / latent**0.5).to(DEVICE, dtype),
        cache=cache.to(stored).to(DEVICE),
        slots=torch.cat(slots).to(DEVICE),
        tables=tables.to(DEVICE),
        query_starts=starts.to(DEVICE),
        lengths=torch.tensor([length for length, _ in sequences]).to(DEVICE),
        nope_dim=nope,
        pasts=pasts_of(sequences),
        scales=None if scale is None else torch.tensor([scale, 7.0], device=DEVICE),
    )


def prepared(step: Step, *, by_kernel: bool) -> tuple[Tensor, Tensor]:
    from quire.ops.triton.prepare_latent import prepare_latent  # after the mark has skipped where there is no triton

    function = prepare_latent if by_kernel else prepare_reference
    return function(step.query, step.compressed, step.weight, 1e-6, step.angles, step.cache, step.slots, step.scales)


def attended(step: Step, query: Tensor, latents: Tensor, *, by_kernel: bool) -> Tensor:
    from quire.ops.triton.latent_attention import latent_attention

    function = latent_attention if by_kernel else attend_reference
    places = (step.cache, step.tables, step.query_starts, step.lengths)
    return function(query, latents, step.up, *places, step.nope_dim, 0.2, step.scales, step.pasts)


def check(step: Step, tolerance: float) -> None:
    other = step.copy()
    query, latents = prepared(step, by_kernel=True)
    wanted_query, wanted_latents = prepared(other, by_kernel=False)
    close = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(query, wanted_query, **close)
    torch.testing.assert_close(latents, wanted_latents, **close)
    torch.testing.assert_close(step.cache.float(), other.cache.float(), equal_nan=True, **close)
    found = attended(step, query, latents, by_kernel=True)
    expected = attended(step, query, latents, by_kernel=False)
    assert found.is_contiguous()
    torch.testing.assert_close(found, expected, **close)


@pytest.mark.sanitize
@every_case
@pytest.mark.parametrize("shape", SHAPES, ids=["usual", "odd"])
def test_as_defined(sequences: Sequences, shape: tuple[int, int, int, int, int]) -> None:
    check(make_step(sequences, shape), TOLERANCES[torch.float32])


@pytest.mark.parametrize("sequences", [((20, 3), (4, 4)), ((9, 1), (40, 1))], ids=["mixed", "decodes"])
def test_more_heads_than_a_tile_has(sequences: Sequences) -> None:
    check(make_step(sequences, (66, 16, 16, 16, 16)), TOLERANCES[torch.float32])


@every_case
@pytest.mark.parametrize("dtype", rarely(DTYPES[1:], every=2), ids=str)
def test_in_16_bits(sequences: Sequences, dtype: torch.dtype) -> None:
    check(make_step(sequences, SHAPES[0], dtype), 2 * TOLERANCES[dtype])


def test_whether_it_is_told_of_pasts_changes_nothing() -> None:
    step = make_step(CASES["mixed"], SHAPES[1])
    query, latents = prepared(step, by_kernel=True)
    told = attended(step, query, latents, by_kernel=True)
    torch.testing.assert_close(attended(replace(step, pasts=None), query, latents, by_kernel=True), told)


def test_no_tokens() -> None:
    step = make_step(CASES["mixed"], SHAPES[0])
    empty = replace(step, query_starts=step.query_starts[:1], lengths=step.lengths[:0], tables=step.tables[:0])
    found = attended(empty, step.query[:0], step.compressed[:0], by_kernel=True)
    assert found.shape == (0, 8, 32)


@pytest.mark.gpu
@every_case
def test_deepseeks_own_shape(sequences: Sequences) -> None:
    check(make_step(sequences, (16, 128, 64, 128, 512), torch.bfloat16, block_size=16), 0.06)


@every_case
@pytest.mark.parametrize("stored", [torch.float8_e4m3fn, torch.float8_e5m2], ids=["e4m3", "e5m2"])
def test_a_cache_in_fp8(sequences: Sequences, stored: torch.dtype) -> None:
    """Numbers of the cache are exact in float16; queries and weights are rounded to it."""
    step = make_step(sequences, SHAPES[1], torch.float16, stored, scale=0.5)
    query, latents = prepared(step, by_kernel=False)
    held = step.cache.view(-1, latents.shape[1]).float()[step.slots] * 0.5  # as kernels give latents back
    found = attended(step, query, held.to(latents.dtype), by_kernel=True)
    expected = attended(step, query, latents, by_kernel=False)
    torch.testing.assert_close(found, expected, rtol=8e-3, atol=8e-3)


@pytest.mark.skipif(DEVICE.type == "cpu", reason="Triton's interpreter does not round to fp8 as GPUs do")
@pytest.mark.parametrize("stored", [torch.float8_e4m3fn, torch.float8_e5m2], ids=["e4m3", "e5m2"])
def test_latents_are_given_back_as_fp8_holds_them(stored: torch.dtype) -> None:
    step = make_step(CASES["mixed"], SHAPES[0], torch.bfloat16, stored, scale=0.5)
    other = step.copy()
    query, latents = prepared(step, by_kernel=True)
    wanted, _ = prepared(other, by_kernel=False)
    torch.testing.assert_close(query, wanted, rtol=3e-2, atol=3e-2)
    torch.testing.assert_close(step.cache.float(), other.cache.float(), rtol=0.3, atol=1e-2, equal_nan=True)
    held = step.cache.view(-1, latents.shape[1]).float()[step.slots] * 0.5
    torch.testing.assert_close(latents.float(), held, rtol=1e-2, atol=0)
