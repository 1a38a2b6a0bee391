"""Models that run through transformers' modules, on a GPU: with graphs where nothing in them waits for the device."""

from pathlib import Path

import pytest

from tests.parity.runner import Runner
from tests.parity.test_families import prompt_of
from tests.parity.test_families_gpu import assert_tokens_agree
from tests.parity.tiny_fallback import make_tiny_fallback

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", ["mixtral", "olmo3", "glm4", "phi"])
def test_tokens(name: str, tmp_path: Path) -> None:
    tiny = make_tiny_fallback(name, tmp_path)
    runner = Runner(tiny.path, device="cuda", max_num_seqs=8)
    assert_tokens_agree(runner, tiny, [prompt_of(length, seed=length) for length in (2, 45, 9, 31)])
