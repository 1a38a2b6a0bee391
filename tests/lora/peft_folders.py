"""Random LoRA adapters as peft itself saves them, and what peft makes of them."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM


def save_adapter(base: Path, folder: Path, *, seed: int, rank: int, **settings: Any) -> Path:
    """An adapter of the model at `base`, all of whose matrices are random."""
    from peft import LoraConfig, get_peft_model

    model = _model(base)
    config = LoraConfig(r=rank, **{"lora_alpha": 2 * rank, "target_modules": "all-linear", **settings})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = get_peft_model(model, config)
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in adapted.named_parameters():
        if "lora_magnitude" in name:
            parameter.data *= 1 + 0.3 * torch.rand(parameter.shape, generator=generator)
        elif "lora_" in name:
            # small enough for float32 to be exact to 1e-4 whatever the batch, and large enough to change every token
            spread = 0.25 / rank**0.5 if "lora_B" in name or "embedding_B" in name else 0.2
            parameter.data = torch.randn(parameter.shape, generator=generator) * spread
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted.save_pretrained(folder)
    return folder


def peft_logits(base: Path, folder: Path | None, tokens: list[int]) -> torch.Tensor:
    """[tokens, vocabulary] as peft computes them."""
    from peft import PeftModel

    model: Any = _model(base)
    if folder is not None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = PeftModel.from_pretrained(model, folder)
    with torch.no_grad():
        logits: torch.Tensor = model(torch.tensor([tokens])).logits[0]
    return logits


def _model(base: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager").eval()


def rewritten(folder: Path, target: Path, tensors: Mapping[str, torch.Tensor] | None = None, **settings: Any) -> Path:
    """A copy with other settings or tensors, to be refused."""
    import json

    from safetensors.torch import load_file, save_file

    target.mkdir(parents=True)
    config = json.loads((folder / "adapter_config.json").read_text()) | settings
    (target / "adapter_config.json").write_text(json.dumps(config))
    kept = load_file(folder / "adapter_model.safetensors") if tensors is None else dict(tensors)
    save_file(kept, target / "adapter_model.safetensors")
    return target
