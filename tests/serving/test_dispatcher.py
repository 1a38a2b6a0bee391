"""Every request ends exactly once, whatever becomes of the engines it was given to."""

import time

from quire.core.errors import RequestFailed, Unavailable
from quire.core.prompt import Prompt
from quire.core.request import Request
from quire.core.sampling_params import SamplingParams
from quire.core.stats import EngineStats
from quire.core.status import Status
from quire.serving.dispatcher import Dispatcher
from quire.serving.journal import Entry
from quire.serving.messages import End, Hold, Refused, Report, Resume, SequenceNews, Submit
from tests.serving.fake_client import FakeClient
from tests.serving.silent_listener import SilentListener


def engines(count: int = 1) -> list[FakeClient]:
    clients = [FakeClient(number) for number in range(count)]
    for client in clients:
        client.says()
    return clients


def dispatcher(clients: list[FakeClient]) -> Dispatcher:
    return Dispatcher(lambda: [client for client in clients if client.is_ready])


def entry(name: str = "r", age: float = 0.0) -> Entry:
    arrival = time.monotonic() - age
    return Entry(Request(id=name, prompt=Prompt((1, 2, 3)), params=SamplingParams(), arrival=arrival), SilentListener())


def report(*news: SequenceNews, accepted: list[str] | None = None, refused: list[Refused] | None = None) -> Report:
    return Report(EngineStats(), list(news), accepted or [], refused or [])


def test_a_request_travels_with_its_age():
    clients = engines()
    one = entry(age=5.0)
    dispatcher(clients).submit(one)
    [sent] = clients[0].sent
    assert isinstance(sent, Submit)
    assert 5.0 <= sent.age < 60.0


def test_without_an_engine_it_waits_for_the_first():
    client = FakeClient()
    asked = dispatcher([client])
    one = entry()
    asked.submit(one)
    assert (client.sent, one.replica) == ([], -1)
    client.says()
    asked.engine_ready()
    assert isinstance(client.sent[0], Submit)


def test_news_reach_the_listener_until_the_end():
    clients = engines()
    asked, one = dispatcher(clients), entry()
    asked.submit(one)
    asked.report(report(SequenceNews("r", 0, [7]), accepted=["r"]))
    asked.report(report(SequenceNews("r", 0, [8], Status.LENGTH)))
    asked.report(report(SequenceNews("r", 0, [9])))  # old: it has ended
    assert one.listener.told[0] == "accepted"
    assert [news.tokens for news in one.listener.told[1:]] == [[7], [8]]
    assert len(asked.journal) == 0


def test_a_refusal_ends_it():
    clients = engines()
    asked, one = dispatcher(clients), entry()
    asked.submit(one)
    refusal = Refused("r", "too long", "prompt", True)
    asked.report(report(refused=[refusal]))
    assert one.listener.told == [refusal]
    assert len(asked.journal) == 0


def test_a_lost_engines_requests_go_on_elsewhere_with_what_they_have():
    clients = engines(2)
    asked = dispatcher(clients)
    one = entry()
    asked.submit(one)
    first, second = clients[one.replica], clients[1 - one.replica]
    asked.report(report(SequenceNews("r", 0, [7, 8])))
    asked.hold(one)
    first.dies()
    asked.engine_lost(first)
    assert isinstance(second.sent[0], Submit)
    assert second.sent[0].request.resume[0].tokens == (7, 8)
    assert second.sent[1] == Hold("r")
    asked.resume(one)
    assert second.sent[2] == Resume("r")


def test_one_that_is_not_wanted_any_more_ends_at_its_engine():
    clients = engines()
    asked, one = dispatcher(clients), entry()
    asked.submit(one)
    asked.end(one)
    assert clients[0].sent[-1] == End("r", None, Status.ABORTED)
    assert len(asked.journal) == 0


def test_a_request_that_kills_engines_alone_fails_and_the_others_go_on():
    clients = engines(1)
    asked, bad, good = dispatcher(clients), entry("bad"), entry("good")
    asked.submit(bad)
    asked.submit(good)
    for _ in range(8):
        lost, clients[0] = clients[0], FakeClient()
        lost.dies()
        asked.engine_lost(lost)
        clients[0].says()
        asked.engine_ready()
        if good.client is clients[0] and bad.client is None:
            asked.report(report(SequenceNews("good", 0, [1])))  # alone, it comes further
        if bad.is_over:
            break
    assert isinstance(bad.listener.told[-1], RequestFailed)
    assert not any(isinstance(told, Exception) for told in good.listener.told)


def test_all_fail_with_the_error_that_is_given():
    asked = dispatcher([])
    entries = [entry("a"), entry("b")]
    for each in entries:
        asked.submit(each)
    error = Unavailable("no engine", retry_after=3.0)
    asked.fail_all(error)
    assert [each.listener.told for each in entries] == [[error], [error]]
    assert len(asked.journal) == 0
