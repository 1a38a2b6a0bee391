"""Adapters of models that read images: those of the language part, under the names that transformers gives them."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from quire import LLM, LoRARequest, SamplingParams
from tests.multimodal.tiny_vision import make_vision, picture

GREEDY = SamplingParams(temperature=0, max_tokens=16, ignore_eos=True)


@pytest.mark.parametrize("name", ["qwen2_5_vl", "llava"])
def test_answers_about_an_image_are_pefts(name: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    tiny = make_vision(name, tmp_path / "model")
    images = [picture(60, 90, 1)]
    llm = LLM(str(tiny.folder), dtype="float32", gpu_memory_utilization=0.05, enable_lora=True, max_lora_rank=16)
    tokenizer = llm.get_tokenizer()
    prompt = tokenizer.encode(f"look {tiny.mark} what is that")
    given = {"prompt_token_ids": prompt, "multi_modal_data": {"image": images}}
    plain = tiny.greedy(prompt, images, 16)
    [without] = llm.generate(given, GREEDY, use_tqdm=False)

    targets = r".*language_model.*\.(q_proj|v_proj|o_proj|gate_proj|down_proj)"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted = peft.get_peft_model(tiny.model, peft.LoraConfig(r=8, lora_alpha=16, target_modules=targets))
    generator = torch.Generator().manual_seed(3)
    for parameter_name, parameter in adapted.named_parameters():
        if "lora_" in parameter_name:
            parameter.data = 0.2 * torch.randn(parameter.shape, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        adapted.save_pretrained(tmp_path / "adapter")
    wanted = replace(tiny, model=adapted).greedy(prompt, images, 16)

    [found] = llm.generate(given, GREEDY, use_tqdm=False, lora_request=LoRARequest("a", 1, str(tmp_path / "adapter")))
    llm.close()
    assert wanted != plain, "the adapter changes nothing"
    assert list(without.outputs[0].token_ids) == plain
    assert list(found.outputs[0].token_ids) == wanted
