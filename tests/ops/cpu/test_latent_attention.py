"""Latents that are written to a cache and attended to as one program, against the reference ops."""

from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quire.ops.cpu.packed_heads import PackedHeads, PackedUp
from quire.ops.cpu.packing import Packing
from quire.ops.cpu.tape import NotRecordable, Tape, TapeInput, Value
from quire.ops.functional import latent_attention, prepare_latent
from tests.ops.cpu.machines import (
    VARIANTS,
    every_thread_count,
    every_variant,
    machine,
    needs_core,
    rounds_to_brains,
    run_recorded,
)

pytestmark = needs_core

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MIXED = ((1, 1), (9, 9), (20, 1), (33, 7), (70, 70), (65, 2), (600, 1))
"""Length and new tokens of each sequence: decodes, whole prompts and chunks."""
COS, SIN = (TapeInput(name, 4) for name in ("cos", "sin"))
TABLES, STARTS, LENGTHS, SLOTS = (TapeInput(name) for name in ("tables", "starts", "lengths", "slots"))
EPS, SCALE = 1e-6, 0.2


@dataclass(frozen=True)
class Sizes:
    heads: int = 3
    nope: int = 16
    latent: int = 32
    value: int = 24
    rotary: int = 8


@dataclass(frozen=True)
class Step:
    """Sequences whose earlier latents are in the cache, in blocks all over it; what no one wrote is NaN."""

    sizes: Sizes
    query: Tensor
    compressed: Tensor
    weight: Tensor
    up: Tensor
    angles: tuple[Tensor, Tensor]
    cache: Tensor
    tables: Tensor
    starts: Tensor
    lengths: Tensor
    slots: Tensor

    def reference(self) -> Tensor:
        sequences = (self.tables, self.starts, self.lengths)
        given = (self.query, self.compressed, self.weight, EPS, self.angles, cache := self.cache.clone(), self.slots)
        query, latents = prepare_latent(*given)
        return latent_attention(query, latents, self.up, cache, *sequences, nope_dim=self.sizes.nope, scale=SCALE)

    def recorded(self, variant: str, threads: int = 1, prompts: range = range(0)) -> Tensor:
        up, cache = self.packed_up(variant), self.cache.clone()

        def both(query: Value, compressed: Value) -> Value:
            given = (query, compressed, self.weight, EPS, (COS, SIN), cache, SLOTS)
            query, latents = prepare_latent(*given)  # type: ignore[arg-type, assignment]
            sequences = (TABLES, STARTS, LENGTHS)
            return latent_attention(  # type: ignore[return-value]
                query,
                latents,
                up,
                cache,
                *sequences,
                nope_dim=self.sizes.nope,
                scale=SCALE,  # type: ignore[arg-type]
            )

        given = {
            "tables": self.tables,
            "starts": self.starts,
            "lengths": self.lengths,
            "slots": self.slots,
            "cos": self.angles[0],
            "sin": self.angles[1],
            "num_sequences": torch.tensor(len(self.lengths)),
        }
        return run_recorded(variant, both, self.query, self.compressed, threads=threads, given=given, prompts=prompts)

    def packed_up(self, variant: str) -> PackedUp:
        sizes, packing = self.sizes, Packing(machine(variant))
        keys, values = self.up.split((sizes.heads * sizes.nope, sizes.heads * sizes.value))
        return PackedUp(
            packing.heads("keys", keys.unflatten(0, (sizes.heads, -1)).transpose(1, 2)),
            packing.heads("values", values.unflatten(0, (sizes.heads, -1))),
        )


