"""Configs from GGUF metadata, beyond what the round trip of whole models shows."""

from pathlib import Path
from typing import Any

import pytest

from quire.core.errors import CheckpointError
from quire.models.loading.gguf_config import gguf_config
from quire.models.loading.gguf_header import read_gguf_header
from quire.models.registry import describe_gguf
from quire.spec.model import ModelSpec
from tests.models.loading.files import GGUF_METADATA, GGUF_TENSORS, gguf_bytes


def config(
    tmp_path: Path, changes: dict[str, Any], architecture: str = "llama", tensors: Any = GGUF_TENSORS
) -> dict[str, Any]:
    """Of the usual metadata under another architecture; changes are keys without it, or whole ones with a dot first."""
    metadata: dict[str, Any] = {**GGUF_METADATA, "general.architecture": architecture}
    for key, value in changes.items():
        metadata[key[1:] if key.startswith(".") else f"llama.{key}"] = value
    metadata = {key: value for key, value in metadata.items() if value is not None}
    renamed = {key.replace("llama.", f"{architecture}.", 1): value for key, value in metadata.items()}
    path = tmp_path / "tiny.gguf"
    path.write_bytes(gguf_bytes(renamed, tensors))
    return gguf_config([read_gguf_header(path)])


def spec(tmp_path: Path, changes: dict[str, Any], architecture: str = "llama") -> ModelSpec:
    found = config(tmp_path, {"feed_forward_length": 512, **changes}, architecture)
    return describe_gguf(found, "tiny.gguf")


def test_plain_llama(tmp_path: Path) -> None:
    assert config(tmp_path, {"feed_forward_length": 512, "attention.layer_norm_rms_epsilon": 1e-5}) == {
        "model_type": "llama",
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
        "tie_word_embeddings": True,
    }


def test_output_matrix_unties(tmp_path: Path) -> None:
    tensors = [*GGUF_TENSORS, ("output.weight", 0, (256, 3), 1472, 3072)]
    assert config(tmp_path, {}, tensors=tensors)["tie_word_embeddings"] is False


def test_a_llama_may_have_a_window_and_with_experts_is_mixtral(tmp_path: Path) -> None:
    assert spec(tmp_path, {"attention.sliding_window": 16}).windows == (16, 16)
    assert spec(tmp_path, {"attention.sliding_window": 0}).windows == (None, None)
    assert config(tmp_path, {"expert_count": 8, "expert_used_count": 2})["architectures"] == ["MixtralForCausalLM"]
    assert config(tmp_path, {"expert_count": 0})["model_type"] == "llama"
    mlp = spec(tmp_path, {"expert_count": 8, "expert_used_count": 2}).layers[0].mlp
    assert [(part.role, part.rows) for part in mlp.up.parts] == [("expert_gate", 8 * 512), ("expert_up", 8 * 512)]


def test_an_unknown_architecture_is_refused_by_its_name(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds a model of architecture 'falcon9'; of GGUF quire runs llama"):
        spec(tmp_path, {}, "falcon9")


def test_an_olmo_3_is_no_olmo_2(tmp_path: Path) -> None:
    assert spec(tmp_path, {}, "olmo2").windows == (None, None)
    with pytest.raises(CheckpointError, match="is an OLMo 3, whose layers have windows; quire runs OLMo 2"):
        spec(tmp_path, {"attention.sliding_window": 16}, "olmo2")


def test_stablelm_with_normed_heads_is_refused(tmp_path: Path) -> None:
    tensors = [*GGUF_TENSORS, ("blk.0.attn_q_norm.weight", 0, (64, 4), 1472, 1024)]
    with pytest.raises(CheckpointError, match="a StableLM whose heads are normed; of those quire reads safetensors"):
        config(tmp_path, {}, "stablelm", tensors)


def test_latent_attention_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"latent attention \(MLA\), which quire runs of DeepSeek V2 and V3"):
        spec(tmp_path, {"attention.kv_lora_rank": 512})


