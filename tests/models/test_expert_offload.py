"""Models whose experts stay in host memory compute what they do with all of them on the device."""

from contextlib import closing
from pathlib import Path

import pytest
import torch

from quire import LLM, SamplingParams
from quire.core.expert_load import CacheCounts
from quire.layers.expert_cache import ExpertCache
from quire.layers.policy import WeightPolicy
from quire.layers.quant.base import LinearMethod
from quire.layers.quant.quantized import QuantizedMethod
from quire.models.build import build_model
from quire.models.language_model import LanguageModel
from quire.models.load import load_weights
from quire.models.loading.checkpoint import open_checkpoint
from quire.spec.experts import ExpertsSpec
from quire.spec.quantization import online_schemes
from tests.models.running import logits_of
from tests.parity.tiny import make_tiny
from tests.tiny_model import make_text_model

CPU = torch.device("cpu")
IDS = [5, 17, 3, 80, 41, 2, 66, 9, 12]


def loaded(folder: Path, slots: int, method: LinearMethod | None = None) -> LanguageModel:
    checkpoint = open_checkpoint(folder)
    model = build_model(checkpoint.spec, WeightPolicy(torch.float32, CPU, method, expert_slots=slots))
    load_weights(model, checkpoint)
    return model


def counts(model: LanguageModel) -> CacheCounts:
    return sum((part.counts for part in model.modules() if isinstance(part, ExpertCache)), CacheCounts())


@pytest.mark.parametrize("name", ["qwen2_moe", "llama4", "gpt_oss", "deepseek_v3"])
@pytest.mark.parametrize("more", [0, 1])
def test_as_few_experts_as_a_token_has_or_one_more(name: str, more: int, tmp_path: Path) -> None:
    """A prompt takes rounds; single tokens do not."""
    folder = make_tiny(name, tmp_path).path
    layers = open_checkpoint(folder).spec.layers
    top_k = max(layer.mlp.routing.top_k for layer in layers if isinstance(layer.mlp, ExpertsSpec))
    whole, partial = loaded(folder, 0), loaded(folder, top_k + more)
    for ids in (IDS, IDS[:1], IDS[4:5], IDS):
        assert torch.equal(logits_of(partial, ids), logits_of(whole, ids))
    found = counts(partial)
    assert found.hits > 0
    assert found.evictions > 0
    assert counts(whole) == CacheCounts()


def test_quantized_experts_stay_quantized(tmp_path: Path) -> None:
    folder = make_tiny("qwen2_moe", tmp_path).path
    schemes = online_schemes(open_checkpoint(folder).spec, "int8")
    whole, partial = (loaded(folder, slots, QuantizedMethod(schemes, torch.float32)) for slots in (0, 4))
    assert torch.equal(logits_of(partial, IDS), logits_of(whole, IDS))


@pytest.mark.gpu
@pytest.mark.parametrize("name", ["qwen3_moe", "deepseek_v2-lite"])
def test_a_gpu_gives_the_same_tokens(name: str, tmp_path: Path) -> None:
    make_text_model(tmp_path, name)
    asked = {"model": str(tmp_path), "dtype": "float32", "max_num_seqs": 4, "gpu_memory_utilization": 0.1}
    prompts, params = ["abcdef", "x", "hello there"], SamplingParams(max_tokens=24, temperature=0.0, ignore_eos=True)
    with closing(LLM(**asked)) as llm:
        expected = [each.outputs[0].token_ids for each in llm.generate(prompts, params)]
    with closing(LLM(**asked, offload_gb=1.0)) as llm:
        assert [each.outputs[0].token_ids for each in llm.generate(prompts, params)] == expected
        assert [each.outputs[0].token_ids for each in llm.generate(prompts, params)] == expected
