"""MediaReader: from files and a prompt's tokens to the prompt and the media that an engine takes."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from struct import pack

from quire.config.multimodal import MultimodalConfig
from quire.core.errors import InvalidRequest
from quire.core.media import MediaItem, MediaKind, Pixels
from quire.multimodal.decoder_pool import DecoderPool, MediaFailed
from quire.multimodal.processor import MediaProcessor, Piece, read_processor
from quire.multimodal.recipes import Cooked, Job, Limits
from quire.multimodal.sound_processor import read_sound_processor
from quire.multimodal.sound_reader import SoundReader

_DIGEST_BYTES = 32
Encode = Callable[[str], list[int]]
"""A text between placeholder tokens to tokens."""


MediaFile = tuple[MediaKind, bytes, str]
"""A kind, what is in the file, and what errors call it."""


class MediaReader:
    """Knows one model's processor. Safe in several threads."""

    def __init__(self, processor: MediaProcessor, config: MultimodalConfig, encode: Encode) -> None:
        self._processor = processor
        self._config = config
        self._encode = encode
        self._pool = DecoderPool()
        self.marker_text = processor.text
        """How a prompt says that an image stands here, where a chat template does not say it itself."""

    def check_counts(self, kinds: Sequence[MediaKind]) -> None:
        """Raises InvalidRequest where a prompt has more of a kind than is allowed."""
        self._config.check_counts(kinds)

    def count_markers(self, tokens: Sequence[int]) -> int:
        """How many images a prompt says it has."""
        return tokens.count(self._processor.marker)

    def marked(self, text: str) -> str:
        """A prompt as its writer marked it: marks of images are tokens."""
        return text

    def read(self, tokens: Sequence[int], files: Sequence[MediaFile]) -> tuple[list[int], tuple[MediaItem, ...]]:
        """A prompt whose markers stand for the files, in order: its tokens with placeholders, and the media."""
        self.check_counts([kind for kind, _, _ in files])
        marked = self.count_markers(tokens)
        if marked != len(files):
            raise InvalidRequest(
                f"the prompt marks {marked} places for images and comes with {len(files)}; each image needs one place, "
                f"written as {self._processor.text.strip()!r}",
                field="messages",
            )
        cooked = [self._cooked(kind, data, field) for kind, data, field in files]
        return self._joined(tokens, cooked)

    def close(self) -> None:
        self._pool.close()

    def _cooked(self, kind: MediaKind, data: bytes, field: str) -> Cooked:
        if kind != "image":
            raise InvalidRequest(f"{field} is of kind {kind}; the model reads images alone here", field=field)
        limits = Limits(self._config.media_max_pixels)
        most = int(self._config.media_max_mb * (1 << 20))
        if len(data) > most:
            raise InvalidRequest(f"{field} has {len(data):,} bytes, and {most:,} are the most", field=field)
        try:
            return self._pool.cook(Job(data, self._processor.recipe, limits))
        except MediaFailed as error:
            raise InvalidRequest(f"{field} cannot be used: {error}", field=field) from None

    def _joined(self, tokens: Sequence[int], cooked: Sequence[Cooked]) -> tuple[list[int], tuple[MediaItem, ...]]:
        found: list[int] = []
        items: list[MediaItem] = []
        coming = iter(cooked)
        for token in tokens:
            if token != self._processor.marker:
                found.append(token)
                continue
            each = next(coming)
            runs = self._put(found, self._processor.pieces(each))
            items.append(self._item(each, runs))
        return found, tuple(items)

    def _put(self, tokens: list[int], pieces: Sequence[Piece]) -> tuple[tuple[int, int], ...]:
        """Append pieces; returns where placeholder tokens came to stand."""
        runs: list[tuple[int, int]] = []
        for piece in pieces:
            if isinstance(piece, str):
                tokens.extend(self._encode(piece))
            else:
                runs.append((len(tokens), piece))
                tokens.extend([self._processor.token] * piece)
        return tuple(runs)

    def _item(self, cooked: Cooked, runs: tuple[tuple[int, int], ...]) -> MediaItem:
        processor = self._processor
        pixels = Pixels(cooked.data, cooked.shape, processor.rescale, processor.mean, processor.std)
        return MediaItem(runs, _digest(cooked), pixels, cooked.size, cooked.tiles)


PromptReader = MediaReader | SoundReader
"""What reads the media of a model's prompts."""


def open_reader(path: Path, config: MultimodalConfig, encode: Encode) -> PromptReader | None:
    """Of the model in a folder; None where it reads texts alone."""
    processor = read_processor(path)
    if processor is not None:
        return MediaReader(processor, config, encode)
    sound = read_sound_processor(path)
    return None if sound is None else SoundReader(sound, config, encode)


def _digest(cooked: Cooked) -> bytes:
    """Of all that decides an item's embeddings: made here, since the process that decodes may be a file's."""
    about = pack("<8q", *cooked.shape, *cooked.size, *cooked.tiles)
    digest = blake2b(about, digest_size=_DIGEST_BYTES)
    digest.update(cooked.data)
    return digest.digest()
