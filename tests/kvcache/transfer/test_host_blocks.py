"""Blocks in host memory by plane: what lies side by side goes as one piece, and all arrives wherever it lies."""

import numpy as np
import pytest

from quire.kvcache.checksum import checksum, checksum_of
from quire.kvcache.transfer import host_blocks
from quire.kvcache.transfer.host_blocks import HostBlocks
from tests.kvcache.transfer.engines import LAYOUT, memory

LISTS = [[7], [3, 4, 5], [5, 4, 3], [1, 2, 9, 10, 40, 39]]


@pytest.mark.parametrize("blocks", LISTS)
@pytest.mark.parametrize("part", [1, 700, 1 << 20])
def test_gathered_scattered_and_seen_where_they_lie_they_are_the_same(monkeypatch, blocks, part):
    monkeypatch.setattr(host_blocks, "_PART_BYTES", part)
    held, target = memory(1), memory()
    source, sink = HostBlocks(held, LAYOUT), HostBlocks(target, LAYOUT)
    room = memoryview(bytearray(len(blocks) * source.block_bytes))
    parts = list(source.gather(blocks, room))
    by_plane = held.reshape(6, 41, -1)[:, blocks]
    assert bytes(room) == b"".join(parts) == b"".join(source.views(blocks)) == by_plane.tobytes()
    assert checksum_of(source.views(blocks)) == checksum(room)
    moved = [block + 10 if block < 30 else block - 25 for block in blocks]
    assert checksum_of(sink.scatter(moved, room)) == checksum(room)
    assert (target.reshape(6, 41, -1)[:, moved] == by_plane).all()
    assert np.count_nonzero(target.reshape(6, 41, -1).any(axis=(0, 2))) == len(blocks)


def test_blocks_side_by_side_are_one_piece_of_each_plane():
    blocks = HostBlocks(memory(1), LAYOUT)
    assert len(blocks.views([3, 4, 5])) == 6
    assert len(blocks.views([3, 5, 4])) == 18
