"""LoRA adapters of random numbers for any model, in peft's format: speed does not depend on what they hold."""

import json
import os
from pathlib import Path

import torch
from safetensors.torch import save_file

from quire.lora.describe import WEIGHTS
from quire.lora.settings import CONFIG
from quire.models.loading.header import read_model_facts
from quire.spec.lora import LAYERS, adapted_matrices

_DIFFERENT = 16
"""Files that are written; further adapters of the same rank are links to them, under names of their own."""


def write_adapters(model: str, folder: Path, ranks: list[int], spread: float = 0.01) -> list[Path]:
    """One adapter for each rank, on all matrices of the model's layers; `model` is a folder.

    The larger `spread`, the more an adapter changes answers.
    """
    spec = read_model_facts(model).spec
    device = "cuda" if torch.cuda.is_available() else "cpu"  # hundreds of adapters are billions of numbers
    folders: list[Path] = []
    written: dict[tuple[int, int], Path] = {}
    for number, rank in enumerate(ranks):
        target = folder / f"adapter-{number}"
        target.mkdir(parents=True)
        config = {"peft_type": "LORA", "r": rank, "lora_alpha": rank, "bias": "none"}
        (target / CONFIG).write_text(json.dumps(config), encoding="utf-8")
        key = (rank, number % _DIFFERENT)
        if key in written:
            os.link(written[key] / WEIGHTS, target / WEIGHTS)
        else:
            written[key] = target
            random = torch.Generator(device).manual_seed(number)
            tensors = {}
            for matrix in adapted_matrices(spec):
                if matrix.target == LAYERS:
                    for part in matrix.parts:
                        name = f"base_model.model.{part.modules[0]}"
                        a = torch.randn(rank, matrix.columns, generator=random, device=device) / matrix.columns**0.5
                        b = torch.randn(part.rows, rank, generator=random, device=device) * spread
                        tensors[f"{name}.lora_A.weight"] = a.to("cpu", torch.bfloat16)
                        tensors[f"{name}.lora_B.weight"] = b.to("cpu", torch.bfloat16)
            save_file(tensors, target / WEIGHTS)
        folders.append(target)
    return folders
