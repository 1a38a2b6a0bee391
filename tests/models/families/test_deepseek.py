"""DeepSeek's forms that parity tests of whole engines do not have, and configs that are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig

from quire.core.errors import CheckpointError
from quire.layers.policy import WeightPolicy
from quire.layers.quant.base import LinearMethod
from quire.layers.quant.dense import DenseMethod
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.build import build_model
from quire.models.language_model import LanguageModel
from quire.models.latent_attention import LatentAttention
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_checkpoint
from quire.models.registry import describe
from quire.spec.quantization import online_schemes
from tests.models.quantized_folders import fp8
from tests.models.running import logits_of
from tests.parity.tiny import CASES, SHAPE, Tiny, make_tiny, write_tiny

CPU = torch.device("cpu")
IDS = [place * 7 % 199 for place in range(40)]
SMALL: dict[str, Any] = {**SHAPE, **CASES["deepseek_v3"], "architectures": ["DeepseekV3ForCausalLM"]}


def loaded(folder: Path, method: LinearMethod | None = None) -> LanguageModel:
    checkpoint = open_checkpoint(folder)
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, CPU, method))
    load_weights(model, checkpoint)
    return model


@torch.no_grad()
def expected_of(tiny: Tiny) -> torch.Tensor:
    logits: torch.Tensor = tiny.oracle(torch.tensor([IDS])).logits[0]
    return logits


def written(folder: Path, **changes: Any) -> Tiny:
    given = {**SMALL, **changes}
    return write_tiny(AutoConfig.for_model(given.pop("model_type"), **given), folder, seed=3)


def test_halves_that_turn_instead_of_pairs(tmp_path: Path) -> None:
    """Beside queries without a latent, and weights of experts that are not renormalized."""
    changes = {"rope_interleave": False, "q_lora_rank": None, "norm_topk_prob": False, "attention_bias": False}
    tiny = written(tmp_path, **changes)
    torch.testing.assert_close(logits_of(loaded(tmp_path), IDS), expected_of(tiny), atol=1e-4, rtol=0)


def test_layers_that_draft_are_left_in_their_files(tmp_path: Path) -> None:
    tiny = written(tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    tensors |= {"model.layers.4.eh_proj.weight": torch.zeros(64, 128), "model.layers.4.enorm.weight": torch.ones(64)}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(
        CheckpointError, match=r"model.layers.4.e.* has no place in a DeepseekV3ForCausalLM of 4 layers"
    ):
        open_checkpoint(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | {"num_nextn_predict_layers": 1}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert not [name for name in open_checkpoint(tmp_path).names() if ".layers.4." in name]
    torch.testing.assert_close(logits_of(loaded(tmp_path), IDS), expected_of(tiny), atol=1e-4, rtol=0)


@pytest.mark.parametrize("block", [(128, 128), (24, 32)], ids=str)
def test_weights_in_blocks_of_fp8(tmp_path: Path, block: tuple[int, int]) -> None:
    """As V3 was released: every matrix of a layer but the router has a scale for each block."""
    tiny = written(tmp_path)
    form, tensors = fp8(block), {}
    means = load_file(tmp_path / "model.safetensors")
    for name, values in list(means.items()):
        if ".layers." not in name or values.dim() < 2 or name.endswith(".gate.weight"):
            tensors[name] = values
            continue
        stored, meant = form.quantize(values.float().numpy(), None)  # type: ignore[arg-type]
        tensors |= {f"{name.removesuffix('weight')}{ending}": each for ending, each in stored.items()}
        means[name] = torch.from_numpy(meant)
    save_file(means, tmp_path / "model.safetensors")
    expected = logits_of(loaded(tmp_path), IDS)
    assert not torch.allclose(expected, expected_of(tiny), atol=1e-3), "blocks change nothing"
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text()) | {"quantization_config": form.config}
    (tmp_path / "config.json").write_text(json.dumps(config))
    schemes = open_checkpoint(tmp_path).schemes
    found = logits_of(loaded(tmp_path, QuantizedMethod(schemes, torch.float32, expand=True)), IDS)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    quantized = loaded(tmp_path, QuantizedMethod(schemes, torch.float32))
    # activations are rounded too, and some tokens choose other experts for it
    assert 0 < (logits_of(quantized, IDS) - expected).norm() / expected.norm() < 0.4
    for attention in (part for part in quantized.modules() if isinstance(part, LatentAttention)):
        assert attention._up.values.dtype == torch.float32, "ops take it apart"


def test_what_ops_take_apart_is_not_quantized_on_the_way(tmp_path: Path) -> None:
    make_tiny("deepseek_v2-lite", tmp_path)
    schemes = online_schemes(open_checkpoint(tmp_path).spec, "int8")
    assert any(name.endswith(".q_proj") for name in schemes)
    assert not any(name.endswith((".kv_b_proj", ".mlp.gate")) for name in schemes)
    model = loaded(tmp_path, QuantizedMethod(schemes, torch.float32))
    expected = logits_of(loaded(tmp_path, DenseMethod(torch.float32)), IDS)
    assert 0 < (logits_of(model, IDS) - expected).norm() / expected.norm() < 0.3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "deepseek_v2", "norm_topk_prob": True}, "norm_topk_prob, which DeepSeek V2's own code"),
        (
            {"model_type": "deepseek_v2", "topk_method": "noaux_tc"},
            "topk_method 'noaux_tc'; .* greedy and group_limited",
        ),
        ({"model_type": "deepseek_v2", "scoring_func": "sigmoid"}, "scoring_func 'sigmoid'; .* quire runs softmax"),
        ({"scoring_func": "softmax"}, "scoring_func 'softmax'; .* quire runs sigmoid"),
        ({"topk_method": "greedy"}, "topk_method 'greedy'; .* quire runs noaux_tc"),
        ({"moe_layer_freq": 2}, "experts in every 2th layer"),
        ({"q_lora_rank": None}, "attention_bias but no q_lora_rank"),
        ({"n_group": 3}, "8 experts in 3 groups"),
        ({"qk_rope_head_dim": "64"}, "gives head_dim as '64'"),
    ],
)
def test_configs_that_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        describe({**SMALL, **changes}, "config.json")


def test_modules_of_transformers_are_refused() -> None:
    with pytest.raises(CheckpointError, match="by its own modules alone"):
        describe(SMALL, "config.json", "transformers")


def test_magnitudes_of_yarn_sharpen_all_scores() -> None:
    plain, sharper = (
        describe({**SMALL, "rope_scaling": scaling}, "config.json").layers[0].attention.scale
        for scaling in (None, {"type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 1.0})
    )
    assert plain == pytest.approx(24**-0.5)
    assert sharper / plain == pytest.approx((0.1 * 3.6888794541139363 + 1) ** 2)
