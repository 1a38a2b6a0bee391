"""A request through members that die, hang, refuse and lie."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from quire.config.router import RouterConfig
from quire.core.errors import RequestFailed, Unavailable
from quire.observe import catalog
from quire.observe.router_metrics import RouterMetrics
from quire.router.prefix import prefix_of
from quire.router.relay import AnswerBroken, Asked, Relayed
from quire.router.router import Router
from tests.router.fake_member import WORDS, FakeMember, Got, Writing, fake_members

ALL = "open " + "".join(WORDS) + "end"
WHOLE = {"text": "".join(WORDS)}


class Running:
    """A router over fake members."""

    def __init__(self, router: Router, metrics: RouterMetrics) -> None:
        self.router = router
        self.metrics = metrics

    async def ask(self, *, stream: bool = True, **more: Any) -> Relayed:
        body = json.dumps({"model": "m", "prompt": "x", "stream": stream}).encode()
        prefix = prefix_of(body)
        return await self.router.relay.relay(Asked("POST", "/v1/completions", [], body, prefix, **more))

    async def text(self, **more: Any) -> str:
        return await read(await self.ask(**more))

    def total(self, metric: catalog.Metric) -> int:
        return self.metrics.total(metric)


async def read(relayed: Relayed) -> str:
    if relayed.pieces is None:
        return relayed.body.decode()
    return b"".join([piece async for piece in relayed.pieces]).decode()


@asynccontextmanager
async def routed(*members: FakeMember, ready: int | None = None, **settings: Any) -> AsyncIterator[Running]:
    """Asks members in turn, the first one first; waits until so many are ready."""
    settings = {"routing": "round-robin", "health_interval": 0.05, "outage_timeout": 2.0, **settings}
    async with fake_members(*members):
        urls = ",".join(member.url for member in members)
        metrics = RouterMetrics()
        router = Router(RouterConfig(members=urls, **settings), metrics)
        await router.start()
        try:
            await until(lambda: sum(each.takes_work and bool(each.models) for each in router.members)
                        >= (len(members) if ready is None else ready))  # fmt: skip
            yield Running(router, metrics)
        finally:
            await router.close()


async def until(is_so: Any, patience: float = 10.0) -> None:
    end = time.monotonic() + patience
    while not is_so():
        assert time.monotonic() < end, "it did not come to be so"
        await asyncio.sleep(0.01)


def test_an_answer_passes_through() -> None:
    async def main() -> None:
        member = FakeMember()
        async with routed(member) as running:
            relayed = await running.ask()
            assert (relayed.status, (b"x-said", b"by a member") in relayed.headers) == (200, True)
            assert await read(relayed) == ALL
            assert json.loads(await running.text(stream=False)) == WHOLE
            assert [got.target for got in member.got] == ["/v1/completions"] * 2
            assert next(iter(running.router.members)).load == 0

    asyncio.run(main())


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("dies_after", [0, 1, 7, 11])
def test_an_answer_goes_on_at_another_member(dies_after: int, stream: bool) -> None:
    async def main() -> None:
        first, second = FakeMember(dies_after=dies_after), FakeMember()
        async with routed(first, second) as running:
            text = await running.text(stream=stream)
            assert text == ALL if stream else json.loads(text) == WHOLE
            assert (len(first.got), len(second.got)) == (1, 1)
            # what the client had is not asked for again
            assert "x-quire-resume" in second.got[0].headers or (dies_after == 0 and not stream)

    asyncio.run(main())


def test_an_answer_goes_on_again_and_again() -> None:
    async def main() -> None:
        members = [FakeMember(dies_after=2) for _ in range(3)]
        async with routed(*members) as running:
            assert await running.text() == ALL
            assert running.total(catalog.RESUMED) == 5

    asyncio.run(main())


def test_a_request_with_which_members_are_lost_fails() -> None:
    async def main() -> None:
        members = [FakeMember(dies_after=0) for _ in range(4)]
        async with routed(*members) as running:
            with pytest.raises(RequestFailed, match="3 instances were lost"):
                await running.text(stream=False)
            assert sum(len(member.got) for member in members) == 3

    asyncio.run(main())


def test_a_member_that_is_killed_is_left_alone_until_it_is_back() -> None:
    async def main() -> None:
        first, second = FakeMember(gap=0.02), FakeMember()
        async with routed(first, second) as running:
            relayed = await running.ask()
            assert relayed.pieces is not None
            had = await anext(relayed.pieces)
            first.kill()
            assert (had + (await read(relayed)).encode()).decode() == ALL
            await until(lambda: running.router.members.get("0").state == "lost")  # type: ignore[union-attr]
            assert [await running.text() for _ in range(3)] == [ALL] * 3
            assert len(first.got) == 1
            await first.start(int(first.url.rpartition(":")[2]))
            await until(lambda: running.router.members.get("0").takes_work)  # type: ignore[union-attr]
            await asyncio.gather(running.text(), running.text())
            assert len(first.got) == 2

    asyncio.run(main())


def test_a_member_that_hangs_is_given_up() -> None:
    async def main() -> None:
        first, second = FakeMember(), FakeMember()

        async def stop_in_the_middle(got: Got, writing: Writing) -> None:
            first.handler, first.dies_after = None, 4
            try:
                await first._framed(got, _Held(writing))
            except ConnectionResetError:
                first.hangs = True
                await asyncio.sleep(3600)

        first.handler = stop_in_the_middle
        async with routed(first, second, health_timeout=0.2) as running:
            assert await running.text() == ALL
            assert len(second.got) == 1
            assert "did not answer" in running.router.members.get("0").why  # type: ignore[union-attr]

    asyncio.run(main())


class _Held(Writing):
    """Never cuts."""

    def __init__(self, writing: Writing) -> None:
        super().__init__(writing._writer)

    def cut(self) -> None:
        pass


def test_a_member_that_is_slow_to_a_probe_but_sends_tokens_is_not_given_up() -> None:
    async def main() -> None:
        busy = FakeMember(gap=0.1)
        async with routed(busy, health_timeout=0.3) as running:
            relayed = await running.ask()
            busy.hangs = True  # new connections and probes get no answer, the stream goes on
            assert await read(relayed) == ALL
            assert running.router.members.get("0").state == "ready"  # type: ignore[union-attr]
            await until(lambda: running.router.members.get("0").state == "lost")  # type: ignore[union-attr]

    asyncio.run(main())


@pytest.mark.parametrize("says", [429, 502, 503])
def test_another_member_is_asked_before_a_client_is_refused(says: int) -> None:
    async def main() -> None:
        first, second = FakeMember(says=says), FakeMember()
        async with routed(first, second) as running:
            assert await running.text() == ALL
            assert (len(first.got), len(second.got)) == (1, 1)
            assert running.total(catalog.RETRIED) == 1

    asyncio.run(main())


def test_what_all_members_say_is_passed_on() -> None:
    async def main() -> None:
        members = [FakeMember(says=429) for _ in range(2)]
        async with routed(*members) as running:
            relayed = await running.ask()
            assert relayed.status == 429
            assert (b"retry-after", b"3") in relayed.headers
            members[0].says = members[1].says = 400
            assert (await running.ask()).status == 400
            assert [len(member.got) for member in members] in ([2, 1], [1, 2])

    asyncio.run(main())


def test_requests_wait_for_a_member() -> None:
    async def main() -> None:
        member = FakeMember(ready=503)
        async with routed(member, ready=0) as running:
            asking = asyncio.create_task(running.text())
            await asyncio.sleep(0.2)
            assert not asking.done()
            member.ready = 200
            assert await asking == ALL

    asyncio.run(main())


def test_an_outage_is_told() -> None:
    async def main() -> None:
        member = FakeMember(ready=503)
        async with routed(member, ready=0, outage_timeout=0.2) as running:
            with pytest.raises(Unavailable, match="no member takes work"):
                await running.ask()

    asyncio.run(main())


def test_only_instances_of_quires_go_on() -> None:
    async def main() -> None:
        first, foreign, other = FakeMember(gap=0.02), FakeMember(is_quire=False), FakeMember(models=("m", "z"))
        async with routed(first, foreign, other, outage_timeout=0.3) as running:
            relayed = await running.ask()
            assert relayed.pieces is not None
            await anext(relayed.pieces)
            first.kill()
            with pytest.raises(Unavailable):
                await read(relayed)
            assert (len(foreign.got), len(other.got)) == (0, 0)

    asyncio.run(main())


def test_a_foreign_stream_cannot_go_on() -> None:
    async def main() -> None:
        first, second = FakeMember(is_quire=False, dies_after=3), FakeMember(is_quire=False)
        async with routed(first, second) as running:
            relayed = await running.ask()
            with pytest.raises(AnswerBroken):
                await read(relayed)
            assert await running.text() == "".join(WORDS)

    asyncio.run(main())


def test_a_whole_answer_of_a_foreign_server_is_asked_for_again() -> None:
    async def half(got: Got, writing: Writing) -> None:
        writing._writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf of it")
        await writing._writer.drain()
        writing.cut()
        raise ConnectionResetError

    async def main() -> None:
        first, second = FakeMember(is_quire=False, handler=half), FakeMember(is_quire=False)
        async with routed(first, second) as running:
            assert json.loads(await running.text(stream=False))["text"] == "".join(WORDS)

    asyncio.run(main())


def test_what_may_not_be_asked_twice_is_not() -> None:
    async def cut(got: Got, writing: Writing) -> None:
        writing._writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nhalf")
        await writing._writer.drain()
        writing.cut()
        raise ConnectionResetError

    async def main() -> None:
        first, second = FakeMember(handler=cut), FakeMember()
        async with routed(first, second) as running:
            with pytest.raises(RequestFailed):
                await running.ask(is_repeatable=False)
            assert second.got == []

    asyncio.run(main())


def test_nonsense_counts_as_a_loss() -> None:
    async def nonsense(got: Got, writing: Writing) -> None:
        await writing.begin({"x-quire-journal": "stream"})
        await writing.chunk(b"\xff" * 64)
        await writing.end()

    async def main() -> None:
        first, second = FakeMember(handler=nonsense), FakeMember()
        async with routed(first, second) as running:
            assert await running.text() == ALL

    asyncio.run(main())


def test_a_client_that_leaves_ends_its_request() -> None:
    async def main() -> None:
        member = FakeMember(gap=0.05)
        async with routed(member) as running:
            relayed = await running.ask()
            assert relayed.pieces is not None
            await anext(relayed.pieces)
            before = set(member._writers)
            await relayed.pieces.aclose()
            await until(lambda: before - member._writers)
            assert running.router.members.get("0").load == 0  # type: ignore[union-attr]

    asyncio.run(main())


def test_a_deadline_shrinks_on_the_way() -> None:
    async def main() -> None:
        first, second = FakeMember(dies_after=3, gap=0.05), FakeMember()
        async with routed(first, second) as running:
            assert await running.text(deadline=30.0) == ALL
            given = [float(member.got[0].headers["x-request-deadline"]) for member in (first, second)]
            assert 29 < given[1] < given[0] <= 30

    asyncio.run(main())


def test_connections_are_used_again() -> None:
    async def main() -> None:
        member = FakeMember()
        async with routed(member) as running:
            for _ in range(20):
                assert await running.text() == ALL
            assert len(member._writers) <= 2

    asyncio.run(main())
