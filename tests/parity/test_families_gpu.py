"""Every family on a GPU against `transformers` on the CPU: float32 logits, whole prompts, chunks and mixtures."""

from pathlib import Path

import pytest
import torch

from tests.parity.runner import Runner
from tests.parity.test_families import prompt_of
from tests.parity.tiny import CASES, Tiny, make_tiny

pytestmark = pytest.mark.gpu
COUNT = 12


def assert_logits_agree(runner: Runner, tiny: Tiny, prompts: list[list[int]]) -> None:
    """Tokens may differ where two are equally likely, so logits are compared as long as tokens agree."""
    for prompt, (tokens, logits) in zip(prompts, runner.run(prompts, COUNT), strict=True):
        expected_tokens, expected = tiny.greedy(prompt, COUNT)
        agree = next(
            (n for n, pair in enumerate(zip(tokens, expected_tokens, strict=True)) if pair[0] != pair[1]), COUNT
        )
        assert agree >= COUNT // 2
        torch.testing.assert_close(logits[:agree], expected[:agree], atol=5e-3, rtol=0)


@pytest.mark.parametrize("name", CASES)
def test_logits(name: str, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path)
    whole = Runner(tiny.path, device="cuda", max_num_seqs=8)
    assert_logits_agree(whole, tiny, [prompt_of(23, seed=1)])
    assert_logits_agree(whole, tiny, [prompt_of(length, seed=length) for length in (2, 45, 9, 31)])
    assert_logits_agree(
        Runner(tiny.path, device="cuda", max_num_seqs=5, max_num_batched_tokens=19), tiny, [prompt_of(40, seed=2)]
    )
