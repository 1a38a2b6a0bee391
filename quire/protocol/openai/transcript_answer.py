"""Transcripts as OpenAI's API writes them: JSON, plain text, subtitles, and events of a stream. Pure."""

from collections.abc import Iterable
from math import ceil

from quire.core.transcript import Segment, Transcript
from quire.protocol.openai.languages import NAMES
from quire.protocol.openai.transcription_form import AudioFormat
from quire.protocol.writer import Body, Event


def transcript_json(transcript: Transcript) -> Body:
    return {"text": transcript.text, "usage": _usage(transcript)}


def transcript_verbose(transcript: Transcript, *, translates: bool) -> Body:
    return {
        "task": "translate" if translates else "transcribe",
        "language": NAMES.get(transcript.language, transcript.language),
        "duration": round(transcript.duration, 3),
        "text": transcript.text,
        "segments": [_segment(segment) for segment in transcript.segments],
        **_words(transcript),
        "usage": _usage(transcript),
    }


def _words(transcript: Transcript) -> Body:
    words = [word for segment in transcript.segments for word in segment.words]
    listed = [{"word": each.word.strip(), "start": each.start, "end": each.end} for each in words]
    return {"words": listed} if listed else {}


def transcript_text(transcript: Transcript, form: AudioFormat) -> str:
    """Of the forms that are no JSON."""
    if form == "srt":
        numbered = enumerate(transcript.segments, start=1)
        return "".join(f"{number}\n{_times(each, ',')}\n{_line(each)}\n\n" for number, each in numbered)
    if form == "vtt":
        return "WEBVTT\n\n" + "".join(f"{_times(each, '.')}\n{_line(each)}\n\n" for each in transcript.segments)
    return f"{transcript.text}\n"


def delta_events(segments: Iterable[Segment], *, is_first: bool) -> list[Event]:
    """What new segments add to a stream."""
    text = "".join(segment.text for segment in segments)
    text = text.lstrip() if is_first else text
    return [Event({"type": "transcript.text.delta", "delta": text})] if text else []


def done_events(transcript: Transcript) -> list[Event]:
    """What a stream ends with."""
    return [Event({"type": "transcript.text.done", "text": transcript.text, "usage": _usage(transcript)})]


def _usage(transcript: Transcript) -> Body:
    return {"type": "duration", "seconds": ceil(transcript.duration)}


def _segment(segment: Segment) -> Body:
    return {
        "id": segment.id,
        "seek": segment.seek,
        "start": segment.start,
        "end": segment.end,
        "text": segment.text,
        "tokens": list(segment.tokens),
        "temperature": segment.temperature,
        "avg_logprob": segment.avg_logprob,
        "compression_ratio": segment.compression_ratio,
        "no_speech_prob": segment.no_speech_prob,
    }


def _line(segment: Segment) -> str:
    # an arrow would be read as the times of another subtitle
    return segment.text.strip().replace("-->", "->")


def _times(segment: Segment, point: str) -> str:
    return f"{_clock(segment.start, point)} --> {_clock(segment.end, point)}"


def _clock(seconds: float, point: str) -> str:
    whole, thousandths = divmod(round(seconds * 1000), 1000)
    minutes, left = divmod(whole, 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}:{left:02d}{point}{thousandths:03d}"
