"""Writing to a paged cache and attending over it as one program, against the reference ops."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from quire.core.kv_bytes import INT8_SCALE
from quire.ops.cpu.tape import NotRecordable, TapeInput, Value
from quire.ops.functional import paged_attention, write_kv
from quire.ops.reference.kv_numbers import int8_parts, to_int8
from tests.ops.cpu.machines import every_thread_count, every_variant, needs_core, rounds_to_brains, run_recorded
from tests.rarely import rarely

pytestmark = needs_core

HEAD_DIMS = (8, 10, 64, 80, 128)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.int8)
MIXED = ((1, 1), (9, 9), (20, 1), (33, 7), (70, 70), (65, 2))
"""Length and new tokens of each sequence: decodes, whole prompts and chunks."""
TABLES, STARTS, LENGTHS, SLOTS = (TapeInput(name) for name in ("tables", "starts", "lengths", "slots"))


@dataclass(frozen=True)
class Step:
    """Sequences whose earlier tokens are in the cache, in blocks all over it; what no one wrote is NaN."""

    query: Tensor
    key: Tensor
    value: Tensor
    keys: Tensor
    values: Tensor
    tables: Tensor
    starts: Tensor
    lengths: Tensor
    slots: Tensor

    def reference(self, **how: Any) -> Tensor:
        keys, values = self.keys.clone(), self.values.clone()
        write_kv(self.key, self.value, keys, values, self.slots)
        return paged_attention(self.query, keys, values, self.tables, self.starts, self.lengths, **how)

    def recorded(self, variant: str, threads: int, prompts: range = range(0), **how: Any) -> Tensor:
        keys, values = self.keys.clone(), self.values.clone()

        def both(query: Value, key: Value, value: Value) -> Value:
            write_kv(key, value, keys, values, SLOTS)
            return paged_attention(query, keys, values, TABLES, STARTS, LENGTHS, **how)

        given = {
            "tables": self.tables,
            "starts": self.starts,
            "lengths": self.lengths,
            "slots": self.slots,
            "num_sequences": torch.tensor(len(self.lengths)),
        }
        tensors = (self.query, self.key, self.value)
        return run_recorded(variant, both, *tensors, threads=threads, given=given, prompts=prompts)


def empty_cache(blocks: int, block_size: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> Tensor:
    """Of NaN; in int8 its scales are."""
    if dtype is torch.int8:
        return torch.full((blocks, block_size, kv_heads, head_dim + INT8_SCALE), -1, dtype=dtype)
    return torch.full((blocks, block_size, kv_heads, head_dim), torch.nan, dtype=dtype)


def numbers_for(dtype: torch.dtype, x: Tensor) -> Tensor:
    """For int8 those that it holds, as none of them may lie between two: core and reference would differ by a step."""
    if dtype is not torch.int8 or not x.numel():
        return x
    numbers, scales = to_int8(x)
    return numbers * scales.unsqueeze(-1)


def make_step(
    sequences: tuple[tuple[int, int], ...],
    heads: tuple[int, int, int],
    dtype: torch.dtype = torch.float32,
    block_size: int = 16,
    seed: int = 0,
) -> Step:
    """`heads`: KV heads, query heads that share each, and their size."""
    kv_heads, group, head_dim = heads
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-length // block_size) for length, _ in sequences]
    order = iter(torch.randperm(sum(counts) + 1, generator=generator).split(1))
    keys, values = (empty_cache(sum(counts) + 1, block_size, kv_heads, head_dim, dtype) for _ in "kv")
    tables = torch.zeros(len(sequences), max(counts), dtype=torch.int32)
    slots = []
    for place, (length, new) in enumerate(sequences):
        blocks = torch.cat([next(order) for _ in range(counts[place])])
        tables[place, : len(blocks)] = blocks
        positions = torch.arange(length)
        all_slots = blocks[positions // block_size] * block_size + positions % block_size
        old = numbers_for(dtype, torch.randn(2, length - new, kv_heads, head_dim, generator=generator))
        write_kv(old[0], old[1], keys, values, all_slots[: length - new])
        slots.append(all_slots[length - new :])
    tokens = sum(new for _, new in sequences)
    starts = torch.tensor([0, *(new for _, new in sequences)]).cumsum(0)
    query = torch.randn(tokens, kv_heads * group, head_dim, generator=generator)
    key, value = numbers_for(dtype, torch.randn(2, tokens, kv_heads, head_dim, generator=generator))
    lengths = torch.tensor([length for length, _ in sequences])
    return Step(query, key, value, keys, values, tables, starts, lengths, torch.cat(slots))


def is_in_tiles(step: Step, variant: str) -> bool:
    """Whether queries of prompts are computed in tiles of bfloat16, and their numbers rounded to it."""
    return rounds_to_brains(variant) and step.keys.dtype is torch.bfloat16 and step.keys.shape[-1] % 32 == 0


def assert_as_reference(step: Step, variant: str, threads: int, tolerance: float = 1e-5, **how: Any) -> None:
    wanted = step.reference(**how)
    assert wanted.isfinite().all()
    found = step.recorded(variant, threads, **how)
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=10 * tolerance)
    if is_in_tiles(step, variant):
        tolerance = max(tolerance, 6e-3)
    found = step.recorded(variant, threads, range(len(step.query)), **how)
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=10 * tolerance)


@every_variant
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_sizes_of_heads(variant: str, dtype: torch.dtype, head_dim: int) -> None:
    assert_as_reference(make_step(MIXED, (2, 2, head_dim), dtype), variant, 2, scale=head_dim**-0.5)


@every_variant
@pytest.mark.parametrize("group", range(1, 9))
def test_heads_that_share_keys(variant: str, group: int) -> None:
    assert_as_reference(make_step(MIXED, (2, group, 16)), variant, 2, scale=0.25)


@every_variant
def test_more_heads_to_a_key_than_a_task_takes_rows(variant: str) -> None:
    assert_as_reference(make_step(((300, 3), (5, 5)), (1, 100, 8)), variant, 2, scale=0.25)


@every_variant
@every_thread_count
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("group", "head_dim"), rarely([(1, 64), (3, 64), (8, 128), (9, 32), (3, 24)], every=3, first=1)
)
@pytest.mark.parametrize("how", [{}, {"window": 100}, {"chunk": 100, "sinks": True}], ids=str)
@pytest.mark.parametrize("is_prompt", [False, True])
def test_a_token_alone_is_exactly_that_among_others(
    variant: str, threads: int, dtype: torch.dtype, group: int, head_dim: int, how: dict[str, Any], is_prompt: bool
) -> None:
    prompt = make_step(((300, 300),), (2, group, head_dim), dtype)
    if "sinks" in how:
        how = how | {"sinks": torch.linspace(-3, 3, 2 * group)}
    together = prompt.recorded(variant, threads, range(300 if is_prompt else 0), scale=0.2, **how)
    write_kv(prompt.key, prompt.value, prompt.keys, prompt.values, prompt.slots)
    for position in (0, 63, 64, 177, 299):
        alone = replace(
            prompt,
            **{name: getattr(prompt, name)[position : position + 1] for name in ("query", "key", "value", "slots")},
            starts=torch.tensor([0, 1]),
            lengths=torch.tensor([position + 1]),
        )
        found = alone.recorded(variant, threads, range(1 if is_prompt else 0), scale=0.2, **how)
        assert torch.equal(found[0], together[position])


@every_variant
@every_thread_count
@pytest.mark.parametrize("dtype", DTYPES)
def test_prompts_among_answers(variant: str, threads: int, dtype: torch.dtype) -> None:
    step = make_step(((300, 1), (40, 5), (33, 33), (400, 70), (90, 2)), (2, 3, 64), dtype)
    prompts = range(6, 109)
    found = step.recorded(variant, threads, prompts, scale=0.2)
    as_answers = step.recorded(variant, threads, scale=0.2)
    as_prompts = step.recorded(variant, threads, range(len(step.query)), scale=0.2)
    for row in range(len(step.query)):
        assert torch.equal(found[row], (as_prompts if row in prompts else as_answers)[row])


@every_variant
@every_thread_count
@pytest.mark.parametrize("window", [None, 1, 2, 17, 64, 100])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_windows_and_caps(variant: str, threads: int, window: int | None, softcap: float | None) -> None:
    step = make_step(MIXED, (2, 3, 10), block_size=4)
    assert_as_reference(step, variant, threads, scale=0.3, window=window, softcap=softcap)


@every_variant
@every_thread_count
@pytest.mark.parametrize("chunk", [1, 3, 16, 64, 100])
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_chunks_of_positions(variant: str, threads: int, chunk: int, softcap: float | None) -> None:
    step = make_step(MIXED, (2, 3, 10), block_size=4)
    assert_as_reference(step, variant, threads, scale=0.3, chunk=chunk, softcap=softcap)


@every_variant
@every_thread_count
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [None, 17])
def test_sinks(variant: str, threads: int, dtype: torch.dtype, window: int | None) -> None:
    """Below all scores, among them, and so far above that nothing is left."""
    step = make_step(MIXED, (2, 3, 32), dtype)
    sinks = torch.tensor([-1e30, -5.0, 0.0, 2.0, 9.0, 300.0])
    assert_as_reference(step, variant, threads, scale=0.2, window=window, sinks=sinks)


@every_variant
def test_sinks_that_the_core_does_not_read_are_not_recorded(variant: str) -> None:
    step = make_step(MIXED, (2, 3, 32))
    with pytest.raises(NotRecordable, match=r"sinks of torch\.bfloat16"):
        step.recorded(variant, 1, scale=0.2, sinks=torch.zeros(6, dtype=torch.bfloat16))


@every_variant
@every_thread_count
@pytest.mark.parametrize("sequences", [((1500, 1),), ((900, 5), (130, 1)), ((640, 300),), ((1024, 1), (128, 128))])
@pytest.mark.parametrize("how", [{}, {"window": 400}, {"chunk": 400}, {"sinks": torch.arange(-2.0, 6.0, 2.0)}], ids=str)
def test_long_contexts_that_threads_share(
    variant: str, threads: int, sequences: tuple[tuple[int, int], ...], how: dict[str, Any]
) -> None:
    step = make_step(sequences, (1, 4, 32), torch.float16)
    assert_as_reference(step, variant, threads, scale=0.5, **how)


@every_variant
@every_thread_count
def test_long_contexts_whose_parts_differ_much(variant: str, threads: int) -> None:
    """One part holds all of the weight, first or last."""
    for place in (3, 990):
        step = make_step(((1000, 1),), (1, 2, 16))
        slot = int(step.tables[0, place // 16]) * 16 + place % 16
        step.keys.view(-1, 1, 16)[slot, 0] = step.query[0, 0] * 30
        assert_as_reference(step, variant, threads, scale=1.0)


@every_variant
@pytest.mark.parametrize("window", [3, 40, 200])
def test_what_a_window_has_left_behind_is_not_read(variant: str, window: int) -> None:
    sequences = ((500, 1), (300, 8), (20, 20))
    step = make_step(sequences, (1, 2, 16), block_size=4)
    for table, (length, new) in zip(step.tables.long(), sequences, strict=True):
        gone = table[: max(0, length - new - window + 1) // 4]  # whole blocks that no new token sees
        step.keys[gone] = step.values[gone] = torch.nan
    assert_as_reference(step, variant, 3, scale=0.3, window=window)


@every_variant
@given(
    lengths=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 200)), min_size=1, max_size=4),
    kv_heads=st.integers(1, 3),
    group=st.integers(1, 8),
    head_dim=st.sampled_from([1, 3, *HEAD_DIMS]),
    dtype=st.sampled_from(DTYPES),
    block_size=st.sampled_from([1, 3, 16, 32]),
    window=st.none() | st.integers(1, 220),
    chunk=st.none() | st.integers(1, 220),
    softcap=st.none() | st.floats(0.5, 50.0),
    threads=st.integers(1, 3),
)
def test_any_step(
    variant: str,
    lengths: list[tuple[int, int]],
    kv_heads: int,
    group: int,
    head_dim: int,
    dtype: torch.dtype,
    block_size: int,
    window: int | None,
    chunk: int | None,
    softcap: float | None,
    threads: int,
) -> None:
    sequences = tuple((length, min(length, new)) for length, new in lengths)
    step = make_step(sequences, (kv_heads, group, head_dim), dtype, block_size)
    assert_as_reference(step, variant, threads, scale=head_dim**-0.5, window=window, chunk=chunk, softcap=softcap)


@every_variant
def test_flat_and_sharp_attention(variant: str) -> None:
    step = make_step(MIXED, (1, 2, 64))
    assert_as_reference(step, variant, 1, scale=1e-4)
    assert_as_reference(step, variant, 1, scale=20.0, tolerance=3e-4)  # scores of 500 are rounded to 3e-5


@every_variant
@every_thread_count
def test_a_query_that_is_no_number_spoils_only_its_own_head(variant: str, threads: int) -> None:
    step = make_step(((400, 1), (30, 30)), (2, 2, 16))
    clean = step.recorded(variant, threads, scale=0.25)
    step.query[0, 1, 5] = torch.nan
    step.query[9, 2, 0] = torch.nan
    found = step.recorded(variant, threads, scale=0.25)
    for row, head in ((0, 1), (9, 2)):
        assert found[row, head].isnan().all()
        found[row, head] = clean[row, head]
    assert torch.equal(found, clean)


@every_variant
@every_thread_count
def test_a_sequence_whose_cache_holds_no_numbers_spoils_only_its_own(variant: str, threads: int) -> None:
    step = make_step(((400, 1), (300, 1), (30, 30)), (1, 2, 16))
    clean = step.recorded(variant, threads, scale=0.25)
    step.keys[step.tables[0, 7].long()] = torch.nan
    found = step.recorded(variant, threads, scale=0.25)
    assert found[0].isnan().all()
    assert torch.equal(found[1:], clean[1:])


def written_by_core(variant: str, key: Tensor, value: Tensor, blocks: int, block_size: int) -> tuple[Tensor, Tensor]:
    """Keys and values in int8, the first token in the last slot and so on."""
    tokens, kv_heads, head_dim = key.shape
    keys, values = (empty_cache(blocks, block_size, kv_heads, head_dim, torch.int8) for _ in "kv")

    def write(key: Value, value: Value) -> Value:
        write_kv(key, value, keys, values, SLOTS)
        return value

    slots = torch.arange(blocks * block_size).flip(0)[:tokens].contiguous()
    run_recorded(variant, write, key, value, given={"slots": slots})
    return keys, values


@every_variant
@pytest.mark.parametrize(("kv_heads", "head_dim", "block_size"), [(2, 64, 16), (3, 10, 4), (1, 3, 1), (2, 40, 3)])
def test_int8_is_written_as_the_reference_writes_it(
    variant: str, kv_heads: int, head_dim: int, block_size: int
) -> None:
    torch.manual_seed(3)
    key, value = torch.randn(2, 5, kv_heads, head_dim) * torch.logspace(-3, 3, 5).view(5, 1, 1)
    value[1, 0] = 0
    key[2, 0, 1], value[3, -1, 2] = torch.nan, -torch.inf
    keys, values = written_by_core(variant, key, value, 6, block_size)
    slots = torch.arange(6 * block_size).flip(0)[:5]
    wanted = [empty_cache(6, block_size, kv_heads, head_dim, torch.int8) for _ in "kv"]
    write_kv(key, value, *wanted, slots)
    for found, expected in zip((keys, values), wanted, strict=True):
        (numbers, scales), (wanted_numbers, wanted_scales) = int8_parts(found), int8_parts(expected)
        found_scales, expected_scales = (each.contiguous().view(torch.float32) for each in (scales, wanted_scales))
        torch.testing.assert_close(found_scales, expected_scales, rtol=1e-6, atol=0, equal_nan=True)
        off = (numbers.int() - wanted_numbers.int()).abs()
        assert off.max() <= 1  # of what lies between two numbers
        assert (off > 0).float().mean() < 0.01


@every_variant
def test_a_vector_in_int8_that_holds_no_number_spoils_only_its_own_head(variant: str) -> None:
    step = make_step(((40, 1), (30, 1)), (2, 2, 16), torch.int8)
    clean = step.recorded(variant, 1, scale=0.25)
    step.value[0, 1, 3] = torch.nan
    found = step.recorded(variant, 1, scale=0.25)
    assert found[0, 2:].isnan().all()
    assert torch.equal(found[0, :2], clean[0, :2])
    assert torch.equal(found[1], clean[1])
