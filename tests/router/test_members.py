"""Which member gets what: by prefix, load, model and turn; and two routers that choose alike."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from quire.config.router import RouterConfig
from quire.core.errors import ConfigError, Unavailable
from quire.router.member import Member
from quire.router.members import MOST_MEMBERS, Members
from quire.router.prefix import Prefix, prefix_of

URLS = [f"http://10.0.0.{number}:8000" for number in range(1, 5)]


def made(urls: list[str] | None = None, **settings: Any) -> Members:
    members = Members(RouterConfig(**settings))
    for url in URLS if urls is None else urls:
        members.add(url, "given").become("ready")
    return members


def conversation(number: int, turns: int = 1) -> Prefix:
    messages = [{"role": "system", "content": "You are kind. " * 50}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"Conversation {number}, turn {turn}. " * 10})
        messages.append({"role": "assistant", "content": "Yes. " * 60})
    return prefix_of(json.dumps({"model": "m", "messages": messages[:-1]}).encode())


def run(work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(work())


async def chosen(members: Members, prefix: Prefix, **more: Any) -> Member:
    return await members.choose(prefix, more.pop("avoid", ()), 0.0, **more)


def test_a_conversation_stays_where_it_is() -> None:
    async def main() -> None:
        members = made()
        for number in range(20):
            places = {(await chosen(members, conversation(number, turns))).number for turns in range(1, 6)}
            assert len(places) == 1

    run(main)


def test_two_routers_choose_alike_whatever_they_have_seen() -> None:
    async def main() -> None:
        one, other = made(), made(list(reversed(URLS)))
        seen = Counter()  # type: ignore[var-annotated]
        for number in range(60):
            # the other sees a conversation first in its third turn, and none of the even ones before
            first = await chosen(one, conversation(number, 1))
            if number % 2:
                await chosen(other, conversation(1000 + number, 1))
            assert (await chosen(other, conversation(number, 3))).address == first.address
            seen[first.address.url] += 1
        assert len(seen) == len(URLS)
        assert max(seen.values()) < 35

    run(main)


def test_a_lost_members_conversations_spread_and_the_others_stay() -> None:
    async def main() -> None:
        members = made()
        before = {number: await chosen(members, conversation(number)) for number in range(60)}
        gone = before[0]
        members.lost(gone, "it is gone")
        after = {number: await chosen(members, conversation(number, 2)) for number in range(60)}
        assert gone not in after.values()
        moved = {number for number, member in before.items() if member is gone}
        assert all(after[number] is before[number] for number in before.keys() - moved)
        assert len({after[number].number for number in moved}) > 1

    run(main)


def test_load_pulls_a_conversation_away_only_when_it_is_much() -> None:
    async def main() -> None:
        members = made()
        home = await chosen(members, conversation(5))
        with home.working(1500):
            assert await chosen(members, conversation(5, 2)) is home
        with home.working(50_000):
            assert await chosen(members, conversation(5, 2)) is not home
        assert home.load == 0

    run(main)


def test_least_loaded_and_round_robin() -> None:
    async def main() -> None:
        members = made(routing="least-loaded")
        first = next(iter(members))
        with first.working(1):
            assert await chosen(members, conversation(1)) is not first
        assert await chosen(members, conversation(1)) is first
        turns = made(routing="round-robin")
        found = [(await chosen(turns, conversation(1))).number for _ in range(6)]
        assert found == [0, 1, 2, 3, 0, 1]

    run(main)


def test_a_model_goes_to_who_has_it() -> None:
    async def main() -> None:
        members = made()
        second = members.get("1")
        assert second is not None
        second.models = frozenset({"m", "adapter"})
        for number in range(8):
            prefix = prefix_of(json.dumps({"model": "adapter", "prompt": f"{number}"}).encode())
            assert await chosen(members, prefix) is second
        # nobody is known to have it: a member says so itself
        assert await chosen(members, prefix_of(b'{"model": "nobody", "prompt": "x"}'))

    run(main)


def test_who_drains_or_only_prefills_gets_nothing() -> None:
    async def main() -> None:
        members = made(URLS[:3])
        first, second, third = members
        members.hold_out(first, held_out=True)
        members.add(URLS[1], "given", "prefill")
        assert {await chosen(members, conversation(number)) for number in range(9)} == {third}
        members.drain(third)
        with pytest.raises(Unavailable, match="no member takes work"):
            await chosen(members, conversation(1))
        members.hold_out(first, held_out=False)
        assert await chosen(members, conversation(1)) is first
        assert second.role == "prefill"

    run(main)


def test_an_open_circuit_is_avoided_while_there_are_others() -> None:
    async def main() -> None:
        members = made(URLS[:2], routing="round-robin")
        first, second = members
        for _ in range(5):
            first.breaker.failed()
        assert {await chosen(members, conversation(1)) for _ in range(4)} == {second}
        second.become("lost")
        assert await chosen(members, conversation(1)) is first

    run(main)


def test_who_is_to_be_avoided_is_better_than_nobody() -> None:
    async def main() -> None:
        members = made(URLS[:2])
        first, second = members
        assert await chosen(members, conversation(1), avoid={first}) is second
        assert await chosen(members, conversation(1), avoid={first, second}) in (first, second)

    run(main)


def test_addresses() -> None:
    async def main() -> None:
        members = Members(RouterConfig())
        member = members.add("http://Host:8000/v1/", "given")
        assert members.add("http://host:8000", "file") is member
        assert members.get("http://host:8000/v1") is member
        assert members.add("https://host", "given").address.authority == "host"
        assert members.add("http://[::1]:80", "given").address.authority == "[::1]"
        for wrong in (
            "host:8000",
            "ftp://host",
            "http://",
            "http://a b",
            "http://u:p@host",
            "http://host?x=1",
            "http://h:x",
        ):
            with pytest.raises(ConfigError, match="is no member"):
                members.add(wrong, "given")
        for number in range(MOST_MEMBERS - len(members)):
            members.add(f"http://h{number}:1", "given")
        with pytest.raises(ConfigError, match="all a router takes"):
            members.add("http://one-more:1", "given")

    run(main)
