"""The blocks of another rank, over a socket pair as its process has it."""

import socket
from threading import Thread

import numpy as np
import pytest

from quire.config.resolved import KVGroup, KVLayout
from quire.kvcache.storage_shape import StorageShape
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.worker.rank_blocks import RankBlocks, RankProgress, Told, serve_rank_blocks

LAYOUT = KVLayout(4, 24, 0, (KVGroup((0, 1), None, ((2, 8), (2, 8))),), 1, 1, "float16")
SIZE = 25 * StorageShape(LAYOUT).block_bytes


@pytest.mark.parametrize("late", ["a step", "waking up"])
def test_what_is_written_waits_for_what_the_rank_was_told_before(late: str) -> None:
    mine, theirs = socket.socketpair()
    memory, progress, told = np.zeros(SIZE, np.uint8), RankProgress(), Told(step=7, wakes=1)
    serving = Thread(target=serve_rank_blocks, args=(theirs, HostBlocks(memory, LAYOUT), progress))
    serving.start()
    blocks = RankBlocks(mine, LAYOUT, lambda: told)
    data = blocks.buffer(12)  # more than are passed at a time
    data[:] = np.random.default_rng(1).integers(1, 256, len(data), np.uint8)
    writing = Thread(target=blocks.write, args=(range(3, 15), data, blocks.fence()))
    if late == "a step":
        progress.woke()
    else:
        progress.begun(7)
    writing.start()
    writing.join(0.2)
    assert writing.is_alive()
    assert not memory.any(), "a rank that is to fall asleep first would lose it"
    if late == "a step":
        progress.begun(7)
    else:
        progress.woke()
    writing.join(10)
    back = blocks.buffer(12)
    blocks.read(range(3, 15), back)
    assert back == data
    mine.close()
    serving.join(10)
    theirs.close()
