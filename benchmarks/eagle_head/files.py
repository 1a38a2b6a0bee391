"""How a folder keeps tensors: whole or not at all."""

from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor


def save_whole(tensors: dict[str, Tensor], file: Path) -> None:
    """Whoever is stopped meanwhile goes on with what was there."""
    beside = file.with_suffix(".new")
    save_file({name: each.detach().cpu().contiguous() for name, each in tensors.items()}, beside)
    beside.replace(file)
