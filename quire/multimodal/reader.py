"""MediaReader: from files and a prompt's tokens to the prompt and the media that an engine takes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import blake2b
from pathlib import Path
from struct import pack

from quire.config.facts import MediaFacts
from quire.config.multimodal import MultimodalConfig
from quire.core.errors import InvalidRequest
from quire.core.media import MediaItem, MediaKind, Pixels
from quire.multimodal.decoder_pool import DecoderPool, MediaFailed
from quire.multimodal.processor import MediaProcessor, Piece, Processors
from quire.multimodal.read_processors import read_processors
from quire.multimodal.recipes import Cooked, Job, Limits, Recipe
from quire.multimodal.sound_processor import read_sound_processor
from quire.multimodal.sound_reader import SoundReader

_DIGEST_BYTES = 32
_MOST_BREAKS = 8
Encode = Callable[[str], list[int]]
"""A text between placeholder tokens to tokens."""


MediaFile = tuple[MediaKind, bytes, str]
"""A kind, what is in the file, and what errors call it."""


class MediaReader:
    """Knows one model's processors. Safe in several threads."""

    def __init__(self, processors: Processors, config: MultimodalConfig, encode: Encode) -> None:
        self._processors = processors
        self._by_marker = {processor.marker: kind for kind, processor in processors.items()}
        self._config = config
        self._encode = encode
        self._pool = DecoderPool()
        self._breaks = {
            tokens[0]: count for count in range(1, _MOST_BREAKS + 1) if len(tokens := encode("\n" * count)) == 1
        }
        """Line breaks that are one token."""
        self.marks = {kind: processor.text for kind, processor in processors.items()}
        """How a prompt says that a piece of media stands here, where a chat template does not say it itself."""

    def check_counts(self, kinds: Sequence[MediaKind]) -> None:
        """Raises InvalidRequest where a prompt has more of a kind than is allowed."""
        self._config.check_counts(kinds)

    def marked(self, tokens: Sequence[int]) -> list[MediaKind]:
        """The kinds of media that a prompt says it has, in order."""
        return [self._by_marker[token] for token in tokens if token in self._by_marker]

    def with_own_marks(self, text: str) -> str:
        """A prompt as its writer marked it, with marks that are tokens. Raises InvalidRequest where marks have numbers
        and these are not in order."""
        for processor in self._processors.values():
            if processor.numbered is not None:
                _check_order(processor.numbered.findall(text), processor)
                text = processor.numbered.sub(processor.text.strip(), text)
            elif processor.written is not None:
                text = text.replace(processor.written, processor.text.strip())
        return text

    @property
    def cuts_texts(self) -> bool:
        """Whether the texts between media are tokenized one by one, each with what the tokenizer puts before a text,
        also in conversations."""
        return self._cutting() is not None

    def texts(self, prompt: str) -> list[str]:
        """The texts of a prompt with media that are tokenized one by one."""
        cutting = self._cutting()
        return [prompt] if cutting is None else prompt.split(cutting.text.strip())

    def joined(self, texts: Sequence[list[int]]) -> list[int]:
        """What they become together, marks between them."""
        cutting = self._cutting()
        if cutting is None:
            return texts[0]
        first, *others = texts
        return [*first, *(token for text in others for token in (cutting.marker, *text))]

    def read(self, tokens: Sequence[int], files: Sequence[MediaFile]) -> tuple[list[int], tuple[MediaItem, ...]]:
        """A prompt whose markers stand for the files, each kind in order: its tokens with placeholders, and the
        media."""
        kinds = [kind for kind, _, _ in files]
        self.check_counts(kinds)
        for kind, _, field in files:
            if kind not in self._processors:
                raise InvalidRequest(
                    f"{field} is of kind {kind}; the model reads {' and '.join(self._processors)} alone", field=field
                )
        marked = self.marked(tokens)
        for kind, processor in self._processors.items():
            if marked.count(kind) != kinds.count(kind):
                raise InvalidRequest(
                    f"the prompt marks {marked.count(kind)} places for media of kind {kind} and comes with "
                    f"{kinds.count(kind)}; each needs one place, written as {processor.place!r}",
                    field="messages",
                )
        cooked: dict[MediaKind, list[Cooked]] = {kind: [] for kind in self._processors}
        for kind, data, field in files:
            processor = self._processors[kind]
            others = processor.among_others if kinds.count(kind) > 1 else None
            recipe = processor.recipe if others is None else others
            cooked[kind].append(self._cooked(recipe, data, field))
        return self._with_media(tokens, {kind: iter(each) for kind, each in cooked.items()})

    def close(self) -> None:
        self._pool.close()

    def _cutting(self) -> MediaProcessor | None:
        """That of a model that reads one kind of media."""
        return next((processor for processor in self._processors.values() if processor.cuts_texts), None)

    def _cooked(self, recipe: Recipe, data: bytes, field: str) -> Cooked:
        config = self._config
        limits = Limits(config.media_max_pixels, config.media_max_frames, config.media_max_seconds)
        most = int(config.media_max_mb * (1 << 20))
        if len(data) > most:
            raise InvalidRequest(
                f"{field} has {len(data):,} bytes, and {most:,} are the most (--media-max-mb)", field=field
            )
        try:
            return self._pool.cook(Job(data, recipe, limits))
        except MediaFailed as error:
            raise InvalidRequest(f"{field} cannot be used: {error}", field=field) from None

    def _with_media(
        self, tokens: Sequence[int], coming: Mapping[MediaKind, Iterator[Cooked]]
    ) -> tuple[list[int], tuple[MediaItem, ...]]:
        found: list[int] = []
        items: list[MediaItem] = []
        is_behind_media = False
        for token in tokens:
            kind = self._by_marker.get(token)
            if kind is None:
                self._append(found, [token], meeting=is_behind_media)
                is_behind_media = False
                continue
            is_behind_media = True
            each, processor = next(coming[kind]), self._processors[kind]
            runs = self._put(found, processor.pieces(each), processor.token)
            items.append(_item(kind, each, runs, processor))
        return found, tuple(items)

    def _put(self, tokens: list[int], pieces: Sequence[Piece], placeholder: int) -> tuple[tuple[int, int], ...]:
        """Append pieces; returns where placeholder tokens came to stand."""
        runs: list[tuple[int, int]] = []
        for place, piece in enumerate(pieces):
            if isinstance(piece, str):
                self._append(tokens, self._encode(piece), meeting=place == 0)
            else:
                runs.append((len(tokens), piece))
                tokens.extend([placeholder] * piece)
        return tuple(runs)

    def _append(self, tokens: list[int], more: Sequence[int], *, meeting: bool) -> None:
        """Where the prompt's own text meets that of media, line breaks of both are the token that they are in one."""
        if meeting and tokens and more:
            before, after = self._breaks.get(tokens[-1]), self._breaks.get(more[0])
            joined = [] if before is None or after is None else self._encode("\n" * (before + after))
            if len(joined) == 1:
                tokens[-1:] = joined
                more = more[1:]
        tokens.extend(more)


