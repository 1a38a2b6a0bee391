"""A Checkpoint from a GGUF file or its parts."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from quire.core.errors import CheckpointError
from quire.core.ggml_types import PACKED
from quire.models.loading.checkpoint import Checkpoint, Entry
from quire.models.loading.folder import read_gguf_parts
from quire.models.loading.gguf_config import gguf_config
from quire.models.loading.gguf_header import GGUFHeader
from quire.models.loading.gguf_layout import layout_of
from quire.models.loading.gguf_metadata import GGUFMetadata
from quire.models.loading.gguf_names import origin
from quire.models.loading.hf_config import read_hf_config
from quire.models.loading.mapped_file import MappedFile
from quire.models.loading.spans import TensorSpan
from quire.ops.reference.gguf.dequantize import TYPES


def gguf_checkpoint(path: Path) -> Checkpoint:
    """The model in the file `path` and, where its name says it is one of several, in the others beside it."""
    headers = read_gguf_parts(path)
    architecture = GGUFMetadata(headers[0]).architecture
    config = gguf_config(headers)
    shape = read_hf_config(config, str(path))
    entries: dict[str, Entry] = {}
    for file, source, span in _spans(headers):
        _check_type(span, source)
        found = origin(architecture, span.name, shape.num_layers, source)
        if found is None:
            continue
        if found.name in entries:
            raise CheckpointError(
                f"{source}: tensor {span.name!r} is in another part as well; keep one model in a folder."
            )
        entries[found.name] = Entry(file, span, layout_of(found.change, shape.num_heads, shape.num_kv_heads))
    if not entries:
        raise CheckpointError(f"{path} holds no tensors; it is a vocabulary or adapter, not a model.")
    return Checkpoint(entries, config, str(path))


def _spans(headers: Sequence[GGUFHeader]) -> Iterator[tuple[MappedFile, str, TensorSpan]]:
    for header in headers:
        file = MappedFile(header.path)
        for span in sorted(header.tensors, key=lambda span: span.start):
            yield file, str(header.path), span


def _check_type(span: TensorSpan, source: str) -> None:
    if span.dtype in PACKED and span.dtype not in TYPES:
        raise CheckpointError(
            f"{source}: tensor {span.name!r} is {span.dtype}, which quire cannot unpack; it can {', '.join(TYPES)}."
        )
