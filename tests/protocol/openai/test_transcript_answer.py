"""Transcripts in OpenAI's formats."""

from quire.core.transcript import Segment, Transcript
from quire.protocol.openai.transcript_answer import (
    delta_events,
    done_events,
    transcript_json,
    transcript_text,
    transcript_verbose,
)


def segment(number, start, end, text):
    return Segment(number, 0, start, end, text, (7, 8), 0.2, -0.25, 1.5, 0.01)


LONG = Transcript(
    "Hi --> there. Bye.",
    "de",
    3661.26,
    (segment(0, 0.0, 2.56, " Hi --> there."), segment(1, 3659.999, 3661.2, " Bye.")),
)


def test_json():
    assert transcript_json(LONG) == {"text": LONG.text, "usage": {"type": "duration", "seconds": 3662}}


def test_verbose():
    told = transcript_verbose(LONG, translates=True)
    assert (told["task"], told["language"], told["duration"]) == ("translate", "german", 3661.26)
    assert told["segments"][1] == {
        "id": 1,
        "seek": 0,
        "start": 3659.999,
        "end": 3661.2,
        "text": " Bye.",
        "tokens": [7, 8],
        "temperature": 0.2,
        "avg_logprob": -0.25,
        "compression_ratio": 1.5,
        "no_speech_prob": 0.01,
    }


def test_subtitles():
    assert transcript_text(LONG, "srt") == (
        "1\n00:00:00,000 --> 00:00:02,560\nHi -> there.\n\n2\n01:00:59,999 --> 01:01:01,200\nBye.\n\n"
    )
    assert transcript_text(LONG, "vtt") == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:02.560\nHi -> there.\n\n01:00:59.999 --> 01:01:01.200\nBye.\n\n"
    )
    assert transcript_text(LONG, "text") == "Hi --> there. Bye.\n"


def test_a_streams_pieces_are_its_text():
    events = [*delta_events(LONG.segments[:1], is_first=True), *delta_events(LONG.segments[1:], is_first=False)]
    assert "".join(event.data["delta"] for event in events) == LONG.text
    [done] = done_events(LONG)
    assert (done.data["type"], done.data["text"]) == ("transcript.text.done", LONG.text)
    assert delta_events([], is_first=True) == []
