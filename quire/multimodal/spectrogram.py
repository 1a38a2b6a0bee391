"""Spectrogram: a file's sound as models that write down speech read it, and windows of it. Plain bytes, no numpy."""

from dataclasses import dataclass
from hashlib import blake2b

from quire.core.encoder_input import EncoderInput

SAMPLING_RATE = 16_000
HOP = 160
"""Samples between frames."""
FRAMES_A_SECOND = SAMPLING_RATE // HOP
_FLOAT = 4
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class Spectrogram:
    """Frames of a log-mel spectrogram, one after the other."""

    values: bytes
    """float32 [frames, bins]."""
    num_bins: int
    seconds: float
    """How long the sound lasts."""

    @property
    def num_frames(self) -> int:
        return len(self.values) // (_FLOAT * self.num_bins)

    def window(self, first: int, count: int, width: int) -> EncoderInput:
        """`count` frames from `first` on, in a window of `width`; the rest of it is zeros, as the models know it."""
        each = _FLOAT * self.num_bins
        taken = self.values[first * each : (first + count) * each].ljust(width * each, b"\0")
        digest = blake2b(taken, digest_size=_DIGEST_BYTES).digest()
        return EncoderInput(digest, (width, self.num_bins), taken)
