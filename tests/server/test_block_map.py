"""/stats/blocks: engines are asked once a second at most, and one that is lost is shown as it was."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace

import pytest

from quire.core.errors import Unavailable
from quire.server import asked_engines
from quire.server.block_map import BlockMap
from quire.serving.messages import Blocks


class Engines:
    """Two engines that count how often they are asked; `first` is awaited before an answer."""

    def __init__(self) -> None:
        self.now = 100.0
        self.asked = 0
        self.first: Callable[[int], Awaitable[None]] | None = None
        self.clients = [self._client(number) for number in range(2)]
        self.map = BlockMap(
            SimpleNamespace(fleet=SimpleNamespace(supervisor=self), engine_calls=self),  # type: ignore[arg-type]
            clock=lambda: self.now,
        )

    def ready(self) -> list[SimpleNamespace]:
        return [client for client in self.clients if client.is_ready]

    async def blocks(self, replica: SimpleNamespace) -> Blocks:
        self.asked += 1
        await asyncio.sleep(0)
        if self.first is not None:
            await self.first(replica.number)
        return Blocks([2, replica.number, 4, self.asked], [("mine", "alice"), ("theirs", "bob")])

    async def shown(self) -> list[list[int]]:
        return [each["runs"] for each in await self.map.replicas(None)]

    def _client(self, number: int) -> SimpleNamespace:
        return SimpleNamespace(number=number, is_ready=True, stats=SimpleNamespace(block_size=16))


async def lost(number: int) -> None:
    if number == 0:
        raise Unavailable("the engine was lost while it was asked")
    await asyncio.sleep(0.01)  # the other one answers after that


def test_a_crowd_costs_one_question_a_second() -> None:
    async def scenario() -> None:
        engines = Engines()
        crowd = await asyncio.gather(*(engines.shown() for _ in range(100)))
        assert engines.asked == 2
        assert all(each == crowd[0] for each in crowd)
        engines.now += 0.9
        await engines.shown()
        assert engines.asked == 2
        engines.now += 0.2
        await asyncio.gather(*(engines.shown() for _ in range(100)))
        assert engines.asked == 4

    asyncio.run(scenario())


def test_an_engine_that_dies_is_shown_as_it_was() -> None:
    async def scenario() -> None:
        engines = Engines()
        before = await engines.shown()
        engines.first = lost
        engines.now += 5
        after = await engines.shown()
        assert after[0] == before[0]
        assert after[1] != before[1]

    asyncio.run(scenario())


def test_an_engine_in_a_long_step_is_shown_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked_engines, "PATIENCE", 0.01)

    async def scenario() -> None:
        engines, go_on = Engines(), asyncio.Event()
        before = await engines.shown()

        async def long_step(number: int) -> None:
            await go_on.wait()

        engines.first = long_step
        engines.now += 5
        assert await engines.shown() == before
        engines.now += 5
        assert await engines.shown() == before
        assert engines.asked == 4, "it is not asked again while it has not answered"
        go_on.set()

    asyncio.run(scenario())


def test_before_any_engine_has_answered_the_client_is_told_to_come_back() -> None:
    async def scenario() -> None:
        engines = Engines()
        engines.first = lost
        assert len(await engines.shown()) == 1, "the other one has answered"
        for client in (engines := Engines()).clients:
            client.is_ready = False
        with pytest.raises(Unavailable, match="try again"):
            await engines.shown()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("tenant", "seen"), [(None, ["mine", "theirs"]), ("alice", ["mine", None]), ("carol", [None, None])]
)
def test_a_tenant_is_told_the_ids_of_its_own_requests(tenant: str | None, seen: list[str | None]) -> None:
    async def scenario() -> None:
        first, second = await Engines().map.replicas(tenant)
        assert first["requests"] == second["requests"] == seen
        assert (second["num_blocks"], second["block_size"]) == (1 + second["runs"][3], 16)

    asyncio.run(scenario())
