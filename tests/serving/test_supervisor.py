"""Engines that are lost, do not start or cannot even be made are tried again, and the server says what is wrong."""

import asyncio
import itertools
import time

import pytest

from quire.serving import supervisor as module
from quire.serving.supervisor import Slot, Supervisor
from tests.serving.fake_client import FakeClient

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_PAUSE", 0.001)
    monkeypatch.setattr(module, "_LONGEST_PAUSE", 0.01)


class World:
    """Makes clients as it is told to, and remembers them."""

    def __init__(self, count: int = 1, outage_timeout: float = 60.0, first: int = 0) -> None:
        """`first` is the number of the first engine."""
        self.clients: list[FakeClient] = []
        self.losses: list[tuple[int, str]] = []
        self.errors: list[Exception | None] = []
        self.make_error: Exception | None = None
        self.first = first
        self.supervisor = Supervisor(
            self.make,
            count,
            step_timeout=5.0,
            outage_timeout=outage_timeout,
            on_lost=lambda slot, cause: self.losses.append((slot.number, cause)),
        )

    def make(self, number: int) -> FakeClient:
        if self.make_error is not None:
            raise self.make_error
        client = FakeClient(self.first + number, self.message, self.errors.pop(0) if self.errors else None)
        self.clients.append(client)
        return client

    def message(self, client, message) -> None:
        self.supervisor.became_ready(client)

    async def until(self, happened) -> None:
        async with asyncio.timeout(10):
            while not happened():
                await asyncio.sleep(0.001)


async def test_one_slot_may_hold_an_engine_of_any_number():
    """As where each engine of a server has a supervisor of its own."""
    world = World(first=1)
    await world.supervisor.start()
    world.clients[0].says()
    world.clients[0].dies()
    await world.until(lambda: len(world.clients) == 2)
    world.clients[1].says()
    assert world.supervisor.is_ready
    assert world.supervisor.slots[0].problem is None
    await world.supervisor.close()


async def test_a_lost_engine_is_followed_by_another():
    world = World()
    await world.supervisor.start()
    world.clients[0].says()
    assert world.supervisor.is_ready
    assert world.supervisor.health_problem() is None
    world.clients[0].dies("killed by SIGKILL")
    await world.until(lambda: len(world.clients) == 2)
    assert world.losses == [(0, "killed by SIGKILL")]
    assert not world.supervisor.is_ready
    assert world.supervisor.slots[0].state == "starting"
    world.clients[1].says()
    assert world.supervisor.slots[0].state == "ready"
    await world.supervisor.close()
    assert world.clients[1].is_closed


async def test_a_start_that_throws_is_a_loss_with_a_cause():
    world = World()
    world.errors = [None, FileNotFoundError("no interpreter"), None]
    await world.supervisor.start()
    world.clients[0].says()
    world.clients[0].dies()
    await world.until(lambda: len(world.clients) == 3)
    assert world.losses[-1] == (0, "it cannot be started: no interpreter")
    assert world.clients[1].is_closed
    world.clients[2].says()
    assert world.supervisor.is_ready
    await world.supervisor.close()


async def test_a_client_that_cannot_be_made_is_tried_until_it_can():
    world = World()
    await world.supervisor.start()
    world.clients[0].says()
    world.make_error = OSError("no space left on device")
    world.clients[0].dies()
    await world.until(lambda: len(world.losses) > 3)
    assert world.losses[-1] == (0, "it cannot be started: no space left on device")
    world.make_error = None
    await world.until(lambda: len(world.clients) == 2)
    world.clients[1].says()
    assert world.supervisor.health_problem() is None
    await world.supervisor.close()


async def test_after_many_losses_it_is_given_up_out_loud_and_still_comes_back(caplog):
    world = World()
    world.errors = [None, *[MemoryError("no memory")] * (module.MOST_LOSSES + 2)]
    await world.supervisor.start()
    world.clients[0].says()
    world.clients[0].dies()
    slot = world.supervisor.slots[0]
    await world.until(lambda: slot.is_given_up)
    assert slot.state == "lost"
    assert "no memory" in (world.supervisor.health_problem() or "")
    assert world.supervisor.retry_after() >= 1
    assert "given up" in caplog.text
    await world.until(lambda: not world.errors and world.clients[-1].loss is None)
    world.clients[-1].says()
    assert (slot.state, world.supervisor.health_problem()) == ("ready", None)
    await world.supervisor.close()


async def test_an_outage_counts_after_a_while_and_ends_with_the_first_engine():
    world = World(count=2, outage_timeout=0.02)
    await world.supervisor.start()
    await asyncio.sleep(0.05)
    assert world.supervisor.outage() is None  # the first start takes as long as it takes
    for client in world.clients[:2]:
        client.says()
    for client in world.clients[:2]:
        client.dies("exit status 1")
    assert world.supervisor.outage() is None
    await world.until(lambda: len(world.clients) == 4)
    await asyncio.sleep(0.05)
    assert "engine 1: exit status 1" in (world.supervisor.outage() or "")
    world.clients[2].says()
    assert world.supervisor.outage() is None
    await world.supervisor.close()


async def test_silence_of_every_engine_is_a_problem(monkeypatch):
    world = World()
    await world.supervisor.start()
    world.clients[0].says()
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + 6)
    assert "no engine has made progress" in (world.supervisor.health_problem() or "")
    monkeypatch.undo()
    await world.supervisor.close()


def test_losses_are_in_a_row_until_an_engine_lived_for_a_while():
    slot = Slot(0, None)
    for _ in range(4):
        slot.note_loss("killed", seconds_ready=1.0)
    assert slot.losses_in_a_row == 4
    slot.note_loss("killed", seconds_ready=module.SETTLED_AFTER + 1)
    assert (slot.losses_in_a_row, slot.restarts) == (1, 5)


def test_pauses_grow_up_to_a_bound(monkeypatch):
    monkeypatch.undo()
    slot, pauses = Slot(0, None), []
    for _ in range(12):
        slot.note_loss("killed", seconds_ready=0.0)
        pauses.append(round(slot.next_try - time.monotonic(), 1))
    assert pauses[:4] == [0.0, 0.5, 1.0, 2.0]
    assert pauses[-1] == 30.0
    assert all(earlier <= later for earlier, later in itertools.pairwise(pauses))
