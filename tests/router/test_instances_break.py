"""Whole instances are killed, stopped and restarted under load; clients of the router get every answer, unchanged."""

import asyncio
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.router.instances import Started, instances, router
from tests.server.load import CHAT, COMPLETIONS, Answer, ask, client_of

pytestmark = pytest.mark.slow
STREAMS = 50
TOKENS = 64


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Started]]:
    with instances(tmp_path_factory.mktemp("instances"), 3) as found:
        yield found


def bodies() -> list[tuple[str, dict[str, Any]]]:
    """Greedy and sampled, streamed and whole, chats and completions."""
    made = []
    for number in range(STREAMS):
        text = f"Write about the number {number} and the sea."
        body: dict[str, Any] = {"max_tokens": TOKENS, "ignore_eos": True, "stream": number % 5 != 4}
        body |= {"temperature": 0} if number % 2 else {"temperature": 0.9, "seed": number}
        if number % 3:
            made.append((CHAT, body | {"messages": [{"role": "user", "content": text}]}))
        else:
            made.append((COMPLETIONS, body | {"prompt": text}))
    return made


async def ask_all(url: str) -> list[Answer]:
    async with client_of(url) as client:
        return list(await asyncio.gather(*(ask(client, path, body) for path, body in bodies())))


def texts(answers: list[Answer]) -> list[Any]:
    for answer in answers:
        assert answer.status == 200, answer.error
        assert answer.error is None, answer.error
        assert answer.is_done
        assert answer.tokens == TOKENS
    return [answer.texts for answer in answers]


@pytest.fixture(scope="module")
def quiet(members: list[Started]) -> list[Any]:
    """The texts when nothing happens."""
    return texts(asyncio.run(ask_all(members[0].url)))


def resumed(url: str) -> float:
    lines = httpx.get(url + "/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("quire_router_resumed_total{"))


async def meanwhile(url: str, break_it: Any, after: float) -> list[Answer]:
    asking = asyncio.create_task(ask_all(url))
    await asyncio.sleep(after)
    await asyncio.to_thread(break_it)
    return await asking


def busiest(url: str, members: list[Started]) -> Started:
    cards = httpx.get(url + "/stats").json()["members"]
    card = max(cards, key=lambda each: each["requests"])
    assert card["requests"] > 0
    return next(each for each in members if each.url == card["url"])


def test_a_whole_instance_is_killed(members: list[Started], quiet: list[Any], tmp_path: Path) -> None:
    with router(tmp_path, members) as front:
        victims: list[Started] = []

        def kill() -> None:
            victims.append(busiest(front.url, members))
            victims[0].signal_all(signal.SIGKILL)

        began = time.monotonic()
        found = asyncio.run(meanwhile(front.url, kill, 3.5))
        print(f"\n{STREAMS} answers in {time.monotonic() - began:.1f} s, {resumed(front.url):.0f} went on elsewhere")
        assert texts(found) == quiet
        assert resumed(front.url) > 0
        assert victims[0].process is not None
        victims[0].process.wait()
        victims[0].start()
        victims[0].wait_until_ready()


def test_an_instance_hangs(members: list[Started], quiet: list[Any], tmp_path: Path) -> None:
    with router(tmp_path, members, "--health-timeout", "3") as front:
        victims: list[Started] = []

        def stop() -> None:
            victims.append(busiest(front.url, members))
            victims[0].signal_all(signal.SIGSTOP)

        began = time.monotonic()
        try:
            found = asyncio.run(meanwhile(front.url, stop, 3.0))
        finally:
            victims[0].signal_all(signal.SIGCONT)
        print(f"\n{STREAMS} answers in {time.monotonic() - began:.1f} s, {resumed(front.url):.0f} went on elsewhere")
        assert texts(found) == quiet
        assert resumed(front.url) > 0
        victims[0].wait_until_ready()


def test_all_are_restarted_one_by_one(members: list[Started], quiet: list[Any], tmp_path: Path) -> None:
    with router(tmp_path, members) as front:

        async def load(until: asyncio.Event) -> list[Answer]:
            found: list[Answer] = []
            while not until.is_set():
                found += await ask_all(front.url)
            return found

        def restart() -> None:
            for member in members:
                assert member.stop() == 0
                member.start()
                member.wait_until_ready()

        async def main() -> list[Answer]:
            done = asyncio.Event()
            loading = asyncio.create_task(load(done))
            await asyncio.sleep(1.0)
            await asyncio.to_thread(restart)
            done.set()
            return await loading

        found = asyncio.run(main())
        print(f"\n{len(found)} answers while three instances were restarted")
        for start in range(0, len(found), STREAMS):
            assert texts(found[start : start + STREAMS]) == quiet
