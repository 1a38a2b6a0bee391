"""Frames: whole out of any pieces, and nonsense is an error."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import InvalidRequest
from quire.protocol.ids import RepeatableIds
from quire.protocol.journal import (
    AnswerIdentity,
    BrokenFrame,
    FrameReader,
    Note,
    Progress,
    Resumption,
    encode_resumption,
    frame,
    read_resumption,
)

IDENTITY = AnswerIdentity("a", 5, 7)
FRAMES = [
    (Note(identity=IDENTITY, prompt_tokens=3), b"opening"),
    (Note(news=[Progress(0, 0, [1, 2]), Progress(1, 0, [3], "stop")]), b"data: x\n\n"),
    (Note(), b""),
    (Note(status=503, headers=[("retry-after", "1")]), b"x" * 3000),
]


@given(st.lists(st.integers(1, 3000), max_size=8))
def test_frames_come_out_as_they_went_in(cuts: list[int]) -> None:
    data, reader, found = b"".join(frame(*each) for each in FRAMES), FrameReader(), []
    for cut in cuts:
        found += list(reader.feed(data[:cut]))
        data = data[cut:]
    found += list(reader.feed(data))
    assert found == FRAMES
    assert reader.is_between_frames


@given(st.binary(min_size=8, max_size=64))
def test_nonsense_is_an_error_or_not_yet_a_frame(data: bytes) -> None:
    with suppress(BrokenFrame):
        list(FrameReader().feed(data))


def test_a_frame_beyond_all_bounds_is_refused_at_once() -> None:
    with pytest.raises(BrokenFrame, match="longer than any"):
        list(FrameReader().feed(b"\xff" * 8))


def test_a_resumption_comes_out_as_it_went_in() -> None:
    resumption = Resumption(IDENTITY, [Progress(0, 1, [4, 5], "length")])
    assert read_resumption(encode_resumption(resumption)) == resumption


@given(st.binary(max_size=64))
def test_what_is_no_resumption_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_resumption(data)


def test_ids_repeat_by_their_seed() -> None:
    one, same, other = RepeatableIds(5), RepeatableIds(5), RepeatableIds(6)
    drawn = [one.draw() for _ in range(3)]
    assert [same.draw() for _ in range(3)] == drawn
    assert len({*drawn, other.draw()}) == 4
