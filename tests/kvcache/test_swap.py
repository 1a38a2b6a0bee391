"""Blocks on the host: their numbers stay, and pages are locked when a block of theirs is first used."""

import gc
import itertools

import pytest
import torch

from quire.kvcache import swap
from quire.kvcache.swap import SwapSpace

SHAPE = (40, 3, 256)  # 3,072 bytes a block


class Device:
    """Remembers what it locked; refuses from some number of pieces on."""

    def __init__(self, most: int = 1000) -> None:
        self.most = most
        self.locked: dict[int, int] = {}

    def lock(self, address: int, size: int) -> bool:
        if len(self.locked) == self.most:
            return False
        assert address not in self.locked
        self.locked[address] = size
        return True

    def unlock(self, address: int) -> None:
        del self.locked[address]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "PIECE", 8192)


@pytest.mark.parametrize("most", [0, 4, 1000])
def test_numbers_stay_whatever_is_locked(most: int) -> None:
    device = Device(most)
    blocks = SwapSpace(SHAPE, torch.float32, device.lock, device.unlock)
    assert not blocks.block(39).any()
    for index in range(40):
        blocks.block(index).fill_(index)
    assert all((blocks.block(index) == index).all() for index in range(40))


@pytest.mark.parametrize("width", [1, 96, 256, 1000, 4096])
def test_no_block_lies_in_two_pieces(width: int) -> None:
    device = Device()
    blocks = SwapSpace((40, width), torch.float32, device.lock, device.unlock)
    for index in (3, 39, 0, 17, *range(40)):
        begin = blocks.block(index).data_ptr()
        assert any(at <= begin and begin + 4 * width <= at + size for at, size in device.locked.items()), index
    assert all(address % 4096 == 0 for address in device.locked)
    pieces = sorted(device.locked.items())
    assert all(at + size <= following for (at, size), (following, _) in itertools.pairwise(pieces))


def test_only_what_is_used_is_locked_and_only_once() -> None:
    device = Device()
    blocks = SwapSpace(SHAPE, torch.float32, device.lock, device.unlock)
    assert device.locked == {}
    begin = blocks.block(0).data_ptr()
    assert device.locked == {begin: 12288}  # four blocks are the fewest that fill pages
    blocks.block(3)
    assert len(device.locked) == 1
    blocks.block(4)
    assert device.locked == {begin: 12288, begin + 12288: 12288}


def test_nothing_behind_the_blocks_is_locked() -> None:
    device = Device()
    blocks = SwapSpace((6, 3, 256), torch.float32, device.lock, device.unlock)
    begin = blocks.block(5).data_ptr() - 5 * 3072
    assert device.locked == {begin + 12288: 6 * 3072 - 12288}


def test_all_is_unlocked_in_the_end() -> None:
    device = Device()
    blocks = SwapSpace(SHAPE, torch.float32, device.lock, device.unlock)
    for index in range(40):
        blocks.block(index)
    assert len(device.locked) == 10
    del blocks
    gc.collect()
    assert device.locked == {}


def test_a_system_that_locks_no_more_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    device = Device(most=2)
    blocks = SwapSpace(SHAPE, torch.float32, device.lock, device.unlock)
    for index in range(40):
        blocks.block(index)
    assert len(caplog.records) == 1
    assert "locks no more memory" in caplog.text
