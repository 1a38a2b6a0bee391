"""Events come out the same however their bytes are cut."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from quire.bench.http.events import EventSplitter

STREAM = b': a comment\r\n\r\ndata: {"a": 1}\n\ndata:{"b": 2}\r\n\r\nevent: x\ndata: one\ndata: two\n\ndata: [DONE]\n\n'
EVENTS = [b'{"a": 1}', b'{"b": 2}', b"one\ntwo", b"[DONE]"]


@given(st.lists(st.integers(0, len(STREAM))))
def test_cuts_do_not_matter(cuts: list[int]) -> None:
    splitter, found = EventSplitter(), []
    places = [0, *sorted(cuts), len(STREAM)]
    for begin, end in pairwise(places):
        found += splitter.feed(STREAM[begin:end])
    assert found == EVENTS


def test_half_an_event_waits() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: x\n") == []
    assert splitter.feed(b"\n") == [b"x"]
