"""Undoing what converters to GGUF do to tensors, so that a layer finds what a Hugging Face checkpoint would hold."""

from collections.abc import Callable
from dataclasses import replace

import torch

from quire.core.errors import CheckpointError
from quire.layers.stored import StoredTensor
from quire.models.loading.gguf_names import Change
from quire.ops.reference.gguf.dequantize import dequantize

Layout = Callable[[StoredTensor], StoredTensor]


def layout_of(change: Change, num_heads: int, num_kv_heads: int) -> Layout:
    """The function that takes a change back."""
    layouts: dict[Change, Layout] = {
        "none": lambda stored: stored,
        "query_rows": lambda stored: _halves(stored, num_heads),
        "key_rows": lambda stored: _halves(stored, num_kv_heads),
        "plus_one": _minus_one,
        "transposed": _transposed,
    }
    return layouts[change]


def _halves(stored: StoredTensor, num_heads: int) -> StoredTensor:
    """Rows of a head in GGUF are pairs that turn together; Hugging Face has all first ones, then all second ones.

    A row is quantized for itself, so packed rows can be moved like any others.
    """
    data = stored.data
    rows = stored.shape[0] if stored.shape else 0
    if rows == 0 or len(data) != rows or rows % (2 * num_heads):
        raise CheckpointError(
            f"tensor {stored.name} has shape {list(stored.shape)}, whose rows are not pairs in {num_heads} heads."
        )
    pairs = data.view(num_heads, rows // (2 * num_heads), 2, *data.shape[1:])
    return replace(stored, data=pairs.transpose(1, 2).reshape(data.shape))


def _minus_one(stored: StoredTensor) -> StoredTensor:
    return replace(stored, kind="float32", data=_values(stored) - 1)


def _transposed(stored: StoredTensor) -> StoredTensor:
    """Packed rows cannot be turned into columns, so these matrices are unpacked."""
    if len(stored.shape) != 2:
        raise CheckpointError(f"tensor {stored.name} has shape {list(stored.shape)}, but a matrix is expected.")
    packed = stored.is_quantized
    data = _values(stored) if packed else stored.data
    return replace(stored, kind="float32" if packed else stored.kind, shape=stored.shape[::-1], data=data.t())


def _values(stored: StoredTensor) -> torch.Tensor:
    if stored.is_quantized:
        return dequantize(stored.data, stored.kind).view(stored.shape)
    return stored.data.float()
