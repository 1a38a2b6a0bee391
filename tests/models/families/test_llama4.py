"""Llama 4 as a part of a model that reads images too, and what its config may say."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Llama4Config, Llama4ForConditionalGeneration

from quire.config.devices import DEVICES
from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.core.errors import CheckpointError
from quire.layers.quant.dense import DenseMethod
from quire.models.loading.checkpoint import open_checkpoint
from quire.models.loading.header import read_model_facts
from quire.models.registry import describe
from quire.spec.cache import KeyValueCache
from quire.spec.model import ModelSpec
from tests.models.running import logits_of
from tests.models.test_experts import loaded

TEXT: dict[str, Any] = {
    "model_type": "llama4_text",
    "hidden_size": 64,
    "intermediate_size": 48,
    "intermediate_size_mlp": 80,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "num_local_experts": 4,
    "attention_chunk_size": 16,
    "interleave_moe_layer_step": 2,
    "vocab_size": 99,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
}
VISION: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 128,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
    "vision_output_dim": 32,
    "projector_input_dim": 32,
    "projector_output_dim": 32,
    "pixel_shuffle_ratio": 0.5,
}
IDS = [5, 17, 3, 80, 41, 2, 66, 9, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40]


def described(**changes: Any) -> ModelSpec:
    return describe(TEXT | changes, "config.json")


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    torch.manual_seed(3)
    config = Llama4Config(text_config=TEXT, vision_config=VISION)
    config._attn_implementation = config.text_config._attn_implementation = "eager"
    model = Llama4ForConditionalGeneration(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            parameter.copy_(noise * 0.12 if parameter.dim() > 1 else parameter + noise * 0.1)
    folder = tmp_path_factory.mktemp("llama4")
    model.save_pretrained(folder)
    return folder, model


@torch.no_grad()
def test_the_text_of_a_model_that_reads_images(both: tuple[Path, Any]) -> None:
    folder, model = both
    found = logits_of(loaded(folder, DenseMethod(torch.float32)), IDS)
    torch.testing.assert_close(found, model(torch.tensor([IDS])).logits[0], atol=1e-4, rtol=1e-4)


def test_a_tower_that_no_config_describes_is_left_out_by_name(both: tuple[Path, Any], tmp_path: Path) -> None:
    folder = tmp_path / "text"
    shutil.copytree(both[0], folder)
    config = json.loads((folder / "config.json").read_text())
    del config["vision_config"]
    (folder / "config.json").write_text(json.dumps(config))
    facts = read_model_facts(str(folder))
    (reason,) = facts.left_out
    assert re.fullmatch(r"\d+ tensors of multi_modal_projector and vision_model: .* reads no images", reason)
    resolved = resolve(EngineConfig.from_flat(model=str(folder)), facts, DEVICES["l4"])
    assert any(reason in choice.reason for choice in resolved.choices)
    assert not any("vision" in name for name in open_checkpoint(folder).names())
    assert any("vision" in name for name in open_checkpoint(both[0]).names())


def test_matrices_behind_the_tower_must_fit_together() -> None:
    config = {"model_type": "llama4", "text_config": TEXT, "vision_config": VISION | {"projector_input_dim": 24}}
    with pytest.raises(CheckpointError, match=r"\(128, 24, 32\).*fit together where they are \(128, 32, 32\)"):
        describe(config, "config.json")


def test_layers_by_their_kind() -> None:
    spec = described()
    assert [layer.attention.chunk for layer in spec.layers] == [16, 16, 16, None]
    assert [layer.attention.rope for layer in spec.layers] == [0, 0, 0, None]
    assert [layer.attention.has_temperature for layer in spec.layers] == [False, False, False, True]
    assert spec.caches[0] == KeyValueCache(2, 16, 16), "no block before a chunk is kept"
    assert spec.caches[3] == KeyValueCache(2, 16, None)


def test_chunks_as_long_as_the_context_are_none() -> None:
    assert described(attention_chunk_size=256).windows == (None,) * 4


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["sliding_attention"] * 4}, "each chunked_attention or full_attention"),
        ({"no_rope_layers": [1, 2, 1, 0]}, "each 0 or 1"),
        ({"moe_layers": "all"}, "moe_layers as a list of layers"),
        ({"num_experts_per_tok": 5}, "gives every token 5 experts"),
    ],
)
def test_what_would_be_computed_wrongly_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        described(**changes)
