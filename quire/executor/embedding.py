"""The embedder inside the engine's own thread."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from quire.config.resolve_embedding import ResolvedEmbedding
from quire.core.errors import OutOfDeviceMemory
from quire.core.pooling import Pooling
from quire.worker.device import this_device
from quire.worker.out_of_memory import free_cached_memory, telling_out_of_memory

if TYPE_CHECKING:
    from quire.worker.embedder import Embedder

_T = TypeVar("_T")


class EmbeddingExecutor:
    """Embeds and classifies where it is asked to."""

    def __init__(self, embedder: "Embedder") -> None:
        self._embedder: Embedder | None = embedder

    def embed(
        self, prompts: Sequence[Sequence[int]], pooling: Pooling | None = None, *, normalized: bool = True
    ) -> list[list[float]]:
        """Vectors in the order of the prompts; `pooling` None is the model's own."""
        return self._run(lambda embedder: embedder.embed(prompts, pooling, normalized=normalized))

    def embed_tokens(self, prompts: Sequence[Sequence[int]], *, normalized: bool = True) -> list[list[list[float]]]:
        """For every prompt the vectors of its tokens."""
        return self._run(lambda embedder: embedder.embed_tokens(prompts, normalized=normalized))

    def classify(
        self, prompts: Sequence[Sequence[int]], types: Sequence[Sequence[int]] | None = None
    ) -> list[list[float]]:
        """The raw score of every label for each prompt; `types` tells the texts of pairs apart."""
        return self._run(lambda embedder: embedder.classify(prompts, types))

    def close(self) -> None:
        """Free the device. Safe to call twice."""
        self._embedder = None

    def _run(self, work: Callable[["Embedder"], _T]) -> _T:
        assert self._embedder is not None, "the executor is closed"
        embedder = self._embedder
        try:
            return telling_out_of_memory(lambda: work(embedder))
        except OutOfDeviceMemory:
            free_cached_memory(this_device())
            raise


def start_embedding(path: Path, resolved: ResolvedEmbedding, pooling: Pooling | None = None) -> EmbeddingExecutor:
    """An executor with the model at `path` on this machine's device."""
    from quire.worker.start_embedder import start_embedder

    return EmbeddingExecutor(start_embedder(path, resolved, device=this_device(), pooling=pooling))
