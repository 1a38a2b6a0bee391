"""Weights of tenants: from the front to every engine, those that come later too."""

import asyncio
from typing import Any

from quire.config.engine import EngineConfig
from quire.observe.metrics import Metrics
from quire.serving.fleet import Fleet
from quire.serving.messages import Weights
from quire.serving.supervisor import Slot
from tests.serving.fake_client import FakeClient

TWICE = {"a": 2.0}


def test_engines_that_run_are_told_and_later_ones_start_with_them() -> None:
    async def scenario() -> None:
        ignore: Any = lambda *_: None  # noqa: E731
        fleet = Fleet(
            EngineConfig(), seed=0, metrics=Metrics("m", 1), on_other=ignore, on_report=ignore, on_lost=ignore
        )
        clients = [FakeClient(number) for number in range(2)]
        fleet.supervisor.slots = [Slot(client.number, client) for client in clients]
        fleet.set_tenant_weights(TWICE)
        assert [client.sent for client in clients] == [[Weights(TWICE)]] * 2
        later = fleet._new_client(0)
        assert later._settings.tenant_weights == TWICE
        fleet.supervisor.slots = [Slot(0, later)]
        await fleet.close()

    asyncio.run(scenario())
