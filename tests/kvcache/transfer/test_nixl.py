"""Blocks read by NIXL itself, UCX beneath, between two processes."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from multiprocessing.connection import Connection
from threading import Event

import msgspec
import pytest

from tests.kvcache.transfer import nixl_ends
from tests.kvcache.transfer.engines import FORMAT, entry, events, memory, name_of, serve, wait_for

pytestmark = pytest.mark.skipif(find_spec("nixl") is None, reason="nixl is not installed")


@contextmanager
def process(run: Callable[[str, Connection], None], address: str) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    child = context.Process(target=run, args=(address, theirs), daemon=True)
    child.start()
    try:
        yield ours
    finally:
        child.kill()
        child.join()


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_blocks_are_equal(tmp_path, kind):
    listen = f"unix://{tmp_path}/kv" if kind == "unix" else "tcp://127.0.0.1:0"
    held, target = memory(1).reshape(6, 41, -1), memory()
    with process(nixl_ends.send, listen) as sender:
        address, _ = sender.recv()
        fetcher = nixl_ends.fetcher_with_nixl(target)
        for wanted in ({name: 41 - name for name in range(1, 41)}, {3: 4, 4: 5, 5: 6, 20: 1}):
            fetch = fetcher.fetch(address, [entry(name, block) for name, block in wanted.items()])
            assert events(fetch, 30) == {name_of(name): True for name in wanted}
            for name, block in wanted.items():
                assert (target.reshape(6, 41, -1)[:, block] == held[:, name]).all()
        assert not target.reshape(6, 41, -1)[:, 0].any(), "the null block was written"
        assert fetcher.counts.blocks == 44
        fetcher.close()


def test_a_killed_fetcher_gives_blocks_back(tmp_path):
    sender = nixl_ends.sender_with_nixl(f"unix://{tmp_path}/kv", memory(1))
    with process(nixl_ends.fetch_for_ever, sender.address) as fetcher:
        serve(sender, {1: 7}, seconds=30)
        pid = fetcher.recv()
        assert sender.returned.empty(), "it was given back while it was read"
        os.kill(pid, signal.SIGKILL)
        assert sender.returned.get(timeout=10) == [7]
    target = memory()
    again = nixl_ends.fetcher_with_nixl(target)  # the sender goes on
    fetch = again.fetch(sender.address, [entry(1, 9)])
    serve(sender, {1: 7})
    assert events(fetch, 30) == {name_of(1): True}
    again.close()
    sender.close()


def test_a_killed_sender_ends_the_fetch(tmp_path):
    fetcher = nixl_ends.fetcher_with_nixl(memory())
    assert fetcher.nixl is not None
    reading = Event()
    nixl_ends.read_for_ever(fetcher.nixl, reading.set)
    with process(nixl_ends.send, f"unix://{tmp_path}/kv") as sender:
        address, pid = sender.recv()
        fetch = fetcher.fetch(address, [entry(1, 5), entry(2, 6)])
        assert reading.wait(30)
        os.kill(pid, signal.SIGKILL)
        assert events(fetch, 30) == {name_of(1): False, name_of(2): False}
    fetcher.close()


def test_another_format_is_refused(tmp_path, caplog):
    sender = nixl_ends.sender_with_nixl(f"unix://{tmp_path}/kv", memory(1))
    fetcher = nixl_ends.fetcher_with_nixl(memory(), msgspec.structs.replace(FORMAT, model="others"))
    fetch = fetcher.fetch(sender.address, [entry(1, 5)])
    assert events(fetch) == {name_of(1): False}
    wait_for(lambda: sender.counts.refused == 1)
    assert "fingerprints of the models differ" in caplog.text
    sender.close()
