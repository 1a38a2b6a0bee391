"""Choices by card: on an H200 those that were measured, on others such as their numbers allow."""

from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch

from quire.ops.triton import card as cards
from quire.ops.triton.card import INTERPRETED, Card, card_of, fitting_positions, least_reads_saved
from tests.ops.triton.cards import H200, OTHERS
from tests.ops.triton.device import needs_triton

NAMED = pytest.mark.parametrize("card", OTHERS, ids=lambda card: card.name)


def test_what_a_driver_says_of_a_card() -> None:
    pytest.importorskip("triton")
    facts = {"multiprocessor_count": 132, "max_shared_mem": 232448, "warpSize": 32, "mem_clock_rate": 3_201_000}
    utils = SimpleNamespace(get_device_properties=lambda index: facts | {"mem_bus_width": 6144})
    with (
        patch("triton.runtime.driver", SimpleNamespace(active=SimpleNamespace(utils=utils))),
        patch("torch.cuda.get_device_name", lambda index: H200.name),
    ):
        found = card_of.__wrapped__(torch.device("cuda", 0))
    assert (found.name, found.multiprocessors, found.shared_memory, found.warp_size) == (H200.name, 132, 227 << 10, 32)
    assert found.bandwidth == pytest.approx(4.92e12, rel=0.01)


def test_the_interpreter_is_a_card_of_its_own() -> None:
    assert card_of(torch.device("cpu")) is INTERPRETED
    assert INTERPRETED.name != H200.name


@pytest.mark.parametrize(
    ("card", "least"),
    [(H200, 128 << 20), (OTHERS[0], 8_400_000), (OTHERS[1], 57_120_000), (OTHERS[2], 148_400_000)],
    ids=lambda value: value.name if isinstance(value, Card) else "",
)
def test_tiles_of_shared_prefixes_pay_by_bandwidth(card: Card, least: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cards, "card_of", lambda device: card)
    assert least_reads_saved(torch.device("cuda")) == pytest.approx(least)


@NAMED
@pytest.mark.parametrize("num_stages", [1, 2, 3, 5])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_tiles_of_attention_fit(card: Card, num_stages: int, head_dim: int) -> None:
    each, tiles, query = 4 * head_dim, {1: 1, 2: 2, 3: 2, 5: 3}[num_stages], 64 * head_dim * 2
    for positions in (16, 32, 64, 128):
        fits = fitting_positions(card, positions, each, num_stages, query)
        assert fits in {16, 32, 64, 128}
        assert fits <= positions
        assert fits == 16 or tiles * fits * each + query < card.shared_memory
        assert fits == positions or 2 * tiles * fits * each + query >= card.shared_memory, "no smaller than it must be"
        assert fitting_positions(H200, positions, each, num_stages, query) == positions


SPLIT = {
    # sequences, rows, head_dim, itemsize: positions, warps, stages, programs
    (1, 16, 128, 2): (32, 4, 2, 8),
    (7, 16, 64, 2): (32, 4, 2, 8),
    (8, 16, 128, 2): (64, 4, 2, 16),
    (24, 16, 128, 2): (128, 4, 3, 8),
    (96, 128, 128, 2): (128, 8, 3, 8),
    (97, 16, 128, 2): (64, 4, 3, 4),
    (7, 16, 256, 2): (32, 4, 2, 4),
    (8, 16, 512, 2): (32, 4, 3, 4),
    (64, 16, 512, 4): (32, 4, 1, 4),
}
TILES = {
    # tokens, sequences, group, head_dim, itemsize: rows, positions, warps, stages
    (2048, 1, 4, 128, 2): (64, 64, 4, 2),
    (2048, 1, 4, 512, 2): (64, 64, 4, 2),
    (20, 10, 4, 128, 2): (16, 64, 4, 5),
    (20, 10, 4, 256, 2): (16, 32, 4, 5),
    (2048, 1, 4, 128, 4): (16, 32, 4, 1),
}


@needs_triton
def test_an_h200_attends_as_it_was_measured() -> None:
    from quire.ops.triton.attend_split import choose_split_tiling
    from quire.ops.triton.attend_tiles import choose_tiling

    assert {given: tuple(choose_split_tiling(H200, *given)) for given in SPLIT} == SPLIT
    assert {given: tuple(choose_tiling(H200, *given)) for given in TILES} == TILES


@needs_triton
@NAMED
def test_other_cards_attend_with_tiles_that_fit(card: Card) -> None:
    from quire.ops.triton.attend_split import choose_split_tiling
    from quire.ops.triton.attend_tiles import choose_tiling

    for given in SPLIT:
        tiling = choose_split_tiling(card, *given)
        assert 128 % tiling.positions == 0, "what shared prefixes are counted in"
        tiles = 1 + (tiling.num_stages > 1)
        assert tiling.positions == 16 or tiles * tiling.positions * 2 * given[2] * given[3] < card.shared_memory
    for given in TILES:
        assert choose_tiling(card, *given).positions in {16, 32, 64}


@needs_triton
def test_few_sequences_are_few_for_the_multiprocessors_of_a_card() -> None:
    from quire.ops.triton.attend_split import choose_split_tiling

    small, _, large = OTHERS
    assert choose_split_tiling(H200, 8, 16, 64, 2).programs == 16
    assert choose_split_tiling(small, 4, 16, 64, 2).programs == 16
    assert choose_split_tiling(large, 18, 16, 64, 2).programs == 8
