"""PromptMedia: the media of prompts that Python programs hand in, for engines that live in other processes."""

from collections.abc import Callable, Sequence
from pathlib import Path

from quire.config.facts import MediaFacts
from quire.config.multimodal import MultimodalConfig
from quire.core.errors import InvalidRequest
from quire.core.media import MediaItem
from quire.multimodal.offline import files_of
from quire.multimodal.reader import open_reader


class PromptMedia:
    """Of one model. Safe in several threads."""

    def __init__(
        self,
        path: Path,
        config: MultimodalConfig,
        encode: Callable[[str], list[int]],
        told: MediaFacts | None = None,
    ) -> None:
        """`told` is what GGUF files say of media. Raises an InvalidRequest where the model reads texts alone."""
        reader = open_reader(path, config, encode, told)
        if reader is None:
            raise InvalidRequest(f"{path} reads texts alone; leave multi_modal_data out", field="multi_modal_data")
        self._reader = reader

    def texts(self, prompt: str) -> list[str]:
        """The texts that are tokenized one by one, of a prompt as its writer marked it."""
        return self._reader.texts(self._reader.with_own_marks(prompt))

    def joined(self, texts: Sequence[list[int]]) -> list[int]:
        """What they become together, marks between them."""
        return self._reader.joined(texts)

    def read(self, tokens: list[int], data: object) -> tuple[list[int], tuple[MediaItem, ...]]:
        """A prompt whose marks stand for what `multi_modal_data` holds: with placeholder tokens, and their media."""
        return self._reader.read(tokens, files_of(data))

    def close(self) -> None:
        self._reader.close()
