"""Checkpoint: an open model: its spec, and its tensors under the spec's names and in quire's layout, whatever file they
lie in."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from quire.core.errors import CheckpointError
from quire.core.ggml_types import PACKED
from quire.core.nearest import did_you_mean
from quire.layers.stored import StoredTensor
from quire.models.loading.described import DescribedModel, describe_local
from quire.models.loading.layouts import laid_out, laid_out_share
from quire.models.loading.mapped_file import MappedFile
from quire.models.loading.match import Found
from quire.models.loading.quantization.schemes import Schemes
from quire.ops.reference.gguf.dequantize import TYPES
from quire.spec.model import ModelSpec
from quire.spec.share import Share


@dataclass(frozen=True, slots=True)
class Entry:
    """Where one tensor lies."""

    file: MappedFile
    found: Found


class Checkpoint:
    """Opening maps its files and checks their headers; no weight is read before it is used."""

    def __init__(
        self,
        spec: ModelSpec,
        entries: Mapping[str, Entry],
        config: Mapping[str, Any],
        source: str,
        schemes: Schemes | None = None,
        shares: Mapping[str, Share] | None = None,
    ) -> None:
        """`entries` are in the order of the files; `shares` are what a rank takes of some tensors, by name."""
        self.spec = spec
        self.schemes = schemes or {}
        """Of the parts of matrices that are quantized."""
        self._entries = dict(entries)
        self._config = dict(config)
        self._source = source
        self._shares = shares or {}

    @property
    def num_bytes(self) -> int:
        """Bytes of all tensors as stored."""
        return sum(span.num_bytes for entry in self._entries.values() for span in entry.found.spans)

    def names(self) -> list[str]:
        """All tensors, in the order in which their bytes follow each other."""
        return list(self._entries)

    def stored(self, name: str) -> StoredTensor:
        """One tensor. Where its layout differs from the file's it is a copy, otherwise the file's own pages."""
        return self.laid_out(self.raw(name))

    def raw(self, name: str) -> StoredTensor:
        """One tensor as the file has it: its own pages, of which none is read yet; of a tensor that is shared between
        ranks, the share, in quire's layout already.
        """
        entry = self._entry(name)
        span = entry.found.span
        stored = StoredTensor(name, span.dtype, span.shape, entry.file.tensor(span))
        if entry.found.others:
            pieces = torch.stack([entry.file.tensor(each) for each in entry.found.spans])
            stored = replace(stored, shape=(len(pieces), *span.shape), data=pieces)
        share = self._shares.get(name)
        return stored if share is None else laid_out_share(stored, entry.found.layout, share)

    def laid_out(self, raw: StoredTensor) -> StoredTensor:
        """A raw tensor, wherever its values are by now, in quire's layout."""
        return raw if raw.name in self._shares else laid_out(raw, self._entry(raw.name).found.layout)

    def config(self) -> dict[str, Any]:
        """What a config.json would say, or says."""
        return dict(self._config)

    def close(self) -> None:
        """Let go of the files; tensors that are still in use keep theirs mapped."""
        self._entries.clear()

    def _entry(self, name: str) -> Entry:
        entry = self._entries.get(name)
        if entry is None:
            raise CheckpointError(f"{self._source} has no tensor {name!r}.{did_you_mean(name, self._entries)}")
        return entry


def open_checkpoint(path: Path) -> Checkpoint:
    """A folder with config.json and .safetensors files or with one GGUF model, or one such file; with all rows of an
    output head, of which a classifier may need few."""
    return open_described(describe_local(path, "quire", as_trained=True))


def open_described(model: DescribedModel, shares: Mapping[str, Share] | None = None) -> Checkpoint:
    """The files of a model whose headers were read; `shares` are what a rank takes of their tensors."""
    path = model.path
    if not model.has_weights:
        raise CheckpointError(f"{path} holds a config.json but no weights; download the .safetensors files as well.")
    mapped: dict[Path, MappedFile] = {}
    entries: dict[str, Entry] = {}
    for name, found in model.matched.found.items():
        _check_type(found, path)
        file = model.files[found.span.name]
        mapped[file] = mapped.get(file) or MappedFile(file)
        entries[name] = Entry(mapped[file], found)
    return Checkpoint(model.matched.spec, entries, model.config, str(path), model.matched.schemes, shares)


def _check_type(found: Found, path: Path) -> None:
    kind = found.span.dtype
    if kind in PACKED and kind not in TYPES:
        raise CheckpointError(
            f"{path}: tensor {found.span.name!r} is {kind}, which quire cannot unpack; it can {', '.join(TYPES)}."
        )
