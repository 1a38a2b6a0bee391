"""From a prefill engine to a decode engine: every request ends exactly once, whichever of the two is lost."""

from quire.core.stats import EngineStats
from quire.core.status import Status
from quire.serving.dispatcher import Dispatcher
from quire.serving.journal import Entry
from quire.serving.messages import End, Hold, Pull, Report, SequenceNews, Submit
from tests.serving.fake_client import FakeClient
from tests.serving.test_placement import engine, entry


def setting(*roles: str) -> tuple[Dispatcher, list[FakeClient]]:
    clients = [engine(number, role) for number, role in enumerate(roles)]
    return Dispatcher(lambda: [client for client in clients if client.is_ready]), clients


def sent(client: FakeClient, kind: type) -> list:
    return [message for message in client.sent if isinstance(message, kind)]


def says(asked: Dispatcher, *news: SequenceNews) -> None:
    asked.report(Report(EngineStats(), list(news)))


def tokens(one: Entry) -> list[list[int]]:
    return [news.tokens for news in one.listener.told]


def test_the_answer_goes_on_where_its_kv_went():
    asked, (prefill, decode) = setting("prefill", "decode")
    one = entry()
    asked.submit(one)
    [prompt] = sent(prefill, Submit)
    assert prompt.request.params.max_tokens == 1
    [pull] = sent(decode, Pull)
    assert (pull.request.id, pull.source, pull.is_computing) == ("r", "unix:///0", True)
    assert not sent(decode, Submit)
    says(asked, SequenceNews("r", 0, [7], Status.LENGTH))
    [rest] = sent(decode, Submit)
    assert rest.request.params.max_tokens == 20
    assert [emitted.tokens for emitted in rest.request.resume] == [(7,)]
    says(asked, SequenceNews("r", 0, [8, 9], Status.STOPPED))
    assert tokens(one) == [[7], [8, 9]]
    assert [news.status for news in one.listener.told] == [None, Status.STOPPED]
    assert len(asked.journal) == 0
    assert one.moves == 0


def test_a_first_token_that_ends_it_is_the_end():
    asked, (_, decode) = setting("prefill", "decode")
    one = entry()
    asked.submit(one)
    says(asked, SequenceNews("r", 0, [7], Status.STOPPED))
    assert len(asked.journal) == 0
    assert not sent(decode, Submit)


def test_several_sequences_go_together():
    asked, (_, decode) = setting("prefill", "decode")
    one = entry(n=2)
    asked.submit(one)
    says(asked, SequenceNews("r", 0, [7], Status.LENGTH))
    assert not sent(decode, Submit)
    says(asked, SequenceNews("r", 1, [8], Status.LENGTH))
    [rest] = sent(decode, Submit)
    assert [(each.index, each.tokens) for each in rest.request.resume] == [(0, (7,)), (1, (8,))]


def test_one_of_them_may_have_ended():
    asked, (_, decode) = setting("prefill", "decode")
    asked.submit(entry(n=2))
    says(asked, SequenceNews("r", 0, [7], Status.STOPPED), SequenceNews("r", 1, [8], Status.LENGTH))
    [rest] = sent(decode, Submit)
    assert [each.index for each in rest.request.resume] == [1]


def test_a_slow_reader_is_held_there_too():
    asked, (_, decode) = setting("prefill", "decode")
    one = entry()
    asked.submit(one)
    asked.hold(one)
    says(asked, SequenceNews("r", 0, [7], Status.LENGTH))
    assert sent(decode, Hold)


def test_a_client_that_leaves_ends_it_where_it_is():
    asked, (prefill, decode) = setting("prefill", "decode")
    one = entry()
    asked.submit(one)
    asked.end(one)
    assert sent(prefill, End)
    says(asked, SequenceNews("r", 0, [7], Status.LENGTH))
    assert not sent(decode, Submit)


def test_a_lost_prefill_engine_is_replaced_by_another():
    asked, (first, second, decode) = setting("prefill", "prefill", "decode")
    one = entry()
    asked.submit(one)
    lost, other = (first, second) if sent(first, Submit) else (second, first)
    lost.dies()
    asked.engine_lost(lost)
    [prompt] = sent(other, Submit)
    assert prompt.request.params.max_tokens == 1
    says(asked, SequenceNews("r", 0, [7], Status.LENGTH))
    assert sent(decode, Submit)


def test_the_last_prefill_engine_leaves_all_to_the_decode_engine():
    asked, (prefill, decode) = setting("prefill", "decode")
    asked.submit(entry())
    prefill.dies()
    asked.engine_lost(prefill)
    [whole] = sent(decode, Submit)
    assert whole.request.params.max_tokens == 20


def test_a_decode_engine_lost_meanwhile_is_replaced_at_the_handover():
    asked, (prefill, first, second) = setting("prefill", "decode", "decode")
    asked.submit(entry())
    lost, other = (first, second) if sent(first, Pull) else (second, first)
    lost.dies()
    asked.engine_lost(lost)
    says(asked, SequenceNews("r", 0, [7], Status.LENGTH))
    [pull] = sent(other, Pull)
    assert pull.source == prefill.kv_address
    [rest] = sent(other, Submit)
    assert [emitted.tokens for emitted in rest.request.resume] == [(7,)]


def test_with_no_decode_engine_left_the_prefill_engine_answers():
    asked, (prefill, decode) = setting("prefill", "decode")
    asked.submit(entry())
    decode.dies()
    asked.engine_lost(decode)
    says(asked, SequenceNews("r", 0, [7], Status.LENGTH))
    assert [message.request.params.max_tokens for message in sent(prefill, Submit)] == [1, 20]
    assert not sent(prefill, Pull)


def test_a_decode_engine_lost_in_the_middle_of_an_answer():
    asked, (prefill, first, second) = setting("prefill", "decode", "decode")
    one = entry()
    asked.submit(one)
    says(asked, SequenceNews("r", 0, [7], Status.LENGTH))
    says(asked, SequenceNews("r", 0, [8]))
    lost = first if sent(first, Submit) else second
    lost.dies()
    asked.engine_lost(lost)
    again = sent(prefill, Submit)[-1]
    assert [emitted.tokens for emitted in again.request.resume] == [(7, 8)]
    assert again.request.params.max_tokens == 3
    says(asked, SequenceNews("r", 0, [9], Status.LENGTH))
    other = second if lost is first else first
    assert [emitted.tokens for emitted in sent(other, Submit)[-1].request.resume] == [(7, 8, 9)]
    says(asked, SequenceNews("r", 0, [10], Status.LENGTH))
    assert tokens(one) == [[7], [8], [9], [10]]
    assert len(asked.journal) == 0


def test_a_peer_is_asked_before_the_request_comes():
    asked, (first, second) = setting("both", "both")
    asked.submit(entry())
    has, other = (first, second) if sent(first, Submit) else (second, first)
    asked.submit(entry(900, "longer"))
    assert [(type(message), message.request.id) for message in other.sent] == [(Pull, "longer"), (Submit, "longer")]
    assert (other.sent[0].source, other.sent[0].is_computing) == (has.kv_address, False)