def make_step(
    sequences: tuple[tuple[int, int], ...],
    sizes: Sizes = Sizes(),
    dtype: torch.dtype = torch.float32,
    up_dtype: torch.dtype = torch.float32,
    block_size: int = 16,
) -> Step:
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    counts = [-(-length // block_size) for length, _ in sequences]
    order = iter(torch.randperm(sum(counts) + 1, generator=generator).split(1))
    cached = sizes.latent + sizes.rotary
    cache = torch.full((sum(counts) + 1, block_size, cached), torch.nan, dtype=dtype)
    tables = torch.zeros(len(sequences), max(counts), dtype=torch.int32)
    slots = []
    for place, (length, new) in enumerate(sequences):
        blocks = torch.cat([next(order) for _ in range(counts[place])])
        tables[place, : len(blocks)] = blocks
        positions = torch.arange(length)
        its_slots = blocks[positions // block_size] * block_size + positions % block_size
        cache.view(-1, cached)[its_slots[: length - new]] = normal(length - new, cached).to(dtype)
        slots.append(its_slots[length - new :])
    tokens = sum(new for _, new in sequences)
    turned = normal(tokens, sizes.rotary // 2)
    return Step(
        sizes,
        query=normal(tokens, sizes.heads, sizes.nope + sizes.rotary),
        compressed=normal(tokens, cached),
        weight=normal(sizes.latent),
        up=(normal(sizes.heads * (sizes.nope + sizes.value), sizes.latent) * sizes.latent**-0.5).to(up_dtype),
        angles=(turned.cos(), turned.sin()),
        cache=cache,
        tables=tables,
        starts=torch.tensor([0, *(new for _, new in sequences)]).cumsum(0),
        lengths=torch.tensor([length for length, _ in sequences]),
        slots=torch.cat(slots),
    )


def assert_as_reference(step: Step, variant: str, threads: int, tolerance: float = 2e-5) -> None:
    wanted = step.reference()
    assert wanted.isfinite().all()
    for prompts in (range(0), range(len(step.query))):
        rounds = step.up.dtype != torch.float32 or (prompts and step.cache.dtype is torch.bfloat16)
        allowed = 0.05 if rounds and rounds_to_brains(variant) else tolerance
        found = step.recorded(variant, threads, prompts)
        torch.testing.assert_close(found, wanted, atol=allowed, rtol=10 * allowed)


@every_variant
@every_thread_count
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("up_dtype", DTYPES)
def test_numbers_of_caches_and_matrices(variant: str, threads: int, dtype: torch.dtype, up_dtype: torch.dtype) -> None:
    # a latent may be rounded to 16 bits either way where the core and the reference differ in its last bit
    tolerance = {torch.float32: 2e-5, torch.float16: 1e-3, torch.bfloat16: 1e-2}[dtype]
    assert_as_reference(make_step(MIXED, Sizes(), dtype, up_dtype), variant, threads, tolerance)


@every_variant
@pytest.mark.parametrize(
    "sizes",
    [
        Sizes(heads=16, nope=128, latent=512, value=128),  # as released
        Sizes(heads=130, nope=32),  # more rows of a token than a task takes
        Sizes(heads=5, nope=10, latent=24, value=7),  # in parts of panels and vectors
        Sizes(heads=1, nope=1, latent=1, value=1),
    ],
    ids=str,
)
def test_sizes(variant: str, sizes: Sizes) -> None:
    assert_as_reference(make_step(((40, 3), (300, 1), (17, 17)), sizes), variant, 2, 1e-4)


@every_variant
@every_thread_count
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", [Sizes(), Sizes(heads=16, value=32), Sizes(latent=24)], ids=str)
@pytest.mark.parametrize("is_prompt", [False, True])
def test_a_token_alone_is_exactly_that_among_others(
    variant: str, threads: int, dtype: torch.dtype, sizes: Sizes, is_prompt: bool
) -> None:
    prompt = make_step(((300, 300),), sizes, dtype, torch.bfloat16)
    together = prompt.recorded(variant, threads, range(300 if is_prompt else 0))
    written = written_by_core(prompt, variant)
    for position in (0, 63, 64, 177, 299):
        own = slice(position, position + 1)
        alone = replace(
            prompt,
            query=prompt.query[own],
            compressed=prompt.compressed[own],
            slots=prompt.slots[own],
            angles=(prompt.angles[0][own], prompt.angles[1][own]),
            cache=written,
            starts=torch.tensor([0, 1]),
            lengths=torch.tensor([position + 1]),
        )
        found = alone.recorded(variant, threads, range(1 if is_prompt else 0))
        assert torch.equal(found[0], together[position])


def written_by_core(step: Step, variant: str) -> Tensor:
    """The cache with the latents of all of the step's tokens."""
    cache = step.cache.clone()

    def write(query: Value, compressed: Value) -> Value:
        given = (query, compressed, step.weight, EPS, (COS, SIN), cache, SLOTS)
        return prepare_latent(*given)[0]  # type: ignore[arg-type, return-value]

    given = {"slots": step.slots, "cos": step.angles[0], "sin": step.angles[1]}
    run_recorded(variant, write, step.query, step.compressed, given=given)
    return cache


@every_variant
@every_thread_count
def test_prompts_among_answers(variant: str, threads: int) -> None:
    step = make_step(((300, 1), (40, 5), (33, 33), (400, 70), (90, 2)), dtype=torch.bfloat16)
    prompts = range(6, 109)
    found = step.recorded(variant, threads, prompts)
    as_answers = step.recorded(variant, threads)
    as_prompts = step.recorded(variant, threads, range(len(step.query)))
    for row in range(len(step.query)):
        assert torch.equal(found[row], (as_prompts if row in prompts else as_answers)[row])


@every_variant
@given(
    lengths=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200)), min_size=1, max_size=4),
    sizes=st.builds(
        Sizes,
        heads=st.integers(1, 20),
        nope=st.integers(1, 40),
        latent=st.sampled_from([1, 7, 16, 24, 64]),
        value=st.integers(1, 40),
    ),
    dtype=st.sampled_from(DTYPES),
    block_size=st.sampled_from([1, 3, 16, 32]),
    threads=st.integers(1, 3),
)
def test_any_step(
    variant: str,
    lengths: list[tuple[int, int]],
    sizes: Sizes,
    dtype: torch.dtype,
    block_size: int,
    threads: int,
) -> None:
    sequences = tuple((length, min(length, new)) for length, new in lengths)
    tolerance = {torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 4e-2}[dtype]
    assert_as_reference(make_step(sequences, sizes, dtype, block_size=block_size), variant, threads, tolerance)


def test_latents_in_int8_are_not_recorded() -> None:
    step = make_step(((9, 9),))
    step = replace(step, cache=torch.zeros(step.cache.shape, dtype=torch.int8))
    with pytest.raises(NotRecordable, match="latents in int8"):
        step.recorded(VARIANTS[0])


def test_heads_that_a_stack_has_not_are_refused() -> None:
    tape, packed = Tape(), Packing(machine(VARIANTS[0])).heads("keys", torch.zeros(2, 20, 8))
    PackedHeads(packed.stack, num_heads=3, size=20).record(tape.value(3, 8), tape.value(3, 20))
    with pytest.raises(ValueError, match="a stack of 64 rows for 3 heads of 20"):
        tape.finish()
