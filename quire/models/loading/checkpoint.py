"""Checkpoint: the tensors of a model under the names and in the layout of Hugging Face, whatever file they lie in."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from quire.core.errors import CheckpointError
from quire.core.nearest import did_you_mean
from quire.layers.stored import StoredTensor
from quire.models.loading.mapped_file import MappedFile
from quire.models.loading.spans import TensorSpan


def as_stored(stored: StoredTensor) -> StoredTensor:
    """The layout of formats that need no change."""
    return stored


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies and how its layout becomes Hugging Face's."""

    file: MappedFile
    span: TensorSpan
    layout: Callable[[StoredTensor], StoredTensor] = as_stored


class Checkpoint:
    """An open model. Opening maps its files and checks their headers; no weight is read before it is used."""

    def __init__(self, entries: Mapping[str, Entry], config: Mapping[str, Any], source: str) -> None:
        """`entries` are in the order of the files."""
        self._entries = dict(entries)
        self._config = dict(config)
        self._source = source

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(entry.span.num_bytes for entry in self._entries.values())

    def names(self) -> list[str]:
        """All tensors, in the order in which their bytes follow each other."""
        return list(self._entries)

    def stored(self, name: str) -> StoredTensor:
        """One tensor. Where its layout differs from the file's it is a copy, otherwise the file's own pages."""
        return self.laid_out(self.raw(name))

    def raw(self, name: str) -> StoredTensor:
        """One tensor as the file has it: its own pages, of which none is read yet."""
        entry = self._entry(name)
        return StoredTensor(name, entry.span.dtype, entry.span.shape, entry.file.tensor(entry.span))

    def laid_out(self, raw: StoredTensor) -> StoredTensor:
        """A raw tensor, wherever its values are by now, in the layout of Hugging Face."""
        return self._entry(raw.name).layout(raw)

    def iterate(self) -> Iterator[StoredTensor]:
        """Every tensor once, so that the files are read from front to back."""
        for name in self.names():
            yield self.stored(name)

    def config(self) -> dict[str, Any]:
        """What a config.json would say, or says."""
        return dict(self._config)

    def _entry(self, name: str) -> Entry:
        entry = self._entries.get(name)
        if entry is None:
            raise CheckpointError(f"{self._source} has no tensor {name!r}.{did_you_mean(name, self._entries)}")
        return entry

    def close(self) -> None:
        """Let go of the files; tensors that are still in use keep theirs mapped."""
        self._entries.clear()
