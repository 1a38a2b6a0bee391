"""MediaEncoder: the embeddings of media, by content: the model's tower makes those that are not kept."""

from collections.abc import Sequence

from torch import Tensor

from quire.core.media import MediaItem
from quire.models.audio_tower import AudioTower
from quire.models.vision_tower import VisionTower
from quire.worker.encoder_cache import EncoderCache


class MediaEncoder:
    """Of one worker; in a pipeline, of those of the first stage, which alone hold the tower."""

    def __init__(self, tower: VisionTower | AudioTower, cache: EncoderCache, at_once: int) -> None:
        """`at_once` is how many embeddings are made in one go: what a tower holds between its layers grows with
        them."""
        self._tower = tower
        self._cache = cache
        self._at_once = at_once

    @property
    def num_encoded(self) -> int:
        """Items that the tower has encoded."""
        return self._cache.num_encoded

    def forget(self) -> None:
        """Keep nothing."""
        self._cache.clear()

    def embeddings(self, items: Sequence[MediaItem]) -> dict[bytes, Tensor]:
        """Of each, by content; what is not kept is encoded, as much at once as there is room for."""
        found: dict[bytes, Tensor] = {}
        missing: dict[bytes, MediaItem] = {}
        for item in items:
            kept = self._cache.get(item.digest)
            if kept is None:
                missing[item.digest] = item
            else:
                found[item.digest] = kept
        new = list(missing.values())
        for item, embeddings in zip(new, self._tower(new, self._at_once), strict=True):
            assert len(embeddings) == item.num_tokens, f"{len(embeddings)} embeddings for {item.num_tokens} tokens"
            found[item.digest] = embeddings
            self._cache.put(item.digest, embeddings)
        return found
