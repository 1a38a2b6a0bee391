"""Blocks from one engine's memory into another's, over shared memory and over TCP."""

import shutil
import socket
import ssl
import subprocess
from threading import Event, Thread

import msgspec
import numpy as np
import pytest

from quire.config.resolved import KVLayout
from quire.kvcache.transfer import stream_carrier
from quire.kvcache.transfer.fetcher import TCP_CONNECTIONS, KVFetcher
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.kvcache.transfer.sender import KVSender
from quire.kvcache.transfer.wire import Hello, Pieces, Taken, Want, connect, frame
from tests.kvcache.transfer.engines import (
    FORMAT,
    LAYOUT,
    SECRET,
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


def test_a_sender_that_is_closed_while_it_greets_ends_the_fetch(address, monkeypatch):
    sender = sender_at(address, memory(1))
    outbound = sender._outbound

    def closing(*args):
        sender.close()
        return outbound(*args)

    monkeypatch.setattr(sender, "_outbound", closing)
    fetch = fetcher_into(memory()).fetch(sender.address, [entry(1, 1)])
    assert events(fetch) == {name_of(1): False}


def test_what_is_abandoned_before_it_was_asked_for_is_told_at_once(address, monkeypatch):
    sender, fetcher, connects = sender_at(address, memory(1)), fetcher_into(memory()), Event()

    def connect_late(*args):
        connects.wait()
        return connect(*args)

    monkeypatch.setattr("quire.kvcache.transfer.fetcher.connect", connect_late)
    first = fetcher.fetch(sender.address, [entry(1, 1)])
    fetcher.abandon(first)
    assert events(first) == {name_of(1): False}
    second = fetcher.fetch(sender.address, [entry(2, 2)])
    connects.set()
    assert sender.wants.get(timeout=5).want.names == [name_of(2)]
    sender.close()
    assert events(second) == {name_of(2): False}
    assert first.events.empty()
    assert sender.wants.empty()


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
        ({"version": 1}, "same version of quire"),
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

    def changed(message):
        is_second = isinstance(message, Pieces) and message.places == [1]
        return frame(msgspec.structs.replace(message, checksum=message.checksum ^ 1) if is_second else message)

    monkeypatch.setattr(f"quire.kvcache.transfer.{'slot' if 'unix' in address else 'stream'}_carrier.frame", changed)
    fetcher = fetcher_into(target)
    fetch = fetcher.fetch(sender.address, [entry(name, name + 10) for name in (1, 2, 3)])
    opened = sender.wants.get(timeout=5)
    for place in (0, 1, 2):
        opened.send([place], [place + 1])
    assert events(fetch) == {name_of(1): True, name_of(2): False, name_of(3): True}
    assert (fetcher.counts.blocks, fetcher.counts.corrupt) == (2, 1)
    assert (planes(target)[:, [11, 13]] == planes(held)[:, [1, 3]]).all()
    sender.close()


def test_an_engine_of_another_version_is_refused_in_words(caplog):
    with socket.create_server(("127.0.0.1", 0)) as older:
        fetch = fetcher_into(memory()).fetch(f"tcp://127.0.0.1:{older.getsockname()[1]}", [entry(1, 1)])
        connection, _ = older.accept()
        connection.sendall(b"quire-kv-1\n" + bytes(32))
        assert events(fetch) == {name_of(1): False}
        connection.close()
    assert "of another version" in caplog.text


def test_a_slot_that_was_not_lent_cannot_be_taken(tmp_path, caplog):
    sender = sender_at(f"unix://{tmp_path}/kv", memory(1))
    connection = connect(sender.address, SECRET)
    connection.sendall(frame(Hello(FORMAT)) + frame(Taken(2)))
    wait_for(lambda: "was not lent" in caplog.text)
    connection.close()
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


class FarBlocks:
    """Blocks of which only copies can be had, block after block, as of those on a GPU or on several ranks."""

    def __init__(self, held: np.ndarray, layout: KVLayout) -> None:
        near = HostBlocks(held, layout)
        self.block_bytes, self.buffer, self.lock, self.fence = near.block_bytes, near.buffer, near.lock, near.fence
        self.read, self.write = near.read, near.write


@pytest.mark.parametrize("sends", [HostBlocks, FarBlocks])
@pytest.mark.parametrize("fetches", [HostBlocks, FarBlocks])
def test_each_end_takes_what_the_other_sends(address, sends, fetches):
    held, target = memory(1), memory()
    sender = KVSender(address, FORMAT, sends(held, LAYOUT), SECRET, lambda: None)
    fetcher = KVFetcher(FORMAT, fetches(target, LAYOUT), SECRET, lambda: None)
    wanted = {1: 30, 2: 31, 3: 5, 9: 6, 20: 7, 21: 3, 8: 2}  # some lie side by side, here or there
    fetch = fetcher.fetch(sender.address, [entry(name, block) for name, block in wanted.items()])
    serve(sender, {name: name for name in wanted})
    assert events(fetch) == {name_of(name): True for name in wanted}
    for name, block in wanted.items():
        assert (planes(target)[:, block] == planes(held)[:, name]).all()
    untouched = [block for block in range(41) if block not in wanted.values()]
    assert not planes(target)[:, untouched].any()
    sender.close()
    fetcher.close()


def test_over_tls(tmp_path):
    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")
    subprocess.run([*command, "-keyout", key, "-out", cert], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    held, target = memory(1), memory()
    sender = KVSender("tls://localhost:0", FORMAT, HostBlocks(held, LAYOUT), SECRET, lambda: None, context)
    fetcher = KVFetcher(FORMAT, HostBlocks(target, LAYOUT), SECRET, lambda: None, cert)
    for name in range(1, 20):  # each is asked for while an answer may be on its way
        fetch = fetcher.fetch(sender.address, [entry(name, 20 + name)])
        serve(sender, {name: name})
        assert events(fetch) == {name_of(name): True}
        assert (planes(target)[:, 20 + name] == planes(held)[:, name]).all()
    strangers = KVFetcher(FORMAT, HostBlocks(memory(), LAYOUT), SECRET, lambda: None)
    assert events(strangers.fetch(sender.address, [entry(1, 2)])) == {name_of(1): False}
    fetcher.close()
    sender.close()


def test_a_fetcher_that_stops_reading_is_cut_off(monkeypatch, caplog):
    monkeypatch.setattr(stream_carrier, "STALLED_SECONDS", 1.0)
    sender = sender_at("tcp://127.0.0.1:0", memory(1))
    wants, blocks = 1_000, list(range(1, 33))  # 25 MB, more than sockets hold
    with connect(sender.address, SECRET, None) as stopped:
        stopped.sendall(frame(Hello(FORMAT)))
        for number in range(wants):
            stopped.sendall(frame(Want(number, [0] * len(blocks), list(map(name_of, blocks)))))
        for _ in range(wants):
            sender.wants.get(timeout=5).send(list(range(len(blocks))), blocks)
        left = wants * len(blocks)
        while left:
            left -= len(sender.returned.get(timeout=30))
        assert left == 0
    assert "cut off: it has taken nothing for 1 s" in caplog.text
    sender.close()
