"""Every family on a GPU, in float32: the greedy tokens of `transformers` on the CPU, however the work is cut up."""

from pathlib import Path

import pytest

from tests.parity.runner import Runner
from tests.parity.test_families import prompt_of
from tests.parity.tiny import CASES, Tiny, make_tiny

pytestmark = pytest.mark.gpu
COUNT = 24


def assert_tokens_agree(runner: Runner, tiny: Tiny, prompts: list[list[int]]) -> None:
    for prompt, (tokens, _) in zip(prompts, runner.run(prompts, COUNT), strict=True):
        assert tokens == tiny.greedy(prompt, COUNT)[0]


@pytest.mark.parametrize("name", CASES)
def test_tokens(name: str, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path)
    whole = Runner(tiny.path, device="cuda", max_num_seqs=8)
    assert_tokens_agree(whole, tiny, [prompt_of(23, seed=1)])
    assert_tokens_agree(whole, tiny, [prompt_of(length, seed=length) for length in (2, 37, 9, 31)])
    in_chunks = Runner(tiny.path, device="cuda", max_num_seqs=5, max_num_batched_tokens=19)
    assert_tokens_agree(in_chunks, tiny, [prompt_of(40, seed=2)])
