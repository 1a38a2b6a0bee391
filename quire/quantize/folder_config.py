"""The config.json of a folder that quire writes."""

from typing import Any

import torch

from quire.quantize.compressed_tensors import FolderPlan
from quire.quantize.output_head import untied
from quire.quantize.source import Source

_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "olmo2": "Olmo2ForCausalLM",
    "granite": "GraniteForCausalLM",
    "smollm3": "SmolLM3ForCausalLM",
    "stablelm": "StableLmForCausalLM",
    "gpt_neox": "GPTNeoXForCausalLM",
    "falcon": "FalconForCausalLM",
    "cohere": "CohereForCausalLM",
    "cohere2": "Cohere2ForCausalLM",
    "bert": "BertModel",
    "nomic_bert": "NomicBertModel",
}
"""The classes of transformers that models of GGUF files are; a GGUF file does not name them."""


def folder_config(source: Source, dtype: torch.dtype, plan: FolderPlan) -> dict[str, Any]:
    """The source's own, with what has changed."""
    config = dict(source.model.config)
    if source.spec.tied and not plan.spec.tied:
        config = untied(config)
    if "architectures" not in config and config.get("model_type") in _CLASSES:
        config["architectures"] = [_CLASSES[config["model_type"]]]
    field = "dtype" if "dtype" in config else "torch_dtype"
    config[field] = str(dtype).removeprefix("torch.")
    if plan.config is not None:
        config["quantization_config"] = plan.config
    return config
