"""Requests over a real socket, with a clock that the server's script moves: every latency is known exactly."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from quire.bench.endpoint import Endpoint
from quire.bench.http.client import Client
from quire.bench.load_run import Interrupted, run_load
from quire.bench.planned import PlannedRequest
from quire.bench.record import RequestRecord
from quire.bench.sender import Sender
from quire.bench.vocabulary import Vocabulary
from quire.core.http_address import HttpAddress
from tests.bench.scripted import DONE, MS, Script, ScriptedServer, event, piece, scripted_server, usage
from tests.bench.words import WORDS, WordTokens

PLAIN = Vocabulary()


def run(work: Coroutine[Any, Any, list[RequestRecord]]) -> list[RequestRecord]:
    return asyncio.run(work)


async def load(
    server: ScriptedServer, number: int, vocabulary: Vocabulary = PLAIN, timeout: float = 30.0
) -> list[RequestRecord]:
    """So many requests, one after the other."""
    client = Client(HttpAddress("127.0.0.1", server.port, False, ""), {"Authorization": "Bearer x"}, server.clock)
    sender = Sender(client, Endpoint("completions", "m", 0.0, {}), vocabulary, timeout, server.clock)
    requests = [PlannedRequest(each, text=WORDS[1], output_tokens=9) for each in range(number)]
    try:
        return await run_load(sender, requests, [0.0] * number, 1, lambda record: None)
    finally:
        client.close()


def test_latencies_are_those_of_the_script() -> None:
    script = Script(
        [
            (100 * MS, piece("a")),
            (150 * MS, piece(" b c d")),  # several tokens in one piece
            (170 * MS, piece(" e") + piece(" f")),  # two pieces at one moment
            (300 * MS, piece("", "length") + usage(7, 9)),
            (305 * MS, DONE),
        ]
    )

    async def measure() -> list[RequestRecord]:
        async with scripted_server(script) as server:
            records = await load(server, 1)
            assert server.bodies[0]["stream_options"] == {"include_usage": True}
            assert server.bodies[0]["max_tokens"] == 9
            return records

    (record,) = run(measure())
    assert record.is_ok, record.error_text
    assert record.ttft == pytest.approx(0.100)
    assert record.itl == pytest.approx([0.050, 0.020, 0.0])
    assert record.e2e == pytest.approx(0.170)
    assert (record.prompt_tokens, record.output_tokens, record.counted_by) == (7, 9, "usage")
    assert record.tpot == pytest.approx(0.070 / 8)  # nine tokens, though four pieces
    assert record.ended == pytest.approx(0.305)
    assert record.finish_reason == "length"


def test_an_event_cut_in_two_counts_when_it_is_whole() -> None:
    whole = piece("hello")
    script = Script([(10 * MS, whole[:9]), (25 * MS, whole[9:]), (30 * MS, piece("", "stop") + DONE)])

    async def measure() -> list[RequestRecord]:
        async with scripted_server(script) as server:
            return await load(server, 1)

    (record,) = run(measure())
    assert record.pieces == pytest.approx([0.025])


def test_connections_are_used_again_and_times_go_on() -> None:
    scripts = [Script([(start * MS, piece("x")), ((start + 5) * MS, piece("", "stop") + DONE)]) for start in (10, 40)]

    async def measure() -> list[RequestRecord]:
        async with scripted_server(*scripts) as server:
            records = await load(server, 2)
            assert server.connections == 1
            return records

    first, second = run(measure())
    assert first.ttft == pytest.approx(0.010)
    assert second.sent == pytest.approx(0.015)
    assert second.ttft == pytest.approx(0.025)
    assert second.planned == second.sent  # the bound made it wait, not the load generator


def test_a_kept_connection_that_was_given_up_is_replaced() -> None:
    """Servers may close idle connections whenever they like; a request that meets that goes to a new one."""
    good = [(5 * MS, piece("x", "stop") + DONE)]

    async def measure() -> list[RequestRecord]:
        async with scripted_server(Script(list(good)), Script([], drop=True), Script(list(good))) as server:
            records = await load(server, 2)
            assert server.connections == 2
            return records

    assert [record.error for record in run(measure())] == [None, None]


def test_a_new_connection_that_is_dropped_is_an_error() -> None:
    async def measure() -> list[RequestRecord]:
        async with scripted_server(Script([], drop=True)) as server:
            records = await load(server, 1)
            assert server.connections == 1
            return records

    assert [record.error for record in run(measure())] == ["broken"]


def test_without_usage_the_tokenizer_counts_and_never_the_pieces() -> None:
    text = " ".join(WORDS[1:5])
    script = Script([(1 * MS, piece(text)), (2 * MS, piece(f" {text}", "stop") + DONE)])

    async def measure(vocabulary: Vocabulary) -> list[RequestRecord]:
        async with scripted_server(Script(list(script.pieces))) as server:
            return await load(server, 1, vocabulary)

    (counted,) = run(measure(Vocabulary(WordTokens())))
    assert (counted.prompt_tokens, counted.output_tokens, counted.counted_by) == (1, 8, "tokenizer")
    (uncounted,) = run(measure(PLAIN))
    assert (uncounted.output_tokens, uncounted.counted_by, uncounted.tpot) == (None, None, None)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        (Script([(1, b'{"error": {"message": "busy"}}')], status=503), "http 503"),
        (Script([(1, piece("a"))], close=True), "broken"),
        (Script([(1, piece("a"))]), "cut off"),
        (Script([(1, piece("a") + event({"error": {"message": "lost"}}))]), "error in the stream"),
    ],
)
def test_errors_are_counted_by_kind_and_the_next_request_goes_on(script: Script, error: str) -> None:
    good = Script([(5 * MS, piece("x", "stop") + DONE)])

    async def measure() -> list[RequestRecord]:
        async with scripted_server(script, good) as server:
            return await load(server, 2)

    first, second = run(measure())
    assert first.error == error
    assert first.error_text
    assert second.is_ok


def test_nobody_listens() -> None:
    async def measure() -> list[RequestRecord]:
        async with scripted_server() as server:
            pass
        return await load(server, 1)

    (record,) = run(measure())
    assert record.error == "connection"


def test_an_answer_that_does_not_end_is_given_up() -> None:
    async def measure() -> list[RequestRecord]:
        endless = Script([(1, piece("a")), (2, b"")])
        async with scripted_server(endless) as server:
            server.clock.was_read = asyncio.Event().wait  # type: ignore[assignment, method-assign]
            return await load(server, 1, timeout=0.05)

    (record,) = run(measure())
    assert record.error == "timeout"


def test_what_had_ended_is_kept_when_someone_stops_the_run() -> None:
    whole = Script([(10 * MS, piece("a")), (20 * MS, piece("", "length") + DONE)])

    async def measure() -> list[RequestRecord]:
        async with scripted_server(whole, whole, whole) as server:  # the third may be on its way
            client = Client(HttpAddress("127.0.0.1", server.port, False, ""), {}, server.clock)
            sender = Sender(client, Endpoint("completions", "m", 0.0, {}), PLAIN, 30.0, server.clock)
            requests = [PlannedRequest(each, text="a", output_tokens=1) for each in range(5)]
            ended: list[RequestRecord] = []

            def on_record(record: RequestRecord) -> None:
                ended.append(record)
                if len(ended) == 2:
                    running.cancel()  # as Ctrl-C does

            running = asyncio.ensure_future(run_load(sender, requests, [0.0] * 5, 1, on_record))
            with pytest.raises(Interrupted) as stopped:
                await running
            client.close()
            return stopped.value.records

    assert [record.number for record in run(measure())] == [0, 1]
