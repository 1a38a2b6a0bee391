"""A prompt: everything that decides the KV of a request's first tokens, apart from whom it is shared with."""

from collections.abc import Iterable

import msgspec

from quire.core.adapter import AdapterRef
from quire.core.errors import InvalidRequest
from quire.core.media import MediaItem


class MediaKey(msgspec.Struct, frozen=True, array_like=True):
    """Media whose first placeholder token stands at `position`; `digest` names its content for the prefix cache."""

    position: int
    digest: bytes


def media_keys(items: Iterable[MediaItem]) -> "tuple[MediaKey, ...]":
    """What the prefix cache knows of media."""
    return tuple(MediaKey(item.position, item.digest) for item in items)


class Prompt(msgspec.Struct, frozen=True, array_like=True):
    """Tokens, the media that some of them stand for, and the LoRA adapter that the model reads them with."""

    tokens: tuple[int, ...]
    media: tuple[MediaKey, ...] = ()
    adapter: AdapterRef | None = None
    """None is the model as it is."""

    def __post_init__(self) -> None:
        if not self.tokens:
            raise InvalidRequest("the prompt is empty; it needs at least one token", field="prompt")
        if min(self.tokens) < 0:
            raise InvalidRequest(f"token id {min(self.tokens)} in the prompt is negative", field="prompt")
