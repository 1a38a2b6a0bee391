"""Blocks of several stages: what goes through all layers comes back to each stage as it was."""

import numpy as np

from quire.config.resolved import KVGroup, KVLayout
from quire.kvcache.storage_shape import StorageShape
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.kvcache.transfer.staged_blocks import StagedBlocks

_BLOCKS = 24


def layout_of(num_layers: int) -> KVLayout:
    plane = (2, 8)
    return KVLayout(4, _BLOCKS, 0, (KVGroup(tuple(range(num_layers)), None, (plane, plane)),), 1, 1, "float16")


def test_blocks_of_stages_with_different_layers() -> None:
    layouts = [layout_of(count) for count in (3, 1, 2)]
    sizes = [StorageShape(layout).block_bytes for layout in layouts]
    generator = np.random.default_rng(1)
    held = [generator.integers(0, 256, (_BLOCKS + 1) * size, np.uint8) for size in sizes]
    blocks = StagedBlocks([HostBlocks(each, layout) for each, layout in zip(held, layouts, strict=True)])
    assert blocks.block_bytes == sum(sizes)
    asked = [5, 1, *range(7, 24)]  # more than are passed at a time
    whole = blocks.buffer(len(asked))
    blocks.read(asked, whole)
    rows = list(zip(held, _row_sizes(layouts), strict=True))
    for place, block in enumerate(asked):
        wanted = b"".join(memory.reshape(-1, _BLOCKS + 1, size)[:, block].tobytes() for memory, size in rows)
        assert bytes(whole[place * blocks.block_bytes :][: blocks.block_bytes]) == wanted
    others = [np.zeros_like(each) for each in held]
    again = StagedBlocks([HostBlocks(each, layout) for each, layout in zip(others, layouts, strict=True)])
    again.write(asked, whole, again.fence())
    for mine, theirs, size in zip(held, others, _row_sizes(layouts), strict=True):
        came, sent = theirs.reshape(-1, _BLOCKS + 1, size), mine.reshape(-1, _BLOCKS + 1, size)
        assert (came[:, asked] == sent[:, asked]).all()
        assert not np.delete(came, asked, axis=1).any()


def _row_sizes(layouts: list[KVLayout]) -> list[int]:
    """Bytes of one plane of a block."""
    return [StorageShape(layout).block_bytes // StorageShape(layout).num_planes for layout in layouts]
