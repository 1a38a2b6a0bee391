"""Drafts in answers about images: the same texts as without, also where tokens have positions of three axes."""

from pathlib import Path
from typing import Any

import pytest

from quire import LLM, SamplingParams
from tests.multimodal.tiny_vision import TinyVision, make_vision, picture
from tests.rarely import rarely
from tests.scheduler.bookkeeping import AlwaysAll

GREEDY = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
SETTINGS: dict[str, Any] = {"dtype": "float32", "gpu_memory_utilization": 0.05, "enable_prefix_caching": False}


@pytest.fixture(scope="module", params=rarely(["qwen2_5_vl", "qwen2_vl", "qwen3_vl", "llava"], every=4))
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TinyVision:
    return make_vision(request.param, tmp_path_factory.mktemp(request.param))


def drafting(method: str, folder: Path) -> dict[str, Any]:
    how = {"model": str(folder)} if method == "draft_model" else {}
    return {"method": method, "num_speculative_tokens": 3, **how}


@pytest.mark.parametrize("method", ["ngram", "suffix", "draft_model"])
@pytest.mark.parametrize("budget", [256, 17])
def test_answers_are_those_without(tiny: TinyVision, method: str, budget: int) -> None:
    """Prompts whole, and in chunks beside the drafts of others."""
    counts = (0, 1, 2, 1)
    pictures = [[picture(50 + 20 * place, 70, place + number) for number in range(n)] for place, n in enumerate(counts)]
    limits = {"max_num_batched_tokens": budget, "max_num_seqs": 4}
    llm = LLM(str(tiny.folder), speculative_config=drafting(method, tiny.folder), **limits, **SETTINGS)
    try:
        llm._engine.loop.scheduler._draft_length = AlwaysAll(3)
        prompts = [tiny.prompt(count) for count in counts]
        given = [
            {"prompt_token_ids": prompt, "multi_modal_data": {"image": images}}
            for prompt, images in zip(prompts, pictures, strict=True)
        ]
        found = [list(output.outputs[0].token_ids) for output in llm.generate(given, GREEDY, use_tqdm=False)]
        assert llm._engine.loop.scheduler.drafts.tokens > 20
    finally:
        llm.close()
    assert found == [tiny.greedy(prompt, images) for prompt, images in zip(prompts, pictures, strict=True)]
