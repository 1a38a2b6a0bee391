"""Parameters counted from the shape alone, against the published counts of real models."""

from typing import Any

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.hf_config import read_hf_config
from quire.models.loading.parameter_count import count_parameters
from tests.models.loading.files import LLAMA_3_8B


def sizes(model_type: str, layers: int, hidden: int, width: int, heads: int, kv: int, vocab: int, **more: Any) -> Any:
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": width,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
    } | more


GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
TIED = {"tie_word_embeddings": True}

KNOWN = {
    "Llama-3-8B": (LLAMA_3_8B, 8_030_261_248),
    "SmolLM2-135M": (sizes("llama", 30, 576, 1536, 9, 3, 49152, **TIED), 134_515_008),
    "Mistral-7B-v0.1": (sizes("mistral", 32, 4096, 14336, 32, 8, 32000), 7_241_732_096),
    "Qwen2.5-0.5B": (sizes("qwen2", 24, 896, 4864, 14, 2, 151_936, **TIED), 494_032_768),
    "Qwen3-0.6B": (sizes("qwen3", 28, 1024, 3072, 16, 8, 151_936, head_dim=128, **TIED), 596_049_920),
    "Gemma-2-2B": (sizes("gemma2", 26, 2304, 9216, 8, 4, 256_000, head_dim=256), 2_614_341_888),
    "Gemma-3-1B": (sizes("gemma3_text", 26, 1152, 6912, 4, 1, 262_144, head_dim=256), 999_885_952),
    "Phi-3-mini": (sizes("phi3", 32, 3072, 8192, 32, 32, 32064), 3_821_079_552),
    "GPT-2": (GPT2, 124_439_808),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_model(name: str) -> None:
    config, expected = KNOWN[name]
    assert count_parameters(read_hf_config(config, "config.json")) == expected


def test_biases_are_counted_where_the_config_has_them() -> None:
    plain = count_parameters(read_hf_config(LLAMA_3_8B, "config.json"))
    biased = LLAMA_3_8B | {"attention_bias": True, "mlp_bias": True}
    attention, mlp = 4096 + 2 * 1024 + 4096, 2 * 14336 + 4096
    assert count_parameters(read_hf_config(biased, "config.json")) == plain + 32 * (attention + mlp)


def test_other_families_are_refused() -> None:
    with pytest.raises(CheckpointError, match="describes mixtral, whose weights quire cannot count"):
        count_parameters(read_hf_config(LLAMA_3_8B | {"model_type": "mixtral"}, "config.json"))
