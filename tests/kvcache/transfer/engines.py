"""Two ends of a transfer without engines: blocks in plain memory, and a thread of the test for the engine's."""

import time

import numpy as np

from quire.config.resolved import KVGroup, KVLayout
from quire.kvcache.prefix import CachedBlock
from quire.kvcache.transfer.fetcher import Fetch, KVFetcher
from quire.kvcache.transfer.format import GroupFormat, KVFormat
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.kvcache.transfer.sender import KVSender

SECRET = b"a secret of both engines"
LAYOUT = KVLayout(
    block_size=4,
    num_blocks=40,
    num_cpu_blocks=0,
    groups=(KVGroup((0, 1, 2), None, ((2, 8), (2, 8))),),
    block_bytes=4 * 6 * 16 * 2,
    bytes_per_token=6 * 16 * 2,
    dtype="bfloat16",
)
FORMAT = KVFormat(
    model="weights",
    kind="keys and values",
    dtype="bfloat16",
    block_size=4,
    num_planes=6,
    plane=(2, 8),
    groups=(GroupFormat((0, 1, 2), None),),
)


def memory(seed: int | None = None) -> np.ndarray:
    size = 6 * 41 * 4 * 16 * 2
    return np.zeros(size, np.uint8) if seed is None else np.random.default_rng(seed).integers(0, 256, size, np.uint8)


def name_of(block: int) -> bytes:
    return block.to_bytes(32, "little")


def entry(name: int, block: int) -> CachedBlock:
    return CachedBlock(block, 0, b"", name_of(name), (1, 2, 3, 4), 0)


def serve(sender: KVSender, blocks: dict[int, int], seconds: float = 5.0) -> None:
    """Answer the first want with these blocks by name, as an engine's thread would between two steps."""
    opened = sender.wants.get(timeout=seconds)
    named = {name_of(name): block for name, block in blocks.items()}
    found = [(place, named[name]) for place, name in enumerate(opened.want.names) if name in named]
    if found:
        opened.send([place for place, _ in found], [block for _, block in found])
    opened.done()


def events(fetch: Fetch, seconds: float = 5.0) -> dict[bytes, bool]:
    """What has come of a fetch, by name, once all is known."""
    return {entry.name: has_come for entry, has_come in (fetch.events.get(timeout=seconds) for _ in fetch.entries)}


def sender_at(address: str, held: np.ndarray, own: KVFormat = FORMAT) -> KVSender:
    return KVSender(address, own, HostBlocks(held, LAYOUT), SECRET, lambda: None)


def fetcher_into(target: np.ndarray, own: KVFormat = FORMAT, secret: bytes = SECRET) -> KVFetcher:
    return KVFetcher(own, HostBlocks(target, LAYOUT), secret, lambda: None)


def wait_for(condition, seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.002)
