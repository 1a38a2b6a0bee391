"""Prompts with media for tiny models: tokens with placeholders, and what these stand for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.config.multimodal import MultimodalConfig
from quire.core.media import MediaItem
from quire.multimodal.offline import files_of
from quire.multimodal.reader import open_reader
from tests.executor.ranks import RankRunner


@dataclass(frozen=True)
class MediaPrompts:
    """Several of one model, each with media or without."""

    tokens: list[list[int]]
    media: list[tuple[MediaItem, ...]]

    def run(self, runner: RankRunner, count: int, **params: Any) -> list[list[int]]:
        """Greedy answers to all of them at once."""
        return runner.run(self.tokens, count, media=self.media, **params)

    def without_media(self) -> "MediaPrompts":
        """The same tokens, where placeholders stand for nothing."""
        return MediaPrompts(self.tokens, [() for _ in self.media])

    def only(self, *places: int) -> "MediaPrompts":
        return MediaPrompts([self.tokens[place] for place in places], [self.media[place] for place in places])


def media_prompts(folder: Path, tokenizer: Any, given: Sequence[tuple[str, dict[str, Any]]]) -> MediaPrompts:
    """Of texts in which the model's own marks say where media stand, and these media by kind."""

    def encode(text: str) -> list[int]:
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    reader = open_reader(folder, MultimodalConfig(), encode)
    assert reader is not None, "the model reads media"
    try:
        read = [reader.read(encode(text), files_of(data)) for text, data in given]
    finally:
        reader.close()
    return MediaPrompts([tokens for tokens, _ in read], [media for _, media in read])
