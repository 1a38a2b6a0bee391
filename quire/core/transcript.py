"""Transcripts: what a caller gets back for a file of sound. Names follow OpenAI's."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A word with its punctuation, and when it is said."""

    word: str
    start: float
    """Seconds."""
    end: float


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech and its text."""

    id: int
    seek: int
    """The first frame of its window, in hundredths of a second."""
    start: float
    """Seconds."""
    end: float
    text: str
    tokens: tuple[int, ...]
    """With its timestamps."""
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float
    words: tuple[Word, ...] = ()
    """Where they were asked for."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is said in a file."""

    text: str
    language: str
    """As a code."""
    duration: float
    """Seconds of sound."""
    segments: tuple[Segment, ...]
