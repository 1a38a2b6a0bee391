"""Blocks of a GPU to locked host memory and back, beside work on the stream that steps use."""

from mmap import mmap

import pytest
import torch

from quire.kvcache.storage import KVStorage
from quire.kvcache.transfer.device_blocks import DeviceBlocks
from tests.kvcache.transfer.engines import FORMAT, LAYOUT

pytestmark = pytest.mark.gpu


def storage(*, filled: bool) -> KVStorage:
    made = KVStorage(LAYOUT, torch.bfloat16, torch.device("cuda"))
    if filled:
        made._device.normal_()
    return made


def test_a_block_comes_back_as_it_went():
    source, target = storage(filled=True), storage(filled=False)
    here, there = source.carried_blocks(), target.carried_blocks()
    assert isinstance(here, DeviceBlocks)
    assert here.block_bytes == FORMAT.block_bytes
    staged = memoryview(mmap(-1, 40 * here.block_bytes))
    here.lock(staged)
    order = list(range(40, 0, -1))
    here.read(order, staged)
    there.write(list(range(1, 41)), staged, there.fence())
    for place, block in enumerate(order, start=1):
        assert torch.equal(source._blocks[block], target._blocks[place])
    assert not target._blocks[0].any()


def test_a_write_waits_for_what_the_device_was_given_before():
    """A block that has changed hands may still be written by a step that is under way."""
    target = storage(filled=False)
    blocks = target.carried_blocks()
    staged = memoryview(mmap(-1, blocks.block_bytes))
    staged[:] = b"\1" * blocks.block_bytes
    busy = torch.randn(8192, 8192, device="cuda")
    for _ in range(20):
        busy = busy @ busy.T * 1e-4
    target._blocks[1].fill_(7)  # behind those matmuls
    fence = blocks.fence()
    blocks.write([1], staged, fence)
    assert torch.equal(
        target._blocks[1].view(torch.uint8).unique(), torch.tensor([1], dtype=torch.uint8, device="cuda")
    )


def test_a_read_does_not_wait_for_later_steps():
    source = storage(filled=True)
    blocks = source.carried_blocks()
    torch.cuda.synchronize()
    staged = memoryview(mmap(-1, blocks.block_bytes))
    blocks.lock(staged)
    busy = torch.randn(8192, 8192, device="cuda")
    done = torch.cuda.Event()
    for _ in range(200):
        busy = busy @ busy.T * 1e-4
    done.record()
    blocks.read([3], staged)
    assert not done.query(), "the copy waited for the steps behind it"
    torch.cuda.synchronize()
    assert bytes(staged) == bytes(source._blocks[3].contiguous().view(torch.uint8).cpu().flatten().tolist())
