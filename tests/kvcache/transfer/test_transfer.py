"""Blocks from one engine's memory into another's, over shared memory and over TCP."""

from threading import Thread

import msgspec
import numpy as np
import pytest

from quire.kvcache.transfer.fetcher import TCP_CONNECTIONS
from tests.kvcache.transfer.engines import (
    FORMAT,
    entry,
    events,
    fetcher_into,
    memory,
    name_of,
    sender_at,
    serve,
    wait_for,
)


@pytest.fixture(params=["unix", "tcp"])
def address(request, tmp_path) -> str:
    return f"unix://{tmp_path}/kv" if request.param == "unix" else "tcp://127.0.0.1:0"


def num_lines(sender) -> int:
    return 1 if sender.address.startswith("unix") else TCP_CONNECTIONS


def serve_all(sender, blocks: dict[int, int], wants: int) -> list[Thread]:
    threads = [Thread(target=serve, args=(sender, blocks)) for _ in range(wants)]
    for thread in threads:
        thread.start()
    return threads


def planes(held: np.ndarray) -> np.ndarray:
    return held.reshape(6, 41, -1)


def test_blocks_arrive_under_their_names(address):
    held, target = memory(1), memory()
    sender = sender_at(address, held)
    fetcher = fetcher_into(target)
    wanted = {name: 40 - name for name in range(1, 33)}
    fetch = fetcher.fetch(sender.address, [entry(name, block) for name, block in wanted.items()])
    for thread in serve_all(sender, {name: name for name in wanted}, num_lines(sender)):
        thread.join()
    assert events(fetch) == {name_of(name): True for name in wanted}
    for name, block in wanted.items():
        assert (planes(target)[:, block] == planes(held)[:, name]).all()
    assert not planes(target)[:, 0].any(), "the null block was written"
    wait_for(lambda: sender.counts.bytes == 32 * FORMAT.block_bytes)
    assert fetcher.counts.bytes == fetcher.counts.blocks * FORMAT.block_bytes == 32 * FORMAT.block_bytes
    given_back = [block for _ in range(sender.returned.qsize()) for block in sender.returned.get()]
    assert sorted(given_back) == list(wanted)
    sender.close()
    fetcher.close()


def test_what_is_not_there_is_told(address):
    sender = sender_at(address, memory(1))
    fetcher = fetcher_into(memory())
    fetch = fetcher.fetch(sender.address, [entry(1, 1), entry(2, 2)])
    serve(sender, {1: 5})
    assert events(fetch) == {name_of(1): True, name_of(2): False}
    sender.close()


def test_a_lost_sender_leaves_nothing_open(address):
    sender = sender_at(address, memory(1))
    fetcher = fetcher_into(memory())
    fetch = fetcher.fetch(sender.address, [entry(1, 1)])
    sender.wants.get(timeout=5)
    sender.close()
    assert events(fetch) == {name_of(1): False}
    late = fetcher.fetch(sender.address, [entry(1, 1)])
    assert events(late) == {name_of(1): False}
    assert fetcher.counts.refused == 1


def test_a_lost_fetcher_gives_blocks_back(address):
    sender = sender_at(address, memory(1))
    fetcher = fetcher_into(memory())
    fetcher.fetch(sender.address, [entry(1, 1)])
    opened = sender.wants.get(timeout=5)
    fetcher.close()
    wait_for(lambda: opened.is_cancelled)
    opened.send([0], [7])
    assert sender.returned.get(timeout=5) == [7]
    sender.close()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"model": "others"}, "fingerprints of the models differ"),
        ({"dtype": "float16"}, "KV dtypes differ: here bfloat16, there float16"),
        ({"block_size": 8}, "--block-size"),
        ({"plane": (4, 8)}, "shapes of a token's KV"),
        ({"version": 2}, "same version of quire"),
    ],
)
def test_another_format_is_refused_in_words(address, caplog, changed, told):
    sender = sender_at(address, memory(1))
    fetcher = fetcher_into(memory(), msgspec.structs.replace(FORMAT, **changed))
    fetch = fetcher.fetch(sender.address, [entry(1, 1)])
    assert events(fetch) == {name_of(1): False}
    wait_for(lambda: sender.counts.refused == 1)
    assert fetcher.counts.refused == 1
    assert told in caplog.text
    sender.close()


def test_another_secret_is_refused(address):
    sender = sender_at(address, memory(1))
    fetcher = fetcher_into(memory(), secret=b"another secret of nobody")
    fetch = fetcher.fetch(sender.address, [entry(1, 1)])
    assert events(fetch) == {name_of(1): False}
    wait_for(lambda: sender.counts.refused == 1)
    sender.close()


def test_bytes_that_changed_on_the_way_are_not_used(address, monkeypatch):
    held, target = memory(1), memory()
    sender = sender_at(address, held)
    monkeypatch.setattr("quire.kvcache.transfer.sender.crc32", lambda data, start=0: 12345)
    fetcher = fetcher_into(target)
    fetch = fetcher.fetch(sender.address, [entry(1, 1)])
    serve(sender, {1: 1})
    assert events(fetch) == {name_of(1): False}
    assert fetcher.counts.corrupt == 1
    assert not planes(target)[:, 1].any()
    sender.close()


def test_blocks_come_while_others_are_still_computed(address):
    held, target = memory(1), memory()
    sender = sender_at(address, held)
    fetcher = fetcher_into(target)
    fetch = fetcher.fetch(sender.address, [entry(1, 1), entry(2, 2)], until="a request")
    opened = sender.wants.get(timeout=5)
    assert opened.want.until == "a request"
    opened.send([0], [1])
    first, has_come = fetch.events.get(timeout=5)
    assert (first.name, has_come) == (name_of(1), True)
    opened.send([1], [2])
    opened.done()
    assert fetch.events.get(timeout=5)[1]
    sender.close()
