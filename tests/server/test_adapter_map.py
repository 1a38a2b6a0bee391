"""/stats/adapters: where engines have adapters, told to keys that may use them."""

import asyncio
from collections import OrderedDict
from concurrent.futures import Future
from threading import Lock
from types import SimpleNamespace
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from quire.core.adapter import AdapterRef
from quire.protocol.schemas.status import ADAPTERS
from quire.scheduler.adapter_room import AdapterRoom
from quire.server import adapter_map
from quire.server.adapter_map import AdapterMap
from quire.serving.messages import Adapters, AdapterSeen
from quire.serving.probe import Probe
from quire.worker.adapter_store import AdapterStore


class Engines:
    """Two engines."""

    def __init__(self) -> None:
        self.clients = [SimpleNamespace(number=number) for number in range(2)]
        self.asked = 0

    def ready(self) -> list[SimpleNamespace]:
        return self.clients

    async def adapters(self, client: SimpleNamespace) -> Adapters:
        self.asked += 1
        rows = [AdapterSeen("sql", "device", 2, 1), AdapterSeen("chat", "host")]
        return Adapters(rows[: 2 - client.number])


def shown(engines: Engines, models: frozenset[str] | None, adapters: Any = ()) -> list[dict[str, Any]]:
    fleet = SimpleNamespace(supervisor=engines)
    llm: Any = SimpleNamespace(fleet=fleet, engine_calls=engines, adapters=adapters)
    found = asyncio.run(AdapterMap(llm).replicas(models))
    Draft202012Validator(ADAPTERS).validate({"replicas": found})
    return found


def test_every_engine_tells_of_its_own() -> None:
    found = shown(Engines(), None)
    sql = {"name": "sql", "place": "device", "running": 2, "waiting": 1}
    chat = {"name": "chat", "place": "host", "running": 0, "waiting": 0}
    assert found == [
        {"replica": 0, "adapters": [sql, chat], "left_out": 0},
        {"replica": 1, "adapters": [sql], "left_out": 0},
    ]


def test_a_key_does_not_hear_of_what_it_may_not_use() -> None:
    found = shown(Engines(), frozenset({"chat", "smollm2"}))
    assert [[row["name"] for row in each["adapters"]] for each in found] == [["chat"], []]
    assert [each["left_out"] for each in found] == [0, 0]


def test_of_thousands_the_first_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter_map, "_MOST", 1)
    found = shown(Engines(), None)
    assert [(len(each["adapters"]), each["left_out"]) for each in found] == [(1, 1), (1, 0)]


def test_engines_without_adapters_are_not_asked() -> None:
    engines = Engines()
    assert shown(engines, None, adapters=None) == []
    assert engines.asked == 0


def loop_of(room: AdapterRoom | None, hosted: list[str]) -> Any:
    return SimpleNamespace(
        scheduler=SimpleNamespace(adapters=room), executor=SimpleNamespace(hosted_adapter_keys=lambda: hosted)
    )


def test_a_probe_tells_each_adapter_once_and_at_its_best_place() -> None:
    sql, chat, code, left = (AdapterRef(name, "/x", "1").key for name in ("sql", "chat", "code", "left"))
    room = AdapterRoom(1, 1)
    for request, key in (("r1", sql), ("r2", chat), ("r3", chat), ("r4", left)):
        room.ask(request, key, 1)
        for load in room.grant():
            room.loaded(load.key)
    told = Probe(loop_of(room, [chat, sql, code])).adapters()
    assert told.adapters == [
        AdapterSeen("sql", "device", 1, 0),
        AdapterSeen("chat", "host", 0, 2),
        AdapterSeen("left", "disk", 0, 1),
        AdapterSeen("code", "host"),
    ]


def test_a_probe_of_an_engine_without_adapters_tells_of_none() -> None:
    assert Probe(loop_of(None, [])).adapters() == Adapters()


def test_host_memory_holds_what_has_been_read() -> None:
    done: Future[None] = Future()
    done.set_result(None)
    broken: Future[None] = Future()
    broken.set_exception(OSError("gone"))
    store: Any = SimpleNamespace(
        _lock=Lock(), _hosted=OrderedDict(old=done, broken=broken, on_its_way=Future(), new=done)
    )
    assert AdapterStore.hosted_keys(store) == ["new", "old"]
