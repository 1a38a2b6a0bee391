"""Questions, orders and errors between two processes of a server, over a real socket pair."""

import asyncio
import socket

import msgspec
import pytest

from quire.core.errors import InvalidRequest, Overloaded, RequestFailed, Unavailable
from quire.server.errors import NotFound
from quire.server.fronts.peer import Peer
from quire.serving.link import Link

pytestmark = pytest.mark.anyio


async def peers() -> tuple[Peer, Peer, list[asyncio.Task[None]]]:
    made = []
    for end in socket.socketpair():
        reader, writer = await asyncio.open_unix_connection(sock=end)
        made.append(Peer(Link(reader, writer)))
    return made[0], made[1], [asyncio.create_task(peer.run()) for peer in made]


async def test_both_sides_ask() -> None:
    left, right, tasks = await peers()

    async def double(given: msgspec.Raw) -> int:
        return 2 * msgspec.msgpack.decode(given, type=int)

    left.handlers["double"] = right.handlers["double"] = double
    assert await asyncio.gather(*(left.ask("double", int, n) for n in range(5))) == [0, 2, 4, 6, 8]
    assert await right.ask("double", int, 21) == 42
    left.close()
    await asyncio.gather(*tasks)


async def test_nothing_is_an_answer_too_and_orders_have_none() -> None:
    left, right, tasks = await peers()
    heard: list[str] = []

    async def hear(given: msgspec.Raw) -> None:
        heard.append(msgspec.msgpack.decode(given, type=str))

    right.handlers["hear"] = hear
    left.tell("hear", "one")
    assert await left.ask("hear", type(None), "two") is None
    assert heard == ["one", "two"]
    left.close()
    await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    "raised",
    [
        InvalidRequest("no", field="prompt"),
        NotFound("none"),
        Overloaded("full", retry_after=7.0),
        Unavailable("later", retry_after=3.0),
    ],
)
async def test_errors_arrive_as_what_they_are(raised: Exception) -> None:
    left, right, tasks = await peers()

    async def throw(given: msgspec.Raw) -> None:
        raise raised

    right.handlers["throw"] = throw
    with pytest.raises(type(raised)) as caught:
        await left.ask("throw", int)
    assert (str(caught.value), vars(caught.value)) == (str(raised), vars(raised))
    left.close()
    await asyncio.gather(*tasks)


async def test_a_bug_there_is_a_failure_here_and_nothing_hangs() -> None:
    left, right, tasks = await peers()

    async def throw(given: msgspec.Raw) -> None:
        raise KeyError("secret")

    right.handlers["throw"] = throw
    for question in ("throw", "unknown"):
        with pytest.raises(RequestFailed, match="its log says more"):
            await left.ask(question, int)
    left.close()
    await asyncio.gather(*tasks)


async def test_questions_to_one_that_dies_end() -> None:
    left, right, tasks = await peers()

    async def never(given: msgspec.Raw) -> None:
        await asyncio.Event().wait()

    right.handlers["never"] = never
    asked = asyncio.create_task(left.ask("never", int))
    await asyncio.sleep(0)
    right.close()
    with pytest.raises(Unavailable, match="replaced"):
        await asked
    with pytest.raises(Unavailable, match="replaced"):
        await left.ask("never", int)
    await asyncio.gather(*tasks)