def test_shapes_are_read(tmp_path: Path) -> None:
    found = spec(tmp_path, {})
    assert (found.architecture, found.num_layers, found.hidden_size) == ("llama", 2, 256)
    assert (found.num_heads, found.num_kv_heads, found.head_dim) == (4, 2, 64)
    assert (found.vocab_size, found.max_position) == (3, 64)


def test_fields_that_may_be_missing(tmp_path: Path) -> None:
    found = config(tmp_path, {"attention.head_count_kv": None, ".tokenizer.ggml.tokens": None})
    assert found["num_key_value_heads"] == 4
    assert found["vocab_size"] == 3  # rows of the embedding
    assert config(tmp_path, {"vocab_size": 7})["vocab_size"] == 3  # whatever the metadata says
    assert config(tmp_path, {"vocab_size": 7}, tensors=GGUF_TENSORS[1:])["vocab_size"] == 7
    assert config(tmp_path, {}, tensors=GGUF_TENSORS[1:])["vocab_size"] == 3  # tokens of the vocabulary
    assert config(tmp_path, {"attention.key_length": 32})["head_dim"] == 32


def test_heads_given_layer_by_layer_count_as_the_most(tmp_path: Path) -> None:
    assert spec(tmp_path, {"attention.head_count_kv": (1, 2)}).num_kv_heads == 2


def test_vocabulary_must_be_somewhere(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="vocabulary's size nowhere"):
        config(tmp_path, {".tokenizer.ggml.tokens": None}, tensors=GGUF_TENSORS[1:])


@pytest.mark.parametrize(("architecture", "usual"), [("bert", 1e-12), ("stablelm", 1e-5), ("falcon", 1e-5)])
def test_the_files_epsilon_wins_over_the_familys(tmp_path: Path, architecture: str, usual: float) -> None:
    def epsilon(changes: dict[str, Any]) -> float:
        norm = spec(tmp_path, changes, architecture).layers[0].attention_norm
        assert norm is not None
        return norm.eps

    assert epsilon({}) == usual
    assert epsilon({"attention.layer_norm_epsilon": 0.125}) == 0.125


@pytest.mark.parametrize(("given", "wiring"), [({}, "parallel"), ({"use_parallel_residual": False}, "sequential")])
def test_flags(tmp_path: Path, given: dict[str, Any], wiring: str) -> None:
    assert spec(tmp_path, given, "gptneox").layers[0].wiring == wiring
    with pytest.raises(CheckpointError, match=r"gptneox\.use_parallel_residual as 1, but it must be true or false"):
        spec(tmp_path, {"use_parallel_residual": 1}, "gptneox")


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
        ("gemma2", {}, (None, None)),
        ("gemma2", {"attention.sliding_window": 16}, (16, None)),
        ("gemma3", {"attention.sliding_window": 16}, (16, 16)),
        ("llama", {"attention.sliding_window": 64}, (None, None)),  # as long as the context
        ("cohere2", {"attention.sliding_window": 16, "block_count": 5}, (16, 16, 16, None, 16)),
        ("llama", {"attention.sliding_window": 16, "attention.sliding_window_pattern": (False, True)}, (None, 16)),
        ("llama", {"attention.sliding_window": 16, "attention.sliding_window_pattern": 2}, (16, None)),
        ("qwen2", {"attention.sliding_window": 16}, (None, None)),  # llama.cpp gives Qwen2 no window either
    ],
)
def test_windows(tmp_path: Path, architecture: str, changes: dict[str, Any], expected: tuple[int | None, ...]) -> None:
    assert spec(tmp_path, changes, architecture).windows == expected


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
        ({".general.architecture": 3}, "does not give general.architecture"),
        ({".general.architecture": None}, "does not give general.architecture"),
        ({"block_count": None}, "does not give llama.block_count"),
        ({"block_count": "2"}, "gives llama.block_count as '2'"),
        ({"block_count": 20_000}, "must be from 1 to 10,000"),
        ({"attention.head_count": None}, "does not give llama.attention.head_count"),
        ({"attention.head_count": (0, 0)}, "gives llama.attention.head_count as 0"),
        ({"context_length": (1, 2)}, "gives llama.context_length as an array"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        config(tmp_path, changes)