def _check_order(numbers: Sequence[str], processor: MediaProcessor) -> None:
    if list(numbers) != [str(number) for number in range(1, len(numbers) + 1)]:
        given = ", ".join(number[:8] for number in numbers[:8])
        raise InvalidRequest(
            f"the prompt marks its places for media with the numbers {given}; count them from 1 in the order in which "
            f"they stand, the first as {processor.place!r}, and give what they stand for in that order",
            field="prompt",
        )


def _item(kind: MediaKind, cooked: Cooked, runs: tuple[tuple[int, int], ...], processor: MediaProcessor) -> MediaItem:
    scaling = (processor.rescale, processor.mean, processor.std, processor.is_rounded)
    pixels = Pixels(cooked.data, cooked.shape, *scaling)
    return MediaItem(runs, _digest(kind, cooked), pixels, cooked.size, cooked.tiles, kind=kind, seconds=cooked.seconds)


PromptReader = MediaReader | SoundReader
"""What reads the media of a model's prompts."""


def open_reader(
    path: Path, config: MultimodalConfig, encode: Encode, told: MediaFacts | None = None
) -> PromptReader | None:
    """Of the model in a folder, or of GGUF files by what these say; None where it reads texts alone."""
    processors = read_processors(path, told)
    if processors:
        return MediaReader(processors, config, encode)
    sound = read_sound_processor(path)
    return None if sound is None else SoundReader(sound, config, encode)


def _digest(kind: MediaKind, cooked: Cooked) -> bytes:
    """Of all that decides an item's embeddings and positions: made here, since the process that decodes may be a
    file's."""
    about = pack("<8qd?", *cooked.shape, *cooked.size, *cooked.tiles, cooked.seconds, kind == "video")
    digest = blake2b(about, digest_size=_DIGEST_BYTES)
    digest.update(cooked.data)
    return digest.digest()
