"""One checksum, however a block's bytes are cut."""

import numpy as np

from quire.kvcache.checksum import checksum, checksum_of, digest


def test_planes_that_lie_apart_have_the_checksum_of_the_block_together():
    block = memoryview(np.random.default_rng(1).integers(0, 256, 60 * 6144, np.uint8))
    planes = [block[start : start + 6144] for start in range(0, block.nbytes, 6144)]
    assert checksum_of(planes) == checksum(block)
    assert digest(*planes) == digest(block)


def test_every_bit_counts():
    block = bytearray(np.random.default_rng(2).integers(0, 256, 4096, np.uint8))
    before = checksum(memoryview(block)), digest(block)
    for place in (0, 1, 2047, 4095):
        block[place] ^= 1
        assert checksum(memoryview(block)) != before[0]
        assert digest(block) != before[1]
        block[place] ^= 1
