"""Ends of a transfer by NIXL in processes of their own, for tests that end them."""

import os
from multiprocessing.connection import Connection

from quire.kvcache.transfer.fetcher import KVFetcher
from quire.kvcache.transfer.format import KVFormat
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.kvcache.transfer.nixl_carrier import NixlMemory, open_nixl
from quire.kvcache.transfer.sender import KVSender
from quire.kvcache.transfer.wire import TransferRefused
from tests.kvcache.transfer.engines import FORMAT, LAYOUT, SECRET, entry, memory, serve


def sender_with_nixl(address: str, held, own: KVFormat = FORMAT) -> KVSender:
    blocks = HostBlocks(held, LAYOUT)
    return KVSender(address, own, blocks, SECRET, lambda: None, nixl=open_nixl(blocks, on_one_host=True))


def fetcher_with_nixl(target, own: KVFormat = FORMAT) -> KVFetcher:
    blocks = HostBlocks(target, LAYOUT)
    return KVFetcher(own, blocks, SECRET, lambda: None, nixl=open_nixl(blocks, on_one_host=True))


def read_for_ever(nixl: NixlMemory, begun) -> None:
    """Read again and again, as if there were far more of it; ends only where reading fails."""
    once = nixl.read

    def read(reached, theirs, ours) -> None:
        while True:
            once(reached, theirs, ours)
            begun()

    nixl.read = read  # type: ignore[method-assign]


def send(address: str, told: Connection) -> None:
    """A process with blocks 1 to 40 of seed 1 under their numbers; answers every want."""
    sender = sender_with_nixl(address, memory(1))
    told.send((sender.address, os.getpid()))
    while True:
        serve(sender, {name: name for name in range(1, 41)}, seconds=60)


def fetch_for_ever(address: str, told: Connection) -> None:
    """A process that reads block 1, and never has enough of it."""
    fetcher = fetcher_with_nixl(memory())
    assert fetcher.nixl is not None
    read_for_ever(fetcher.nixl, lambda: told.send(os.getpid()))
    fetcher.fetch(address, [entry(1, 5)]).events.get()
    raise TransferRefused("it ended")
