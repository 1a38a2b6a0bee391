"""Template plugins on a GPU: inside CUDA graphs where they say so, beside them where they do not."""

from pathlib import Path
from typing import Any

import pytest
import torch

from quire.core.sampling_params import SamplingParams
from quire.engine.llm import LLM
from tests.core.package_shelf import PackageShelf

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
TEMPLATES = Path(__file__).parents[2] / "examples" / "plugins"
GREEDY: dict[str, Any] = {"temperature": 0, "ignore_eos": True, "max_tokens": 48}
PROMPT = "a b a b a b"


def tokens(llm: LLM, *asked: dict[str, Any] | None) -> list[list[int]]:
    params = [SamplingParams(**GREEDY, logits_processor_args=each) for each in asked]
    return [list(out.outputs[0].token_ids) for out in llm.generate([PROMPT] * len(asked), params, use_tqdm=False)]


def test_logits_processors_in_graphs_and_beside_them(packages: PackageShelf, tiny_chat: Path) -> None:
    module = "quire_logits_examples"
    code = (TEMPLATES / "logits_processor" / f"{module}.py").read_text()
    points = {"no-repeat": f"{module}:NoRepeat", "favour": f"{module}:Favour"}
    packages.add(module, {"quire.logits_processors": points}, code, api="")
    llm = LLM(str(tiny_chat), dtype="float32", num_gpu_blocks_override=256, logits_processors="no-repeat,favour")
    favour, no_repeat = {"favour": {"token": 65, "by": 100}}, {"no-repeat": {"size": 2}}
    plain = tokens(llm, None)[0]
    for _ in range(2):  # a graph is captured when its size comes again
        assert tokens(llm, None, favour) == [plain, [65] * 48]
        together = tokens(llm, None, no_repeat, favour)
        assert together[0] == plain
        assert together[2] == [65] * 48
        pairs = list(zip(together[1], together[1][1:], strict=False))
        assert len(set(pairs)) == len(pairs)
    llm.close()


def test_proposer_in_a_graph(packages: PackageShelf, tiny_chat: Path) -> None:
    module = "quire_say_it_again"
    code = (TEMPLATES / "proposer" / f"{module}.py").read_text()
    packages.add(module, {"quire.proposers": {"say-it-again": f"{module}:SayItAgain"}}, code, api="")
    plain = LLM(str(tiny_chat), dtype="float32", num_gpu_blocks_override=256)
    expected = tokens(plain, None, None)
    plain.close()
    speculation = {"method": "say-it-again", "num_speculative_tokens": 3}
    llm = LLM(str(tiny_chat), dtype="float32", num_gpu_blocks_override=256, speculative_config=speculation)
    assert [tokens(llm, None, None) for _ in range(2)] == [expected] * 2
    llm.close()
