"""Weights of tenants: from the front to every engine, those that come later too."""

import asyncio
from types import SimpleNamespace
from typing import Any

import zmq

from quire.config.engine import EngineConfig
from quire.observe.metrics import Metrics
from quire.serving.embed_jobs import EmbedJobs
from quire.serving.fleet import Fleet, Slot
from quire.serving.messages import Started, Weights, encode
from quire.serving.runner import Runner

TWICE = {"a": 2.0}


class Inbox:
    """Holds messages that an engine has not read."""

    def __init__(self, *messages: Any) -> None:
        self._messages = [encode(message) for message in messages]

    def poll(self, timeout: int) -> bool:
        return bool(self._messages)

    def recv(self, flags: int) -> bytes:
        if not self._messages:
            raise zmq.Again
        return self._messages.pop(0)


def test_an_engine_weighs_as_it_is_told() -> None:
    told: list[dict[str, float]] = []
    loop = SimpleNamespace(scheduler=SimpleNamespace(weigh_tenants=told.append))
    for each in (loop, None):  # an encoder has no scheduler
        embeds, started = EmbedJobs(lambda: None), Started(8, 1, 16, 4)  # type: ignore[arg-type, return-value]
        Runner(each, embeds, started, Inbox(Weights(TWICE)), None)._read(0)  # type: ignore[arg-type]
    assert told == [TWICE]


def test_engines_that_run_are_told_and_later_ones_start_with_them() -> None:
    async def scenario() -> None:
        ignore: Any = lambda *_: None  # noqa: E731
        fleet = Fleet(
            EngineConfig(), seed=0, metrics=Metrics("m", 1), on_other=ignore, on_report=ignore, on_lost=ignore
        )
        sent: list[Any] = []
        fleet.slots = [Slot(SimpleNamespace(send=sent.append)) for _ in range(2)]  # type: ignore[arg-type]
        fleet.set_tenant_weights(TWICE)
        assert sent == [Weights(TWICE)] * 2
        later = fleet._new_replica(0)
        assert later._settings.tenant_weights == TWICE
        fleet.slots = [Slot(later)]
        await fleet.close()

    asyncio.run(scenario())
