"""The conversation around reads by NIXL, whose agent is a fake here: what is lent, for how long, and what counts."""

from threading import Thread

import msgspec
import pytest

from quire.core.carried_blocks import BlockPlace
from quire.core.errors import ConfigError
from quire.kvcache.transfer import lent_slots
from quire.kvcache.transfer.fetcher import KVFetcher
from quire.kvcache.transfer.host_blocks import HostBlocks
from quire.kvcache.transfer.nixl_carrier import NixlMemory, NixlOut, require_nixl
from quire.kvcache.transfer.sender import KVSender
from quire.kvcache.transfer.wire import Kept, Pieces, Readable, ToFetcher, TransferRefused
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
from tests.kvcache.transfer.fake_nixl import FakeAgent, Lost

SENDING, FETCHING = "the sender's", "the fetcher's"


class Pair:
    """Two ends with NIXL."""

    def __init__(self, address: str, *, is_held: bool = False) -> None:
        self.held, self.target = memory(1), memory()
        here, there = HostBlocks(self.held, LAYOUT), HostBlocks(self.target, LAYOUT)
        self.agent = FakeAgent(FETCHING, is_held=is_held)
        self.sending = FakeAgent(SENDING)
        self.sender = KVSender(address, FORMAT, here, SECRET, lambda: None, nixl=NixlMemory(here, self.sending))
        self.fetcher = KVFetcher(FORMAT, there, SECRET, lambda: None, nixl=NixlMemory(there, self.agent))

    def block(self, number: int):
        return self.target.reshape(6, 41, -1)[:, number], self.held.reshape(6, 41, -1)[:, number]

    def close(self) -> None:
        self.fetcher.close()
        self.sender.close()


@pytest.fixture
def address(tmp_path) -> str:
    return f"unix://{tmp_path}/kv"


def returned(sender: KVSender) -> list[int]:
    return sorted(block for _ in range(sender.returned.qsize()) for block in sender.returned.get())


@pytest.mark.parametrize("kind", ["unix", "tcp"])
def test_blocks_are_read_to_where_they_belong(tmp_path, kind):
    pair = Pair(f"unix://{tmp_path}/kv" if kind == "unix" else "tcp://127.0.0.1:0")
    names = {3: 30, 4: 31, 9: 12}
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(name, block) for name, block in names.items()])
    serve(pair.sender, {name: name for name in names})
    assert events(fetch) == {name_of(name): True for name in names}
    for name, block in names.items():
        assert (pair.block(block)[0] == pair.block(name)[1]).all()
    assert not pair.block(0)[0].any(), "the null block was written"
    wait_for(lambda: returned(pair.sender) == sorted(names))
    assert pair.agent.known == {SENDING}
    assert pair.fetcher.counts.bytes == 3 * FORMAT.block_bytes
    pair.close()
    wait_for(lambda: not pair.agent.known)


def test_blocks_stay_lent_until_they_are_taken(address):
    pair = Pair(address, is_held=True)
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(1, 5)])
    serve(pair.sender, {1: 1})
    assert pair.agent.begun.wait(5)
    wait_for(lambda: pair.sending.num_looks > 3)  # meanwhile NIXL is called on the sending side, too
    assert fetch.events.empty()
    assert pair.sender.returned.empty()
    pair.agent.may_end.set()
    assert events(fetch) == {name_of(1): True}
    wait_for(lambda: returned(pair.sender) == [1])
    pair.close()


def test_a_fetcher_that_is_lost_gives_back_what_was_lent(address):
    pair = Pair(address, is_held=True)
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(1, 5), entry(2, 6)])
    serve(pair.sender, {1: 1, 2: 2})
    assert pair.agent.begun.wait(5)
    assert pair.sender.returned.empty()
    pair.fetcher.close()
    wait_for(lambda: returned(pair.sender) == [1, 2])
    # its read goes on meanwhile: until that is over, nobody may have these blocks, and what it read does not count
    assert fetch.events.empty()
    pair.agent.may_end.set()
    assert events(fetch) == {name_of(1): False, name_of(2): False}
    pair.close()


def test_who_takes_nothing_is_cut_off(address, monkeypatch, caplog):
    monkeypatch.setattr(lent_slots, "STALLED_SECONDS", 0.1)
    pair = Pair(address, is_held=True)
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(1, 5)])
    serve(pair.sender, {1: 1})
    wait_for(lambda: returned(pair.sender) == [1])
    assert "it has taken nothing" in caplog.text
    pair.agent.may_end.set()
    assert events(fetch) == {name_of(1): False}
    pair.close()


def test_where_nixl_fails_on_the_sending_side_blocks_come_back(address, monkeypatch, caplog):
    pair = Pair(address, is_held=True)

    def fails() -> None:
        raise Lost("NIXL_ERR_BACKEND")

    monkeypatch.setattr(pair.sending, "get_new_notifs", fails)
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(1, 5)])
    serve(pair.sender, {1: 1})
    wait_for(lambda: returned(pair.sender) == [1])
    assert "NIXL does not go on: NIXL_ERR_BACKEND" in caplog.text
    pair.agent.may_end.set()
    assert events(fetch) == {name_of(1): False}
    pair.close()


