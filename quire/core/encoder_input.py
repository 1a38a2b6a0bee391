"""What a model's encoder reads before its decoder writes, as a request carries it. Plain bytes, no torch."""

import msgspec


class EncoderInput(msgspec.Struct, frozen=True, array_like=True):
    """The spectrogram of a stretch of sound."""

    digest: bytes
    """Names its content."""
    shape: tuple[int, int]
    """Frames and bins."""
    values: bytes
    """float32, lowest byte first, frame after frame."""
