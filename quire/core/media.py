"""Media of a request as an encoder takes them: bytes and plain numbers, whatever they were made of."""

from typing import Literal

import msgspec

MediaKind = Literal["image", "video", "audio"]
"""What a client may call a piece of media."""


class Pixels(msgspec.Struct, frozen=True, array_like=True):
    """Pictures of one size, decoded and resized; what is left is to scale their numbers, which the device does."""

    data: bytes
    """uint8."""
    shape: tuple[int, int, int, int]
    """[pictures, height, width, 3]: one image, its tiles, or the frames of a video."""
    rescale: float
    """A number x becomes (x * rescale - mean) / std, by channel."""
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    is_rounded: bool = False
    """Whether each step of that is in bfloat16, as in Llama 4's own processor."""


class Sound(msgspec.Struct, frozen=True, array_like=True):
    """Windows of a log-mel spectrogram."""

    data: bytes
    """float32 [frames, bins], the frames of one window after those of another."""
    num_bins: int
    frames: tuple[int, ...]
    """Of each window."""
    positions: tuple[int, ...]
    """Of the encoder, that are kept of each: those of sound and not of the silence behind it."""


class MediaItem(msgspec.Struct, frozen=True, array_like=True):
    """One image, video or sound of a prompt."""

    runs: tuple[tuple[int, int], ...]
    """Where its placeholder tokens stand: first positions and counts, in the order of its embeddings."""
    digest: bytes
    """Names its content: equal ones have equal embeddings."""
    pixels: Pixels | None
    size: tuple[int, int] = (0, 0)
    """Height and width before anything was resized, which some models lay tiles out by."""
    tiles: tuple[int, int] = (0, 0)
    """Rows and columns of tiles, where the pictures are tiles of one image."""
    kind: MediaKind = "image"
    seconds: float = 0.0
    """From one moment of a video to the next."""
    sound: Sound | None = None

    @property
    def position(self) -> int:
        """Of its first placeholder token."""
        return self.runs[0][0]

    @property
    def num_tokens(self) -> int:
        """Placeholder tokens, and so embeddings."""
        return sum(count for _, count in self.runs)

    @property
    def end(self) -> int:
        """The position behind its last placeholder token."""
        first, count = self.runs[-1]
        return first + count
