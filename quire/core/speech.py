"""What a model that writes down speech has beside words, and what one request asks of it. Plain numbers, no torch."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

DETECT = -1
"""Among forced tokens: the likeliest language."""
MOST_FORCED = 4
"""Language, task, and whether there are timestamps."""
SECONDS_A_TIMESTAMP = 0.02


class SpeechRules(msgspec.Struct, frozen=True, array_like=True):
    """How the transcript of one window is written."""

    forced: tuple[int, ...] = ()
    """Tokens that follow the prompt, whatever the model thinks of them."""
    timestamps: bool = True
    """Whether segments are between pairs of timestamps that never go back."""


@dataclass(frozen=True, slots=True)
class SpeechVocabulary:
    """Tokens with a meaning of their own, and those that no transcript has."""

    start: int
    """Begins every transcript."""
    previous: int
    """Stands before text that was said earlier."""
    end: int
    """Ends a transcript. Tokens below it are text."""
    no_speech: int
    no_timestamps: int
    transcribe: int | None
    translate: int | None
    """None in models that write English alone."""
    languages: Mapping[str, int]
    """By code (`en`); empty in models that write English alone."""
    suppressed: tuple[int, ...]
    """Tokens that are never written."""
    suppressed_first: tuple[int, ...]
    """Tokens that are not written first."""
    max_initial_timestamp: int | None
    """In steps of 0.02 seconds."""
    alignment_heads: tuple[tuple[int, int], ...] = ()
    """Layers and heads of the decoder that look at what is being said."""

    @property
    def first_timestamp(self) -> int:
        """That of 0.00 seconds; the others follow it."""
        return self.no_timestamps + 1

    @property
    def is_multilingual(self) -> bool:
        return bool(self.languages)
