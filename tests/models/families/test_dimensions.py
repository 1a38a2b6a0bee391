"""What a config.json says of a model's shape: names of several families, nested parts, context, damage."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.core.errors import CheckpointError
from quire.models.registry import describe
from quire.spec.model import ModelSpec
from tests.models.loading.files import LLAMA_3_8B

GPT2 = {"model_type": "gpt2", "n_layer": 12, "n_embd": 768, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}


def shape(config: dict[str, Any]) -> ModelSpec:
    return describe(config, "config.json")


def llama(**changes: Any) -> ModelSpec:
    return shape(LLAMA_3_8B | changes)


def test_llama() -> None:
    found = llama()
    assert (found.num_layers, found.hidden_size, found.num_heads, found.num_kv_heads) == (32, 4096, 32, 8)
    assert (found.head_dim, found.vocab_size, found.max_position) == (128, 128_256, 8192)
    assert (found.architecture, found.windows) == ("LlamaForCausalLM", (None,) * 32)


def test_gpt2_goes_by_other_names() -> None:
    found = shape(GPT2)
    assert (found.num_layers, found.num_kv_heads, found.head_dim, found.max_position) == (12, 12, 64, 1024)
    assert found.architecture == "gpt2"


def test_head_dim_of_its_own() -> None:
    assert llama(head_dim=64).head_dim == 64


def test_gemma_3_nests_its_text_model_and_leaves_fields_to_its_class() -> None:
    text = {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "num_hidden_layers": 34,
        "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
        "sliding_window": 1024,
    }
    config = {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3", "text_config": text}
    found = shape(config | {"torch_dtype": "bfloat16"})  # whose dtype test_header reads
    assert (found.num_heads, found.num_kv_heads, found.head_dim) == (8, 4, 256)
    assert found.max_position == 131_072
    assert found.windows.count(1024) == 29
    assert found.windows[:6] == (1024,) * 5 + (None,)


@pytest.mark.parametrize("kind", ["linear", "dynamic"])
def test_linear_and_dynamic_scaling_extend_the_context(kind: str) -> None:
    found = llama(max_position_embeddings=4096, rope_scaling={"rope_type": kind, "factor": 2.0})
    assert found.max_position == 8192


def test_prompts_beyond_the_original_length_may_have_other_angles() -> None:
    assert llama(max_position_embeddings=4096).angles_change_at is None
    dynamic = llama(max_position_embeddings=4096, rope_scaling={"rope_type": "dynamic", "factor": 2.0})
    assert (dynamic.angles_change_at, dynamic.angles_follow_length) == (4096, True)
    scaling = {"type": "su", "short_factor": [1.0], "long_factor": [2.0]}
    long = llama(max_position_embeddings=131_072, original_max_position_embeddings=4096, rope_scaling=scaling)
    assert (long.angles_change_at, long.angles_follow_length) == (4096, False)


def test_yarn_extends_the_context_and_says_so() -> None:
    scaling = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}
    found = llama(max_position_embeddings=32_768, rope_scaling=scaling)
    assert found.max_position == 131_072
    assert found.max_position_source == "the checkpoint's rope_scaling (YaRN, 4 × 32,768)"


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8192},
        {"rope_type": "longrope", "original_max_position_embeddings": 4096},
        {"rope_type": "yarn", "factor": 4.0},
        {"rope_type": "yarn", "factor": 40, "original_max_position_embeddings": 3276},
        {"full_attention": {"rope_type": "default"}},
        None,
    ],
)
def test_other_scalings_are_in_the_context_already(scaling: Any) -> None:
    found = llama(max_position_embeddings=131_072, rope_scaling=scaling)
    assert found.max_position == 131_072
    assert found.max_position_source == "the checkpoint"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_size": None}, "does not give hidden_size or n_embd or d_model"),
        ({"hidden_size": "4096"}, "gives hidden_size as '4096', but it must be a whole number"),
        ({"hidden_size": 4096.0}, "gives hidden_size as 4096.0"),
        ({"num_hidden_layers": 10**12}, "gives num_hidden_layers as 1000000000000"),
        ({"num_hidden_layers": 0}, "gives num_hidden_layers as 0"),
        ({"num_key_value_heads": 5}, "gives 32 heads and 5 KV heads"),
        ({"hidden_size": 4097}, "gives no head_dim"),
        ({"vocab_size": True}, "gives vocab_size as True"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"sliding_window": 10, "use_sliding_window": "yes"}, "gives use_sliding_window as 'yes'"),
        ({"rope_scaling": {"type": "yarn", "factor": "4"}}, "gives factor as '4'"),
        ({"layer_types": ["full_attention"]}, "layer_types as a list of 32 names"),
        ({"layer_types": ["linear_attention"] * 32}, "layer of type 'linear_attention'"),
    ],
)
def test_nonsense_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        llama(**changes)


anything = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.sampled_from(["type", "factor", "original_max_position_embeddings"]), st.floats(), max_size=3),
)  # fmt: skip


@given(
    st.dictionaries(
        st.sampled_from([*LLAMA_3_8B, "layer_types", "sliding_window", "rope_scaling", "text_config", "head_dim"]),
        anything,
        max_size=5,
    )
)
def test_any_config_is_read_or_refused(changes: dict[str, Any]) -> None:
    try:
        found = llama(**changes)
    except CheckpointError:
        return
    assert found.num_layers >= 1
    assert len(found.windows) == found.num_layers


def test_encoders_are_told_apart_and_leave_fields_to_their_class() -> None:
    found = shape({"model_type": "bert", "num_hidden_layers": 6, "hidden_size": 384})
    assert (found.is_encoder, found.num_heads, found.vocab_size, found.max_position) == (True, 12, 30_522, 512)
    assert not llama().is_encoder


def test_positions_of_roberta_begin_behind_that_of_padding() -> None:
    config = {"model_type": "xlm-roberta", "vocab_size": 250_002, "max_position_embeddings": 514}
    assert shape(config | {"pad_token_id": 1}).max_position == 512
    assert shape(config | {"pad_token_id": 0}).max_position == 513
    with pytest.raises(CheckpointError, match="after which no positions are left"):
        shape(config | {"pad_token_id": 513})
