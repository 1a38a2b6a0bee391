"""MediaProcessor: what becomes of a piece of media on its way into a prompt, by the checkpoint's files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire.core.errors import CheckpointError
from quire.core.media import MediaKind
from quire.multimodal.recipes import Cooked, Recipe
from quire.multimodal.settings import Settings, image_settings, video_settings

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


Processors = Mapping[MediaKind, MediaProcessor]
"""Of one model; a kind that is not there is not read."""


@dataclass(frozen=True, slots=True)
class ProcessorFiles:
    """What a checkpoint says of how it reads media."""

    config: Mapping[str, Any]
    """The model's own."""
    folder: Path

    @property
    def image(self) -> Settings:
        return image_settings(self.folder)

    @property
    def video(self) -> Settings:
        return video_settings(self.folder)

    @property
    def tower(self) -> Settings:
        return Settings(self.config["vision_config"], "the config of the vision tower")

    def token(self, *names: str) -> int:
        """The first of the config's fields that gives a token."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                return value
        raise CheckpointError(f"the model's config.json does not give {' or '.join(names)}, the token of media.")
