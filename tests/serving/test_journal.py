"""The journal knows enough of every live request to hand it on."""

from quire.core.adapter import AdapterRef
from quire.core.prompt import Prompt
from quire.core.request import Emitted, Request
from quire.core.sampling_params import SamplingParams
from quire.core.status import Status
from quire.serving.journal import Entry, Journal
from quire.serving.messages import SequenceNews, Submit, decode_to_engine, encode
from tests.serving.fake_client import FakeClient
from tests.serving.silent_listener import SilentListener


def entry(name: str = "r", n: int = 1, prompt: tuple[int, ...] = (1, 2, 3)) -> Entry:
    return Entry(Request(id=name, prompt=Prompt(prompt), params=SamplingParams(n=n)), SilentListener(), work=10.0)


def test_a_new_request_is_submitted_as_it_came():
    assert entry().to_submit().resume == ()


def test_a_moved_request_goes_on_where_it_stands():
    moved = entry(n=3)
    moved.take(SequenceNews("r", 0, [7, 8]))
    moved.take(SequenceNews("r", 1, [9], Status.STOPPED))
    moved.moves = 1
    assert moved.to_submit().resume == (Emitted(0, (7, 8)), Emitted(2, ()))


def test_a_moved_request_keeps_its_adapter_over_the_wire():
    adapter = AdapterRef("sql", "/adapters/sql", "1f")
    request = Request(id="r", prompt=Prompt((1, 2), adapter=adapter), params=SamplingParams())
    moved = Entry(request, SilentListener(), moves=1)
    moved.take(SequenceNews("r", 0, [7]))
    heard = decode_to_engine(encode(Submit(moved.to_submit())))
    assert isinstance(heard, Submit)
    assert heard.request.prompt.adapter == adapter
    assert heard.request.resume == (Emitted(0, (7,)),)


def test_news_of_a_sequence_that_has_ended_is_not_wanted():
    one = entry()
    assert one.take(SequenceNews("r", 0, [1], Status.LENGTH))
    assert one.is_over
    assert not one.take(SequenceNews("r", 0, [2]))


def test_a_load_is_what_an_engine_was_given_and_has_answered():
    journal = Journal()
    for name, replica in (("a", 0), ("b", 1), ("c", 1)):
        one = entry(name)
        one.client = FakeClient(replica)
        journal.open(one)
    one.take(SequenceNews("c", 0, [7, 8]))
    assert journal.loads() == {0: 3, 1: 8}
    journal.close(one)
    assert journal.loads() == {0: 3, 1: 3}


def test_a_token_clears_the_losses_before_it():
    one = entry()
    one.losses = 2
    one.take(SequenceNews("r", 0, [1]))
    assert one.losses == 0


def test_what_waits_is_counted_once():
    journal = Journal()
    first, second = entry("a"), entry("b")
    journal.open(first)
    journal.open(second)
    assert (journal.waiting_tokens, journal.waiting_work) == (6, 20.0)
    journal.begin(first)
    journal.begin(first)
    assert journal.waiting_tokens == 3
    journal.close(first)
    journal.close(second)
    journal.close(second)
    assert (journal.waiting_tokens, journal.waiting_work, len(journal)) == (0, 0.0, 0)


def test_entries_of_an_engine():
    journal = Journal()
    here, there = entry("a"), entry("b")
    here.client, there.client = FakeClient(0), FakeClient(1)
    journal.open(here)
    journal.open(there)
    assert journal.on_client(there.client) == [there]
    assert (here.replica, there.replica) == (0, 1)
    assert journal.get("a") is here
