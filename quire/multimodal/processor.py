"""MediaProcessor: what becomes of a piece of media on its way into a prompt, by the checkpoint's files."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.config.facts import MediaFacts
from quire.core.errors import CheckpointError
from quire.core.media import MediaKind
from quire.multimodal.recipes import Cooked, Recipe
from quire.multimodal.settings import Settings, image_settings, read_json, video_settings

Piece = int | str
"""So many placeholder tokens, or a text between them."""


@dataclass(frozen=True, slots=True)
class MediaProcessor:
    """Of one kind of media, for one model."""

    recipe: Recipe
    rescale: float
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    token: int
    """The placeholder token, for which an embedding is put in."""
    marker: int
    """The token by which a prompt says that one stands here; its pieces take its place."""
    pieces: Callable[[Cooked], list[Piece]]
    """What it becomes in the prompt."""
    text: str
    """How a prompt says it in words, for chat templates that know no media."""
    among_others: Recipe | None = None
    """The recipe where a prompt has several of the kind, if that is another."""
    is_rounded: bool = False
    """Whether numbers are scaled in bfloat16."""
    written: str | None = None
    """What prompts of the model's own say instead of `text`, where the vocabulary has no token for that."""
    numbered: re.Pattern[str] | None = None
    """What they say where every mark has a number, which is the group; `written` is the first of them."""
    cuts_texts: bool = False
    """Whether the texts around it are tokenized one by one, each with what the tokenizer puts before a text."""

    @property
    def place(self) -> str:
        """How whoever writes a prompt says that one stands here."""
        return self.written or self.text.strip()


IMAGE_ALONE = 0
"""The token that stands for an image where a prompt is an image and nothing else."""
Processors = Mapping[MediaKind, MediaProcessor]
"""Of one model; a kind that is not there is not read."""


@dataclass(frozen=True, slots=True)
class ProcessorFiles:
    """What a checkpoint says of how it reads media."""

    config: Mapping[str, Any]
    """The model's own."""
    folder: Path
    """Or the file that the model is."""
    told: MediaFacts | None = None
    """What GGUF files say, which have no folder."""

    @property
    def image(self) -> Settings:
        return image_settings(self.folder) if self.told is None else Settings(self.told.image, self.told.source)

    @property
    def video(self) -> Settings:
        return video_settings(self.folder) if self.told is None else Settings(self.told.video, self.told.source)

    @property
    def stand_in(self) -> str:
        """The token that stands in for the one of images, where the vocabulary lacks that; else empty."""
        return "" if self.told is None else self.told.stand_in

    @property
    def tower(self) -> Settings:
        given = self.config.get("vision_config")
        return Settings(given if isinstance(given, dict) else {}, "the config of the vision tower")

    def token(self, *names: str) -> int:
        """The first of the config's fields that gives a token."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
        raise CheckpointError(f"the model's config.json does not give {' or '.join(names)}, the token of media.")

    def special_token(self, text: str) -> int:
        """By what it is called, where the config does not say it."""
        listed = read_json(self.folder / "tokenizer_config.json").get("added_tokens_decoder")
        for number, token in (listed if isinstance(listed, dict) else {}).items():
            if isinstance(token, dict) and token.get("content") == text and number.isdecimal():
                return int(number)
        added = read_json(self.folder / "tokenizer.json").get("added_tokens")
        for token in added if isinstance(added, list) else ():
            if isinstance(token, dict) and token.get("content") == text and isinstance(token.get("id"), int):
                return int(token["id"])
        raise CheckpointError(
            f"the tokenizer in {self.folder} has no token {text!r}, which marks media; is it complete?"
        )
