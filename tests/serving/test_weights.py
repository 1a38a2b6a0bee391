"""Weights of tenants: from the front to every engine, those that come later too."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from quire.config.engine import EngineConfig
from quire.observe.metrics import Metrics
from quire.serving.channel import QueueChannel
from quire.serving.fleet import Fleet
from quire.serving.messages import Close, Weights
from quire.serving.runner import Runner
from quire.serving.supervisor import Slot
from tests.serving.fake_client import STARTED, FakeClient

TWICE = {"a": 2.0}


def test_an_engine_weighs_as_it_is_told() -> None:
    told: list[dict[str, float]] = []
    scheduler = SimpleNamespace(weigh_tenants=told.append, can_advance=True)
    loop: Any = SimpleNamespace(scheduler=scheduler, has_work=False, is_preparing=False)
    loop.warm_up, loop.close = (lambda: False), (lambda: None)
    channel = QueueChannel(lambda message: None)
    runner = Runner(loop, STARTED, channel)
    runner._probe = SimpleNamespace(is_due=False)
    for message in (Weights(TWICE), Close()):
        channel.inbox.put(message)
    runner.run()
    assert told == [TWICE]


async def _weights_of_a_remote_engine(secret: Path) -> list[object]:
    ignore: Any = lambda *_: None  # noqa: E731
    config = EngineConfig.from_flat(engines="tcp://127.0.0.1:1", engine_secret_file=str(secret))
    metrics = Metrics("m", 1)
    fleet = Fleet(
        config, seed=0, tenant_weights=TWICE, metrics=metrics, on_other=ignore, on_report=ignore, on_lost=ignore
    )
    client = FakeClient(0, fleet._take)
    fleet.supervisor.slots = [Slot(0, client)]
    client.says()
    await fleet.close()
    return list(client.sent)


def test_engines_of_other_hosts_are_told_when_they_are_ready(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s" * 16)
    assert asyncio.run(_weights_of_a_remote_engine(tmp_path / "secret")) == [Weights(TWICE)]


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
