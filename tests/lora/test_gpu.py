"""Adapters on a GPU, in CUDA graphs and outside of them: the same greedy tokens as peft's logits give."""

from pathlib import Path

import pytest
import torch

from tests.lora.peft_folders import peft_logits, save_adapter
from tests.lora.test_parity import prompt_of, ref
from tests.parity.runner import Runner
from tests.parity.tiny import make_tiny

pytestmark = pytest.mark.gpu
RANKS = (1, 8, 16, 64)
COUNT = 12


@pytest.mark.parametrize("family", ["llama-mqa-tied-biased", "qwen2", "phi3", "gpt_neox", "mixtral"])
@pytest.mark.parametrize("dora", [False, True])
def test_many_ranks_in_one_batch(family: str, dora: bool, tmp_path: Path) -> None:
    pytest.importorskip("peft")
    if dora and family == "mixtral":
        pytest.skip("DoRA of experts is refused")
    tiny = make_tiny(family, tmp_path / "model")
    folders = [save_adapter(tiny.path, tmp_path / str(rank), seed=rank, rank=rank, use_dora=dora) for rank in RANKS]
    runner = Runner(
        tiny.path,
        device="cuda",
        enable_lora=True,
        max_loras=4,
        max_lora_rank=128,
        lora_targets="experts,embedding,head",
    )
    for turn in range(3):  # the second time a size comes, it is captured
        prompts = [prompt_of(5 + 4 * place, seed=10 * turn + place) for place in range(len(RANKS) + 1)]
        found = runner.run(prompts, COUNT, [*(ref(folder.name, folder) for folder in folders), None])
        for folder, prompt, (tokens, _) in zip([*folders, None], prompts, found, strict=True):
            logits = peft_logits(tiny.path, folder, [*prompt, *tokens])[len(prompt) - 1 : -1]
            chosen = logits.gather(1, torch.tensor(tokens)[:, None])[:, 0]
            assert (logits.max(dim=1).values - chosen).max() < 1e-3
