"""SpeechTensors: what the rules of transcripts need, on a device."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class SpeechTensors:
    """Of a model's vocabulary, and by row."""

    suppressed: Tensor  # int64: tokens that are never written
    suppressed_first: Tensor  # int64: tokens that are not written first
    no_languages: Tensor  # int64: all tokens but those of languages
    end: int
    """Tokens below it are text."""
    no_timestamps: int
    """The timestamps follow it."""
    max_initial: int
    """The latest timestamp that a transcript may begin with, as a token."""
    begins: Tensor  # int64 [rows]: where the first token after the prompt stands; negative: the row has no such rules
    forced: Tensor  # int64 [rows, most]: the tokens that come first; -1: the likeliest language
    num_forced: Tensor  # int64 [rows]
    timestamps: Tensor  # bool [rows]: whether segments stand between timestamps
