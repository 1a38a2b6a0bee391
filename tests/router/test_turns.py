"""Instances that share a device take turns: one is awake, the others sleep until they are asked for."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quire.config.router import RouterConfig
from quire.core.errors import ConfigError, Unavailable
from quire.observe.router_metrics import RouterMetrics
from quire.router.prefix import prefix_of
from quire.router.relay import Asked, Relayed
from quire.router.router import Router
from tests.router.fake_member import FakeMember, Got, Writing, fake_members
from tests.router.test_relay import ALL, read, until

ANSWER, SLEEP, WAKE = "/v1/completions", "/sleep?level=1", "/wake_up"


@asynccontextmanager
async def sharing(*members: FakeMember, **settings: Any) -> AsyncIterator[Router]:
    """A router over members that all share one device."""
    async with fake_members(*members):
        urls = [member.url for member in members]
        settings = {"health_interval": 0.05, "outage_timeout": 10.0, **settings}
        router = Router(
            RouterConfig(members=",".join(urls), shared_devices="+".join(urls), **settings), RouterMetrics()
        )
        await router.start()
        try:
            await until(lambda: all(each.takes_work and each.models for each in router.members))
            yield router
        finally:
            await router.close()


async def ask(router: Router, model: str) -> Relayed:
    body = json.dumps({"model": model, "prompt": "x", "stream": True}).encode()
    return await router.relay.relay(Asked("POST", ANSWER, [], body, prefix_of(body)))


def told(member: FakeMember) -> list[str]:
    return [got.target for got in member.got]


def test_whoever_is_asked_is_woken_and_the_others_sleep() -> None:
    async def main() -> None:
        one, two = FakeMember(models=("a",)), FakeMember(models=("b",))
        async with sharing(one, two) as router:
            for model in ("a", "a", "b", "a"):
                assert await read(await ask(router, model)) == ALL
            assert told(one) == [WAKE, ANSWER, ANSWER, SLEEP, WAKE, ANSWER]
            assert told(two) == [SLEEP, WAKE, ANSWER, SLEEP]

    asyncio.run(main())


def test_nobody_sleeps_before_its_answers_have_ended() -> None:
    async def main() -> None:
        one, two = FakeMember(models=("a",)), FakeMember(models=("b",))
        async with sharing(one, two) as router:
            first = await ask(router, "a")
            other = asyncio.create_task(ask(router, "b"))
            await asyncio.sleep(0.1)
            assert told(one) == [WAKE, ANSWER]
            assert not other.done()
            beside = await ask(router, "a")  # its turn is young
            assert await read(first) == await read(beside) == ALL
            assert await read(await other) == ALL
            assert told(one) == [WAKE, ANSWER, ANSWER, SLEEP]
            assert told(two) == [SLEEP, WAKE, ANSWER]

    asyncio.run(main())


def test_a_turn_that_lasted_is_not_prolonged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.router.turns.LEAST_TURN", 0.0)

    async def main() -> None:
        one, two = FakeMember(models=("a",)), FakeMember(models=("b",))
        async with sharing(one, two) as router:
            first = await ask(router, "a")
            other = asyncio.create_task(ask(router, "b"))
            await asyncio.sleep(0.05)
            later = asyncio.create_task(ask(router, "a"))
            await asyncio.sleep(0.05)
            assert told(one) == [WAKE, ANSWER], "the later one waits behind the other"
            assert await read(first) == ALL
            assert await read(await other) == ALL
            assert await read(await later) == ALL
            assert told(one) == [WAKE, ANSWER, SLEEP, WAKE, ANSWER]

    asyncio.run(main())


def test_waiting_for_a_turn_has_an_end() -> None:
    async def main() -> None:
        one, two = FakeMember(models=("a",)), FakeMember(models=("b",))
        async with sharing(one, two, outage_timeout=0.3) as router:
            first = await ask(router, "a")
            with pytest.raises(Unavailable, match=f"is in use by {one.url}"):
                await ask(router, "b")
            assert await read(first) == ALL
            assert await read(await ask(router, "b")) == ALL, "nothing is left of it"

    asyncio.run(main())


def test_a_server_that_cannot_sleep_is_named() -> None:
    async def refuse(got: Got, writing: Writing) -> None:
        await writing.whole(404, {})

    async def main() -> None:
        one, two = FakeMember(models=("a",)), FakeMember(models=("b",), handler=refuse)
        async with sharing(one, two) as router:
            with pytest.raises(Unavailable, match=f"{two.url} shares a device and would not sleep"):
                await ask(router, "a")

    asyncio.run(main())


def test_what_is_gone_takes_no_memory() -> None:
    async def main() -> None:
        one, two = FakeMember(models=("a",)), FakeMember(models=("b",))
        async with sharing(one, two) as router:
            assert await read(await ask(router, "b")) == ALL
            two.kill()
            assert await read(await ask(router, "a")) == ALL

    asyncio.run(main())


@pytest.mark.parametrize("devices", ["http://h:1", "http://h:1+", "http://h:1+http://h:2,http://h:2+http://h:3"])
def test_devices_are_shared_by_two_or_more(devices: str) -> None:
    with pytest.raises(ConfigError, match="--shared-devices"):
        RouterConfig(shared_devices=devices)
