"""Qwen3-VL with experts as it is published: transformers saves its experts the other way round."""

import shutil
from pathlib import Path

from safetensors.torch import load_file, save_file

from quire import LLM, SamplingParams
from tests.multimodal.tiny_vision import make_vision, picture

GREEDY = SamplingParams(temperature=0, max_tokens=8, ignore_eos=True)


def test_experts_may_lie_either_way(tmp_path: Path) -> None:
    tiny = make_vision("qwen3_vl_moe", tmp_path / "saved")
    published = tmp_path / "published"
    shutil.copytree(tiny.folder, published)
    tensors = load_file(published / "model.safetensors")
    stacked = [name for name in tensors if name.endswith((".experts.gate_up_proj", ".experts.down_proj"))]
    assert {tuple(tensors[name].shape) for name in stacked} == {(6, 48, 32), (6, 32, 24)}
    turned = {name: tensors[name].transpose(1, 2).contiguous() for name in stacked}
    save_file({**tensors, **turned}, published / "model.safetensors", metadata={"format": "pt"})

    image = picture(90, 70)
    llm = LLM(str(published), dtype="float32", gpu_memory_utilization=0.05)
    try:
        prompt = llm.get_tokenizer().encode(f"Here: {tiny.mark} what is it?", add_special_tokens=False)
        given = {"prompt_token_ids": prompt, "multi_modal_data": {"image": [image]}}
        [output] = llm.generate(given, GREEDY, use_tqdm=False)
    finally:
        llm.close()
    assert list(output.outputs[0].token_ids) == tiny.greedy(prompt, [image], 8)
