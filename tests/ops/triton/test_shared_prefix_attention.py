"""Decodes whose sequences share prefixes, against the reference that reads them for each sequence."""

from dataclasses import replace

import pytest
import torch

from quire.ops.reference.paged_attention import paged_attention as reference
from quire.ops.step_tensors import PrefixTiles
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton
from tests.ops.triton.test_paged_attention import Step, make_step

pytestmark = [needs_triton, pytest.mark.sanitize]

BLOCK = 16
Tiles = list[tuple[list[int], int]]
"""Sequences that share so many positions."""


def share(step: Step, tiles: Tiles) -> Step:
    """The same step, but the sequences of a tile have the prefix of its first one, in its blocks."""
    tables = step.tables.clone()
    for (first, *others), length in tiles:
        for other in others:
            tables[other, : length // BLOCK] = tables[first, : length // BLOCK]
    return replace(step, tables=tables)


def make_tiles(num_sequences: int, tiles: Tiles, most_members: int, num_empty: int = 1) -> PrefixTiles:
    count = len(tiles) + num_empty
    members = torch.full((count, most_members), -1, dtype=torch.int32)
    lengths, shared = (torch.zeros(size, dtype=torch.int32) for size in (count, num_sequences))
    for number, (those, length) in enumerate(tiles):
        members[number, : len(those)] = torch.tensor(those)
        lengths[number] = shared[those] = length
    return PrefixTiles(members.to(DEVICE), lengths.to(DEVICE), shared.to(DEVICE))


def assert_as_reference(
    step: Step, tiles: Tiles, most_members: int = 4, softcap: float | None = None, window: int | None = None
) -> None:
    from quire.ops.triton.shared_prefix_attention import shared_prefix_attention  # after the mark has skipped

    given = make_tiles(len(step.lengths), tiles, most_members)
    found = shared_prefix_attention(*step.arguments(), given, 0.3, window, softcap)
    wanted = reference(*step.arguments(), 0.3, window, softcap)
    tolerance = max(TOLERANCES[step.query.dtype], TOLERANCES[step.keys.dtype])
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [(1, 4, 64), (2, 3, 80), (1, 1, 128)])
def test_a_prefix_of_all_is_read_together(dtype: torch.dtype, heads: tuple[int, int, int]) -> None:
    lengths = [300, 289, 400, 417, 257]
    step = make_step(tuple((length, 1) for length in lengths), heads, dtype)
    tiles = [([0, 1, 2, 3, 4], 256)]
    assert_as_reference(share(step, tiles), tiles, most_members=16)


def test_nothing_is_shared() -> None:
    step = make_step(((300, 1), (512, 1), (20, 1), (1, 1)), (2, 2, 64))
    assert_as_reference(step, [])


def test_a_tile_reads_the_blocks_of_its_first_sequence_and_nobody_reads_them_again() -> None:
    """The others' tables have blocks of their own there, of other content: what is read shows in the outputs."""
    from quire.ops.triton.shared_prefix_attention import shared_prefix_attention

    step = make_step(tuple((300, 1) for _ in range(4)), (1, 2, 32))
    tiles = [([2, 0, 3], 256)]
    given = make_tiles(4, tiles, 4)
    found = shared_prefix_attention(*step.arguments(), given, 0.3, None, None)
    wanted = reference(*share(step, tiles).arguments(), 0.3, None, None)
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, reference(*step.arguments(), 0.3, None, None), atol=1e-2)


def test_tiles_of_several_prefixes_and_sequences_without_one() -> None:
    step = make_step(tuple((900 - 9 * index, 1) for index in range(11)), (1, 2, 32))
    tiles = [([0, 2, 4, 6], 768), ([1, 3, 5], 384), ([8, 7], 128)]
    assert_as_reference(share(step, tiles), tiles)


def test_spare_rows_of_a_graph_spoil_nothing() -> None:
    step = make_step(tuple((520, 1) for _ in range(4)), (1, 2, 32))
    tiles = [([0, 1, 2, 3], 512)]
    step = share(step, tiles)
    spare = replace(
        step,
        query=torch.cat([step.query, step.query[:2]]),
        tables=torch.cat([step.tables, torch.zeros_like(step.tables[:2])]),
        query_starts=torch.arange(7, device=DEVICE),
        lengths=torch.cat([step.lengths, torch.ones_like(step.lengths[:2])]),
    )
    spare.keys[0] = spare.values[0] = 0
    assert_as_reference(spare, tiles)


@pytest.mark.parametrize(("softcap", "window"), [(5.0, None), (None, 300), (None, 40)])
def test_caps_and_windows(softcap: float | None, window: int | None) -> None:
    step = make_step(tuple((400, 1) for _ in range(3)), (1, 2, 32))
    tiles = [([0, 1, 2], 384)]
    assert_as_reference(share(step, tiles), tiles, softcap=softcap, window=window)


@pytest.mark.parametrize(("group", "members"), [(1, 32), (2, 32), (4, 16), (7, 9), (64, 1), (71, 1)])
def test_members_of_a_tile_fill_what_a_multiprocessor_multiplies_at_once(group: int, members: int) -> None:
    from quire.ops.triton.shared_prefix_attention import most_members

    assert most_members(group) == members
