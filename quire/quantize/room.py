"""How many bytes a quantized model takes, and whether there is room for them."""

import shutil
from math import prod
from pathlib import Path

import torch

from quire.config.dtypes import DTYPE_BYTES
from quire.config.sizes import decimal_size
from quire.core.errors import ConfigError
from quire.models.loading.quantization.schemes import stored_tensors
from quire.quantize.compressed_tensors import FolderPlan

_PLAIN_KINDS = ("float32", "float16", "bfloat16")


def folder_bytes(plan: FolderPlan, dtype: torch.dtype) -> int:
    """Of all tensors of a folder."""
    sizes = []
    for tensor in stored_tensors(plan.spec, plan.schemes):
        kind = next((kind for kind in tensor.kinds if kind not in _PLAIN_KINDS), None)
        sizes.append(prod(tensor.shape) * (dtype.itemsize if kind is None else DTYPE_BYTES[kind]))
    return sum(sizes)


def check_room(out: Path, needed: int) -> None:
    """Raise unless the disk that `out` is on has room for it, less what a run that was stopped has written."""
    parent = out.absolute().parent
    while not parent.exists():
        parent = parent.parent
    partial = out.with_name(f"{out.name}.partial")
    files = partial.rglob("*") if partial.is_dir() else [partial] if partial.is_file() else []
    there = sum(file.stat().st_size for file in files if file.is_file())
    free = shutil.disk_usage(parent).free
    if needed - there > free:
        raise ConfigError(
            f"{out} needs {decimal_size(needed - there)}, but the disk of {parent} has {decimal_size(free)} left; make "
            "room or give another place."
        )
