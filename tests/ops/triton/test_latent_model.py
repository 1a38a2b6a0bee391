"""A whole model with latent attention by its kernels: chunks, mixtures and prefix hits as its engine cuts them up."""

from pathlib import Path

import pytest

from quire.ops import dispatch
from tests.ops.triton.device import DEVICE, needs_triton
from tests.parity.runner import Runner
from tests.parity.test_families import assert_equal, prompt_of
from tests.parity.tiny import make_tiny

pytestmark = [needs_triton, pytest.mark.slow]


@pytest.mark.skipif(DEVICE.type == "cuda", reason="there tests/parity/test_families_gpu.py does the same")
@pytest.mark.parametrize("name", ["deepseek_v2-lite", "deepseek_v3"])
def test_in_the_interpreter(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for op in ("prepare_latent", "latent_attention"):
        monkeypatch.setitem(dispatch.TABLE, op, ("cpu",))
        monkeypatch.setitem(dispatch._ELSEWHERE, (op, "cpu"), f"quire.ops.triton.{op}:{op}")
    dispatch.implementation.cache_clear()
    try:
        tiny = make_tiny(name, tmp_path)
        runner = Runner(tmp_path, max_num_seqs=3, max_num_batched_tokens=12)
        prompts = [prompt_of(length, seed=length) for length in (2, 17, 9)]
        for prompt, found in zip(prompts, runner.run(prompts, 5), strict=True):
            assert_equal(found, tiny.greedy(prompt, 5))
        longer = [*prompts[1], 5, 6, 7]
        [found] = runner.run([longer], 4)
        assert_equal(found, tiny.greedy(longer, 4))
        assert runner.scheduler.kv.stats.tokens_saved > 0
    finally:
        dispatch.implementation.cache_clear()
