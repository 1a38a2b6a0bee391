"""Decodes whose sequences share prefixes, against the reference that knows nothing of it."""

from dataclasses import replace

import pytest
import torch

from quire.ops.reference.paged_attention import paged_attention as reference
from tests.ops.triton.device import DEVICE, DTYPES, TOLERANCES, needs_triton
from tests.ops.triton.test_paged_attention import Step, make_step

pytestmark = [needs_triton, pytest.mark.sanitize]

BLOCK = 16


def share_prefix(step: Step, groups: dict[int, list[int]], num_positions: int) -> Step:
    """The same step, but sequences have the first positions of the one that names their group, in its blocks."""
    tables = step.tables.clone()
    for first, others in groups.items():
        for other in others:
            tables[other, : num_positions // BLOCK] = tables[first, : num_positions // BLOCK]
    return replace(step, tables=tables)


def assert_as_reference(step: Step, softcap: float | None = None, window: int | None = None) -> None:
    from quire.ops.triton.shared_prefix_attention import SharedPrefixAttention  # after the mark has skipped

    found = SharedPrefixAttention()(*step.arguments(), scale=0.3, window=window, softcap=softcap)
    wanted = reference(*step.arguments(), 0.3, window, softcap)
    tolerance = max(TOLERANCES[step.query.dtype], TOLERANCES[step.keys.dtype])
    torch.testing.assert_close(found, wanted, atol=tolerance, rtol=tolerance)


def common_positions(step: Step, group: int) -> list[int]:
    from quire.ops.triton.find_shared_prefixes import find_shared_prefixes

    return find_shared_prefixes(step.tables, step.lengths, BLOCK, group).begins.tolist()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heads", [(1, 4, 64), (2, 3, 80), (1, 1, 128)])
def test_a_prefix_of_all_is_read_once(dtype: torch.dtype, heads: tuple[int, int, int]) -> None:
    lengths = [300, 289, 400, 417, 290]
    step = make_step(tuple((length, 1) for length in lengths), heads, dtype)
    step = share_prefix(step, {0: [1, 2, 3, 4]}, 288)
    assert common_positions(step, heads[1]) == [256] * 5
    assert_as_reference(step)


def test_nothing_in_common() -> None:
    step = make_step(((300, 1), (512, 1), (20, 1), (1, 1)), (2, 2, 64))
    assert common_positions(step, 2) == [0] * 4
    assert_as_reference(step)


def test_sequences_of_two_prefixes_one_after_the_other_come_side_by_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.ops.triton.find_shared_prefixes.MOST_SEQUENCES", 4)
    step = make_step(tuple((300 + 9 * index, 1) for index in range(8)), (1, 2, 32))
    step = share_prefix(step, {0: [2, 4, 6], 1: [3, 5, 7]}, 272)
    assert common_positions(step, 2) == [256] * 8
    assert_as_reference(step)


def test_a_tile_reads_what_all_its_sequences_share(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.ops.triton.find_shared_prefixes.MOST_SEQUENCES", 4)
    step = make_step(tuple((900, 1) for _ in range(9)), (1, 1, 32))
    step = share_prefix(step, {0: [1, 2, 3]}, 896)
    step = share_prefix(step, {4: [5, 6]}, 640)
    step = share_prefix(step, {4: [7]}, 400)
    found = common_positions(step, 1)
    assert found == [896] * 4 + [384] * 4 + [0]
    assert_as_reference(step)


@pytest.mark.parametrize("length", [256, 257, 384, 385])
def test_the_last_position_is_always_a_sequences_own(length: int) -> None:
    step = make_step(((length, 1), (length, 1), (600, 1)), (1, 2, 32))
    step = share_prefix(step, {2: [0, 1]}, length // BLOCK * BLOCK)
    wanted = (length - 1) // 128 * 128
    assert common_positions(step, 2)[:2] == [wanted, wanted]
    assert_as_reference(step)


def test_what_follows_a_short_sequence_in_its_table_is_not_looked_at() -> None:
    """A row's table still has the blocks of whoever had it before."""
    step = make_step(((600, 1), (30, 1), (600, 1)), (1, 2, 32))
    step = share_prefix(step, {0: [2]}, 512)
    step.tables[1, 2:] = step.tables[0, 2:]
    assert common_positions(step, 2)[1] == 0
    assert_as_reference(step)


def test_spare_rows_of_a_graph_spoil_nothing() -> None:
    step = make_step(tuple((520, 1) for _ in range(4)), (1, 2, 32))
    step = share_prefix(step, {0: [1, 2, 3]}, 512)
    spare = replace(
        step,
        query=torch.cat([step.query, step.query[:2]]),
        tables=torch.cat([step.tables, torch.zeros_like(step.tables[:2])]),
        query_starts=torch.arange(7, device=DEVICE),
        lengths=torch.cat([step.lengths, torch.ones_like(step.lengths[:2])]),
    )
    spare.keys[0] = spare.values[0] = 0
    assert_as_reference(spare)


@pytest.mark.parametrize(("softcap", "window"), [(5.0, None), (None, 300), (None, 40)])
def test_caps_and_windows(softcap: float | None, window: int | None) -> None:
    step = make_step(tuple((400, 1) for _ in range(3)), (1, 2, 32))
    assert_as_reference(share_prefix(step, {0: [1, 2]}, 384), softcap, window)


def test_layers_of_a_step_ask_once_what_there_is_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    from quire.ops.triton import shared_prefix_attention as module

    step = make_step(tuple((400, 1) for _ in range(3)), (1, 2, 32))
    asked = []
    find = module.find_shared_prefixes
    monkeypatch.setattr(module, "find_shared_prefixes", lambda *args: asked.append(args) or find(*args))
    attend = module.SharedPrefixAttention()
    for _ in range(2):
        attend(*step.arguments(), scale=0.3)
    assert len(asked) == 1
