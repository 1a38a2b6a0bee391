"""Configs from GGUF metadata, beyond what the round trip of whole models shows."""

from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_config import gguf_config
from quire.models.loading.gguf_header import read_gguf_header
from quire.models.loading.hf_config import read_hf_config
from tests.models.loading.files import GGUF_METADATA, GGUF_TENSORS, gguf_bytes


def config(
    tmp_path: Path, changes: dict[str, Any], architecture: str = "llama", tensors: Any = GGUF_TENSORS
) -> dict[str, Any]:
    """Of the usual metadata under another architecture; changes are keys without it, or whole ones with a dot first."""
    metadata: dict[str, Any] = {**GGUF_METADATA, "general.architecture": architecture}
    for key, value in changes.items():
        metadata[key[1:] if key.startswith(".") else f"llama.{key}"] = value
    renamed = {key.replace("llama.", f"{architecture}.", 1): value for key, value in metadata.items()}
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes(renamed, tensors))
    return gguf_config([read_gguf_header(path)])


def test_plain_llama(tmp_path: Path) -> None:
    assert config(tmp_path, {"feed_forward_length": 512, "attention.layer_norm_rms_epsilon": 1e-5}) == {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": 2,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 64,
        "vocab_size": 3,
        "max_position_embeddings": 64,
        "rms_norm_eps": 1e-5,  # and not what float32 makes of it
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }


def test_output_matrix_unties(tmp_path: Path) -> None:
    tensors = [*GGUF_TENSORS, ("output.weight", 0, (256, 3), 1472, 3072)]
    assert config(tmp_path, {}, tensors=tensors)["tie_word_embeddings"] is False


def test_llama_with_a_window_is_mistral_and_with_experts_mixtral(tmp_path: Path) -> None:
    assert config(tmp_path, {"attention.sliding_window": 16})["model_type"] == "mistral"
    assert config(tmp_path, {"attention.sliding_window": 0})["model_type"] == "llama"
    assert config(tmp_path, {"expert_count": 8})["architectures"] == ["MixtralForCausalLM"]
    assert config(tmp_path, {"expert_count": 0})["model_type"] == "llama"


def test_unknown_architecture_still_has_a_shape(tmp_path: Path) -> None:
    found = config(tmp_path, {}, "falcon9")
    assert "architectures" not in found
    shape = read_hf_config(found, "tiny.gguf")
    assert (shape.architecture, shape.num_layers, shape.num_kv_heads) == ("falcon9", 2, 2)


def test_latent_attention_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="latent attention"):
        read_hf_config(config(tmp_path, {"attention.kv_lora_rank": 512}, "deepseek2"), "tiny.gguf")


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({".tokenizer.ggml.eos_token_id": 1}, 1),
        ({".tokenizer.ggml.eos_token_id": 1, ".tokenizer.ggml.eot_token_id": 1}, 1),
        ({".tokenizer.ggml.eos_token_id": 1, ".tokenizer.ggml.eot_token_id": 2}, [1, 2]),
        ({".tokenizer.ggml.eos_token_id": 3}, None),
        ({".tokenizer.ggml.eos_token_id": 2**32 - 1}, None),
        ({".tokenizer.ggml.eos_token_id": "1"}, None),
        ({".tokenizer.ggml.eos_token_id": True}, None),
    ],
)
def test_ends_of_texts(tmp_path: Path, changes: dict[str, Any], expected: Any) -> None:
    assert config(tmp_path, changes).get("eos_token_id") == expected


@pytest.mark.parametrize(
    ("architecture", "changes", "expected"),
    [
        ("gemma2", {}, 64),
        ("gemma2", {"block_count": 46, "embedding_length": 512}, 128),
        ("gemma2", {"attention.key_length": 128}, 128),
        ("gemma3", {"block_count": 62, "attention.key_length": 128}, 64),
        ("gemma3", {"attention.scale": 0.0625}, 256.0),
    ],
)
def test_scale_of_gemmas_scores(tmp_path: Path, architecture: str, changes: dict[str, Any], expected: float) -> None:
    assert config(tmp_path, changes, architecture)["query_pre_attn_scalar"] == expected


def test_caps_of_gemma(tmp_path: Path) -> None:
    old = config(tmp_path, {}, "gemma2")
    assert (old["attn_logit_softcapping"], old["final_logit_softcapping"]) == (50.0, 30.0)
    assert config(tmp_path, {"final_logit_softcapping": 20.0}, "gemma2")["final_logit_softcapping"] == 20.0
    assert "final_logit_softcapping" not in config(tmp_path, {}, "gemma3")


@pytest.mark.parametrize(
    ("architecture", "changes", "expected"),
    [
        ("gemma2", {}, ()),
        ("gemma2", {"attention.sliding_window": 16}, (16, None)),
        ("gemma3", {"attention.sliding_window": 16}, (16, 16)),
        ("gpt-oss", {"attention.sliding_window": 16}, (16, None)),
        ("llama", {"attention.sliding_window": 16, "attention.sliding_window_pattern": (False, True)}, (None, 16)),
        ("llama", {"attention.sliding_window": 16, "attention.sliding_window_pattern": 2}, (16, None)),
        ("qwen2", {"attention.sliding_window": 16}, ()),  # llama.cpp gives Qwen2 no window either
    ],
)
def test_windows(tmp_path: Path, architecture: str, changes: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    assert read_hf_config(config(tmp_path, changes, architecture), "tiny.gguf").windows == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rope.freq_base": -1.0}, "rope.freq_base as -1.0, but it must be a number above 0"),
        ({"rope.freq_base": "fast"}, "rope.freq_base as 'fast'"),
        ({"attention.layer_norm_rms_epsilon": True}, "as True, but it must be a number above 0"),
        ({"attention.layer_norm_rms_epsilon": (1, 2)}, "as an array of 2"),
        ({"feed_forward_length": 0}, "feed_forward_length as 0"),
        ({"attention.head_count_kv": tuple([1] * 10_001)}, "an array of 10,001, but it must be at most 10,000 values"),
        ({"attention.head_count_kv": ("1", "2")}, "head_count_kv as 0"),
        ({"attention.sliding_window": 8, "attention.sliding_window_pattern": (True,)}, "2 truth values, one a layer"),
        ({"attention.sliding_window": 8, "attention.sliding_window_pattern": ("a", "b")}, "2 truth values"),
        ({".general.architecture": "a" * 65}, "does not give general.architecture"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        config(tmp_path, changes)