def test_a_sender_that_is_lost_is_told(address, caplog):
    pair = Pair(address, is_held=True)
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(1, 5)])
    serve(pair.sender, {1: 1})
    assert pair.agent.begun.wait(5)
    pair.agent.is_lost = True
    assert events(fetch) == {name_of(1): False}
    assert "reading its memory failed: NIXL_ERR_REMOTE_DISCONNECT" in caplog.text
    wait_for(lambda: returned(pair.sender) == [1])
    pair.close()


def test_bytes_that_changed_are_not_used(address, monkeypatch):
    pair = Pair(address)
    monkeypatch.setattr(pair.agent, "transfer", lambda copies: "DONE")  # and nothing was read
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(1, 5)])
    serve(pair.sender, {1: 1})
    assert events(fetch) == {name_of(1): False}
    assert pair.fetcher.counts.corrupt == 1
    pair.close()


def test_memory_of_a_gpu_is_read_without_checksums(address, monkeypatch):
    pair = Pair(address)
    monkeypatch.setattr(NixlMemory, "checks", False)
    monkeypatch.setattr(pair.agent, "transfer", lambda copies: "DONE")
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(1, 5)])
    serve(pair.sender, {1: 1})
    assert events(fetch) == {name_of(1): True}
    pair.close()


@pytest.mark.parametrize("who", ["fetcher", "sender"])
def test_an_engine_without_nixl_uses_sockets(address, caplog, who):
    caplog.set_level("INFO")
    pair = Pair(address)
    if who == "fetcher":
        pair.fetcher = fetcher_into(pair.target)
    else:
        pair.sender.close()
        pair.sender = sender_at(address, pair.held)
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(1, 5)])
    serve(pair.sender, {1: 1})
    assert events(fetch) == {name_of(1): True}
    assert (pair.block(5)[0] == pair.block(1)[1]).all()
    assert not pair.agent.begun.is_set()
    assert ("comes over sockets" in caplog.text) == (who == "sender")
    assert ("goes to an engine over sockets" in caplog.text) == (who == "fetcher")
    pair.close()


def test_another_format_is_refused_before_any_memory_is_offered(address, caplog):
    pair = Pair(address)
    pair.fetcher.format = msgspec.structs.replace(FORMAT, dtype="float16")
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(1, 5)])
    assert events(fetch) == {name_of(1): False}
    assert "KV dtypes differ" in caplog.text
    assert not pair.agent.known
    pair.close()


@pytest.mark.parametrize("block", [0, 41, -1])
def test_blocks_that_are_none_are_not_read(address, monkeypatch, block):
    pair = Pair(address)
    fetch = pair.fetcher.fetch(pair.sender.address, [entry(1, 5)])
    monkeypatch.setattr(pair.sender.blocks, "views", lambda blocks: [])
    opened = pair.sender.wants.get(timeout=5)
    opened.send([0], [block])
    assert events(fetch) == {name_of(1): False}
    assert not pair.agent.begun.is_set()
    pair.close()


def test_planes_of_other_sizes_are_refused():
    blocks = HostBlocks(memory(), LAYOUT)
    nixl = NixlMemory(blocks, FakeAgent(FETCHING))
    place = blocks.place()
    with pytest.raises(TransferRefused, match="other planes"):
        nixl.reach(Readable(b"x", BlockPlace(1, None, 3, place.num_blocks, 2 * place.plane_bytes, 10**6)))


def test_without_nixl_the_setting_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr("quire.kvcache.transfer.nixl_carrier.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install quire\[nixl\]"):
        require_nixl()


def test_a_number_is_not_lent_again_before_the_word_about_it(address):
    """The other end keeps what it read under a number until that word; two at a time it could not tell apart."""
    pair = Pair(address)
    said: list[Pieces | Kept] = []

    class Connection:
        def sendall(self, data: bytes) -> None:
            said.append(msgspec.msgpack.decode(data[4:], type=ToFetcher))

    out = NixlOut(Connection(), NixlMemory(HostBlocks(pair.held, LAYOUT), pair.sending), is_checked=True)
    rooms = [out.room() for _ in range(4)]
    for room in rooms:
        out.send(room, 1, [0], [room + 1])
    writer = Thread(target=lambda: out.send(out.room(), 1, [0], [9]))
    writer.start()  # all numbers are lent: it waits
    free = out._lent.taken

    def hesitant(slot: int) -> list[int]:
        """Another thread may come between at any moment."""
        blocks = free(slot)
        writer.join(timeout=0.2)
        return blocks

    out._lent.taken = hesitant
    assert out.taken(2) == [3]
    writer.join(timeout=5)
    assert [type(message) for message in said[4:]] == [Kept, Pieces]
    assert {message.slot for message in said[4:]} == {2}
    pair.close()
