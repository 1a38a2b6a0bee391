"""Writing one .safetensors file: under another name first, so that a file that is there is whole."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_NAMES = {
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int8: "I8",
    torch.uint8: "U8",
}
_ALIGNED = 8


def write_safetensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Tensors in the order that they are given in."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNED)
    unfinished = path.with_name(f"{path.name}.tmp")
    with unfinished.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors.values():
            file.write(raw_bytes(tensor))
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)


def raw_bytes(tensor: Tensor) -> bytes:
    """A tensor's numbers as a file holds them."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().tobytes()
