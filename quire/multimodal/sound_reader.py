"""SoundReader: from files of sound and a prompt's tokens to the prompt and the media that an engine takes."""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from struct import pack

from quire.config.multimodal import MultimodalConfig
from quire.core.errors import CheckpointError, InvalidRequest
from quire.core.media import MediaItem, MediaKind, Sound
from quire.multimodal.audio_reader import AudioLimits, AudioReader
from quire.multimodal.sound_processor import SoundProcessor, Window
from quire.multimodal.spectrogram import SAMPLING_RATE

_DIGEST_BYTES = 32
_FLOAT = 4


class SoundReader:
    """Knows one model's processor. Safe in several threads."""

    def __init__(self, processor: SoundProcessor, config: MultimodalConfig, encode: Callable[[str], list[int]]) -> None:
        self._processor = processor
        self._config = config
        self._token, self._mark = _mark(processor, encode)
        self.marks: dict[MediaKind, str] = {"audio": self._mark}
        """How a prompt says that a sound stands here, where a chat template does not say it itself."""
        most = min(config.media_max_seconds, processor.most_seconds or config.media_max_seconds)
        self._files = AudioReader(AudioLimits(most_seconds=most))

    def check_counts(self, kinds: Sequence[MediaKind]) -> None:
        """Raises InvalidRequest where a prompt has more of a kind than is allowed."""
        self._config.check_counts(kinds)

    def marked(self, tokens: Sequence[int]) -> list[MediaKind]:
        """The kinds of media that a prompt says it has: as many sounds as it marks."""
        return ["audio"] * tokens.count(self._token)

    def with_own_marks(self, text: str) -> str:
        """A prompt with marks that are tokens, in place of the words that checkpoints' own prompts have."""
        written = self._processor.written
        return text if written is None else text.replace(written, self._mark)

    @property
    def cuts_texts(self) -> bool:
        return False

    def texts(self, prompt: str) -> list[str]:
        """A prompt with sound is tokenized as one text."""
        return [prompt]

    def joined(self, texts: Sequence[list[int]]) -> list[int]:
        return texts[0]

    def read(
        self, tokens: Sequence[int], files: Sequence[tuple[MediaKind, bytes, str]]
    ) -> tuple[list[int], tuple[MediaItem, ...]]:
        """A prompt whose markers stand for the files, in order: its tokens with placeholders, and the media."""
        self.check_counts([kind for kind, _, _ in files])
        for kind, _, field in files:
            if kind != "audio":
                raise InvalidRequest(f"{field} is of kind {kind}; the model reads text and sound", field=field)
        marked = len(self.marked(tokens))
        if marked != len(files):
            raise InvalidRequest(
                f"the prompt marks {marked} places for sound and comes with {len(files)}; each sound needs one place, "
                f"written as {self._mark.strip()!r}",
                field="messages",
            )
        coming = iter([self._read(data, field) for _, data, field in files])
        found: list[int] = []
        items: list[MediaItem] = []
        for token in tokens:
            if token != self._token:
                found.append(token)
                continue
            sound, count = next(coming)
            items.append(MediaItem(((len(found), count),), _digest(sound), None, sound=sound))
            found.extend([token] * count)
        return found, tuple(items)

    def close(self) -> None:
        self._files.close()

    def _read(self, data: bytes, field: str) -> tuple[Sound, int]:
        """A sound as its encoder takes it, and how many tokens it becomes."""
        most = int(self._config.media_max_mb * (1 << 20))
        if len(data) > most:
            raise InvalidRequest(f"{field} has {len(data):,} bytes, and {most:,} are the most", field=field)
        bins = self._processor.num_bins
        heard = self._files.read(data, bins, field, field=field, fill=self._processor.fill)
        windows = self._processor.windows(round(heard.seconds * SAMPLING_RATE))
        frames = sum(window.frames for window in windows)
        sound = Sound(
            heard.values[: frames * bins * _FLOAT],
            bins,
            tuple(window.frames for window in windows),
            tuple(window.positions for window in windows),
        )
        return sound, _tokens(windows)


def _tokens(windows: Sequence[Window]) -> int:
    return sum(window.tokens for window in windows)


def _mark(processor: SoundProcessor, encode: Callable[[str], list[int]]) -> tuple[int, str]:
    """The token that marks a sound, and how it is written."""
    if processor.token is not None:
        return processor.token, processor.marks[0]
    for text in processor.marks:
        tokens = encode(text)
        if len(tokens) == 1:
            return tokens[0], text
    raise CheckpointError(
        f"none of {', '.join(processor.marks)} is one token of the model's vocabulary; one must stand for sound."
    )


def _digest(sound: Sound) -> bytes:
    """Of all that decides its embeddings."""
    numbers = (sound.num_bins, *sound.frames, *sound.positions)
    digest = blake2b(pack(f"<{len(numbers)}q", *numbers), digest_size=_DIGEST_BYTES)
    digest.update(sound.data)
    return digest.digest()
