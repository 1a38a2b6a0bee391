"""The attention kernels against the reference: mixtures go through tiles, one token a sequence through parts."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from quire.ops.reference.paged_attention import paged_attention as reference
from quire.ops.reference.write_kv import write_kv
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton
from tests.rarely import rarely

pytestmark = needs_triton

Sequences = tuple[tuple[int, int], ...]

MIXED: Sequences = ((1, 1), (9, 9), (20, 1), (33, 7), (40, 40), (65, 2))
"""Length and new tokens of each sequence: decodes, whole prompts and chunks."""
DECODES: Sequences = ((1, 1), (200, 1), (64, 1), (65, 1), (17, 1))
CHOSEN = (("mixed", MIXED), ("decodes", DECODES))
both_kernels = pytest.mark.parametrize("sequences", [value for _, value in CHOSEN], ids=[name for name, _ in CHOSEN])


@dataclass(frozen=True)
class Step:
    """Sequences whose tokens are in the cache, in blocks all over it; what no one wrote is NaN."""

    query: Tensor
    keys: Tensor
    values: Tensor
    tables: Tensor
    query_starts: Tensor
    lengths: Tensor

    def arguments(self) -> tuple[Tensor, ...]:
        return self.query, self.keys, self.values, self.tables, self.query_starts, self.lengths


def make_step(
    sequences: Sequences,
    heads: tuple[int, int, int],
    dtype: torch.dtype = torch.float32,
    block_size: int = 16,
    cache_dtype: torch.dtype | None = None,
    seed: int = 0,
) -> Step:
    """`heads`: KV heads, query heads that share each, and their size."""
    kv_heads, group, head_dim = heads
    generator = torch.Generator().manual_seed(seed)
    counts = [-(-length // block_size) for length, _ in sequences]
    num_blocks = sum(counts) + 1
    unused = iter(torch.randperm(num_blocks, generator=generator).tolist())
    keys, values = (torch.full((num_blocks, block_size, kv_heads, head_dim), torch.nan) for _ in "kv")
    tables = torch.zeros(len(sequences), max(counts), dtype=torch.int32)
    for table, (length, _), count in zip(tables, sequences, counts, strict=True):
        table[:count] = torch.tensor([next(unused) for _ in range(count)], dtype=torch.int32)
        positions = torch.arange(length)
        slots = table.long()[positions // block_size] * block_size + positions % block_size
        new = torch.randn(2, length, kv_heads, head_dim, generator=generator)
        write_kv(new[0], new[1], keys, values, slots)
    starts = torch.tensor([0, *(new for _, new in sequences)]).cumsum(0)
    query = torch.randn(int(starts[-1]), kv_heads * group, head_dim, generator=generator)
    lengths = torch.tensor([length for length, _ in sequences])
    stored = cache_dtype or dtype
    return Step(
        query.to(DEVICE, dtype),
        keys.to(DEVICE, stored),
        values.to(DEVICE, stored),
        tables.to(DEVICE),
        starts.to(DEVICE),
        lengths.to(DEVICE),
    )


def attend(step: Step, scale: float = 0.3, window: int | None = None, softcap: float | None = None) -> Tensor:
    from quire.ops.triton.paged_attention import paged_attention  # after the mark has skipped where there is no triton

    return paged_attention(*step.arguments(), scale, window, softcap)


def assert_as_reference(
    step: Step,
    scale: float = 0.3,
    window: int | None = None,
    softcap: float | None = None,
    tolerance: float | None = None,
) -> None:
    found, wanted = attend(step, scale, window, softcap), reference(*step.arguments(), scale, window, softcap)
    assert wanted.isfinite().all()
    assert found.is_contiguous()
    tolerance = tolerance or max(TOLERANCES[step.query.dtype], TOLERANCES[step.keys.dtype])
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)


@both_kernels
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("head_dim", rarely([80, 8, 128, 256], every=3))
def test_sizes_of_heads_powers_of_two_or_not(sequences: Sequences, dtype: torch.dtype, head_dim: int) -> None:
    assert_as_reference(make_step(sequences, (2, 2, head_dim), dtype), head_dim**-0.5)


@both_kernels
@pytest.mark.parametrize("group", rarely([1, 2, 3, 5, 7, 8, 20], every=2))
def test_heads_that_share_keys_take_their_own_rows(sequences: Sequences, group: int) -> None:
    assert_as_reference(make_step(sequences, (2, group, 16), torch.float16))


@pytest.mark.sanitize
@both_kernels
@pytest.mark.parametrize("window", rarely([None, 1, 2, 17, 64, 100], every=3))
@pytest.mark.parametrize("softcap", [None, 3.0])
def test_windows_and_caps(sequences: Sequences, window: int | None, softcap: float | None) -> None:
    assert_as_reference(make_step(sequences, (1, 3, 16)), window=window, softcap=softcap)


@pytest.mark.parametrize("window", [None, 1, 30, 64, 65, 150])
def test_a_prompt_of_many_tiles_with_and_without_a_mask(window: int | None) -> None:
    """Its 128 rows a program see open tiles, tiles that a window cuts and tiles that the diagonal cuts."""
    assert_as_reference(make_step(((301, 260), (5, 1)), (1, 2, 16), torch.float16), window=window)


@pytest.mark.sanitize
@both_kernels
@pytest.mark.parametrize("block_size", [8, 31, 128])
def test_sizes_of_blocks_powers_of_two_or_not(sequences: Sequences, block_size: int) -> None:
    assert_as_reference(make_step(sequences, (2, 2, 16), torch.float16, block_size))


@both_kernels
@pytest.mark.parametrize(
    ("query_dtype", "cache_dtype"),
    [(torch.float32, torch.float16), (torch.float32, torch.bfloat16), (torch.bfloat16, torch.float32)],
)
def test_a_cache_of_another_type_than_the_query(
    sequences: Sequences, query_dtype: torch.dtype, cache_dtype: torch.dtype
) -> None:
    step = make_step(sequences, (2, 2, 64), query_dtype, cache_dtype=cache_dtype)
    assert attend(step).dtype == query_dtype
    assert_as_reference(step, 0.125)


@pytest.mark.sanitize
@both_kernels
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_query_and_a_table_that_are_views_of_wider_tensors(sequences: Sequences, dtype: torch.dtype) -> None:
    step = make_step(sequences, (2, 3, 32), dtype)
    fused = torch.full((len(step.query), 10, 32), torch.nan, dtype=dtype, device=DEVICE)
    fused[:, :6] = step.query
    wide = torch.full((len(step.tables), step.tables.shape[1] + 3), 10**6, dtype=torch.int32, device=DEVICE)
    wide[:, 1:-2] = step.tables
    assert_as_reference(replace(step, query=fused[:, :6], tables=wide[:, 1:-2]))


@pytest.mark.parametrize("length", [1, 32, 33, 300])
@pytest.mark.parametrize("window", [None, 40, 200])
def test_a_sequence_alone_in_more_parts_than_it_has_tiles(length: int, window: int | None) -> None:
    step = make_step(((length, 1), (400, 1)), (1, 2, 16))  # the other is long, so that tables are wide
    alone = replace(
        step, query=step.query[:1], tables=step.tables[:1], query_starts=step.query_starts[:2], lengths=step.lengths[:1]
    )
    assert_as_reference(alone, window=window)


@pytest.mark.sanitize
def test_so_many_sequences_that_each_is_one_part() -> None:
    assert_as_reference(make_step(tuple((place * 7 + 1, 1) for place in range(20)), (1, 2, 16)))


def test_more_sequences_than_a_program_looks_through_at_once() -> None:
    sequences = tuple((place % 5 + 2, place % 2 + 1) for place in range(140))
    assert_as_reference(make_step(sequences, (1, 2, 16), torch.float16, 8))


@pytest.mark.parametrize("place", [3, 290])
def test_parts_whose_weights_differ_much(place: int) -> None:
    """One part holds all of the weight, first or last."""
    step = make_step(((300, 1),), (1, 2, 16))
    slot = int(step.tables[0, place // 16]) * 16 + place % 16
    step.keys.view(-1, 16)[slot] = step.query[0, 0] * 30
    assert_as_reference(step, 1.0)


@both_kernels
def test_flat_and_sharp_attention(sequences: Sequences) -> None:
    step = make_step(sequences, (1, 2, 64))
    assert_as_reference(step, 1e-4)
    assert_as_reference(step, 20.0, tolerance=1e-3)  # scores of 500 are rounded to 3e-5


@both_kernels
def test_a_cap_far_above_the_scores_changes_little(sequences: Sequences) -> None:
    assert_as_reference(make_step(sequences, (1, 2, 64)), 0.125, softcap=50.0)


@pytest.mark.sanitize
@pytest.mark.parametrize("sequences", [((500, 1), (300, 8), (20, 20)), ((500, 1), (300, 1), (20, 1))])
@pytest.mark.parametrize("window", [3, 40, 200])
def test_what_a_window_has_left_behind_is_not_read(sequences: Sequences, window: int) -> None:
    step = make_step(sequences, (1, 2, 16), torch.float16, 8)
    for table, (length, new) in zip(step.tables.long(), sequences, strict=True):
        gone = table[: max(0, length - new - window + 1) // 8].clone()  # whole blocks that no new token sees
        step.keys[gone] = step.values[gone] = torch.nan
    assert_as_reference(step, window=window)


@both_kernels
@pytest.mark.filterwarnings("ignore:All-NaN slice:RuntimeWarning")  # the interpreter's, on the way
def test_a_query_that_is_no_number_spoils_only_its_own_head(sequences: Sequences) -> None:
    step = make_step(sequences, (2, 2, 16))
    clean = attend(step)
    step.query[1, 2, 5] = torch.nan
    found = attend(step)
    assert found[1, 2].isnan().all()
    found[1, 2] = clean[1, 2]
    assert torch.equal(found, clean)


@pytest.mark.sanitize
def test_a_sequence_of_length_0_as_graphs_pad_with_gives_zeros() -> None:
    step = make_step(((100, 1), (7, 1), (30, 1)), (1, 2, 16))
    clean = attend(step)
    step.lengths[1] = 0
    found = attend(step)
    assert not found[1].any()
    assert torch.equal(found[::2], clean[::2])


def test_no_tokens_give_no_output() -> None:
    step = make_step(((5, 5),), (1, 2, 16))
    nothing = replace(
        step, query=step.query[:0], tables=step.tables[:0], query_starts=step.query_starts[:1], lengths=step.lengths[:0]
    )
    assert attend(nothing).shape == (0, 2, 16)
