"""Writing a quantized GGUF file, from another GGUF file or from a folder."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from quire.core.errors import CheckpointError
from quire.models.loading.folder import find_model, read_gguf_parts
from quire.models.loading.gguf_header import read_gguf_header
from quire.models.loading.layouts import as_file
from quire.models.loading.tensor_names import gguf_names
from quire.quantize.gguf.blocks import encode
from quire.quantize.gguf.carried import carried_factors, carried_metadata
from quire.quantize.gguf.described import described_factors, described_metadata
from quire.quantize.gguf.file import GGUFFile, PlannedTensor
from quire.quantize.gguf.types import FILE_TYPES, type_of
from quire.quantize.gguf.values import value_bytes
from quire.quantize.gguf.vocabulary import check_alike, vocabulary_metadata
from quire.quantize.room import check_room
from quire.quantize.source import Source
from quire.quantize.texts import held_out_sentences
from quire.spec.layout import file_shape
from quire.spec.tensor import TensorSpec
from quire.text.from_gguf import tokenizer_from_gguf
from quire.text.tokenizer import Tokenizer

_QUANTIZATION_VERSION = 2


def write_gguf(
    source: Source, tokenizer: Tokenizer, out: Path, scheme: str, progress: Callable[[int, int], None]
) -> None:
    """The model in `out`, which must not be there. A run that was stopped is taken up again."""
    _check_form(source)
    metadata, factors = _said(source, tokenizer)
    metadata["general.file_type"] = value_bytes(FILE_TYPES[scheme])
    metadata["general.quantization_version"] = value_bytes(_QUANTIZATION_VERSION)
    file = GGUFFile(out, metadata, [*factors, *_tensors(source, scheme)])
    check_room(out, file.num_bytes)
    _check_tokenizer(source, tokenizer, out, metadata)
    file.write(progress)


def _check_form(source: Source) -> None:
    if source.stacked is not None:
        raise CheckpointError(
            f"{source.path} is a {source.spec.architecture} with {source.stacked}, of which quire writes no GGUF "
            "files; take a scheme that writes a folder, such as int4."
        )


def _said(source: Source, tokenizer: Tokenizer) -> tuple[dict[str, bytes], list[PlannedTensor]]:
    """Metadata, and tensors that are no weights."""
    gguf = find_model(source.path).gguf
    if gguf is not None:
        headers = read_gguf_parts(gguf)
        return carried_metadata(headers[0]), carried_factors(headers)
    values = described_metadata(source) | vocabulary_metadata(source, tokenizer)
    return {key: value_bytes(value) for key, value in values.items()}, described_factors(source)


def _tensors(source: Source, scheme: str) -> list[PlannedTensor]:
    spec = source.spec
    planned = []
    for name, tensor in gguf_names(spec).spelled.items():
        if source.has(tensor.name):
            kind = type_of(tensor, scheme, spec)
            shape = file_shape(tensor.shape, tensor.gguf_layout)
            planned.append(PlannedTensor(name, kind, shape, partial(_encoded, source, tensor, kind)))
    named = {tensor.name for tensor in gguf_names(spec).spelled.values()}
    nameless = [name for name in source.model.matched.found if name not in named]
    if nameless:
        raise CheckpointError(f"{source.path} has the tensor {nameless[0]}, which has no name in GGUF files.")
    return planned


def _encoded(source: Source, tensor: TensorSpec, kind: str) -> Tensor:
    values = as_file(source.values(tensor.name), tensor.gguf_layout)
    plain = getattr(torch, kind, None)
    return encode(values, kind) if plain is None else values.to(plain)


def _check_tokenizer(source: Source, tokenizer: Tokenizer, out: Path, metadata: dict[str, bytes]) -> None:
    """What is written must cut texts as the source does: a header without tensors is read back."""
    if source.model.is_gguf:
        return
    alone = GGUFFile(out.with_name(f"{out.name}.vocabulary"), metadata, ())
    alone.write(lambda *_: None)
    path = out.with_name(f"{out.name}.vocabulary")
    try:
        check_alike(source, tokenizer, tokenizer_from_gguf(read_gguf_header(path)), held_out_sentences())
    finally:
        path.unlink()
