"""Images on a GPU: the same answers as on a CPU, with graphs of decode steps and with positions of three axes."""

import pytest
import torch

from quire import LLM, SamplingParams
from tests.multimodal.tiny_vision import FAMILIES, make_vision, picture

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")]


@pytest.mark.parametrize("name", FAMILIES)
def test_answers_are_those_of_transformers(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    tiny = make_vision(name, tmp_path_factory.mktemp(name))
    llm = LLM(str(tiny.folder), dtype="float32", gpu_memory_utilization=0.2, max_num_batched_tokens=64)
    try:
        images = [picture(90, 161, 1), picture(221, 60, 2)]
        text = f"Here is one: {tiny.mark} and another: {tiny.mark} what are they?"
        prompt = llm.get_tokenizer().encode(text, add_special_tokens=False)
        # short: random weights soon repeat themselves, with two words all but equally likely
        params = SamplingParams(temperature=0, max_tokens=9, ignore_eos=True)
        given = {"prompt_token_ids": prompt, "multi_modal_data": {"image": images}}
        alone = {"prompt_token_ids": prompt[:4]}
        found = [list(output.outputs[0].token_ids) for output in llm.generate([given, alone], params, use_tqdm=False)]
        assert found == [tiny.greedy(prompt, images, 9), tiny.greedy(prompt[:4], [], 9)]
    finally:
        llm.close()
