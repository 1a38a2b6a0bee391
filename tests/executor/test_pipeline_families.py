"""The complete matrix: every family and three quantized formats, in two stages, in two stages of two ranks each, and
with experts spread over two ranks. Greedy tokens are those of one process, and each rank holds what was planned."""

from pathlib import Path

import pytest

from quire import LLM, SamplingParams
from quire.config.holding import Holding
from quire.config.memory import weights_by_stage
from tests.executor.ranks import OtherRanks, RankRunner, running
from tests.executor.test_process import SHORT
from tests.executor.test_rank_families import COUNT, PROMPTS
from tests.models.loading.converted import tiny_model, write_gguf
from tests.models.quantized_folders import WEIGHTS_ALONE, write_folder
from tests.parity.tiny import CASES, make_tiny

pytestmark = pytest.mark.slow

STAGES = {"pipeline_parallel_size": 2}
BOTH = {"pipeline_parallel_size": 2, "tensor_parallel_size": 2}
SPREAD = {"tensor_parallel_size": 2, "enable_expert_parallel": True}
WITH_EXPERTS = [
    *("mixtral", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "glm4_moe", "llama4", "llama4-maverick"),
    *("gpt_oss", "phimoe", "deepseek_v2-lite", "deepseek_v2", "deepseek_v3"),
]
QUANTIZED = ["gptq 4 bits 64", "awq 64", "packed 4 bits 32"]


def check_planned(runner: RankRunner) -> None:
    """Ranks are counted from the last stage on, and the first rank of each stage is its fullest."""
    ranks = runner.resolved.tensor_parallel_size
    planned = weights_by_stage(runner.facts, Holding("float32"), runner.asked.parallel)
    assert max(planned) == runner.resolved.weight_bytes
    held = [max(runner.weight_bytes[first : first + ranks]) for first in range(0, len(runner.weight_bytes), ranks)]
    assert held[::-1] == pytest.approx(planned, rel=0.02)


@pytest.mark.parametrize("settings", [STAGES, BOTH], ids=["pp2", "tp2-pp2"])
@pytest.mark.parametrize("name", CASES)
def test_families(name: str, settings: dict[str, int], others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path)
    with running(tiny.path) as one:
        expected = one.run(PROMPTS, COUNT)
    with running(tiny.path, others, **settings) as several:
        assert several.run(PROMPTS, COUNT) == expected
        check_planned(several)


@pytest.mark.parametrize("name", WITH_EXPERTS)
def test_experts(name: str, others: OtherRanks, tmp_path: Path) -> None:
    tiny = make_tiny(name, tmp_path)
    with running(tiny.path) as one:
        expected = one.run(PROMPTS, COUNT)
    with running(tiny.path, others, **SPREAD) as spread:
        assert spread.run(PROMPTS, COUNT) == expected
        check_planned(spread)


@pytest.mark.parametrize("settings", [STAGES, BOTH], ids=["pp2", "tp2-pp2"])
@pytest.mark.parametrize("name", QUANTIZED)
def test_quantized_folders(name: str, settings: dict[str, int], others: OtherRanks, tmp_path: Path) -> None:
    check_same(write_folder(tmp_path / "folder", WEIGHTS_ALONE[name]), others, settings)


@pytest.mark.parametrize(
    ("name", "settings"), [("llama", STAGES), ("llama", BOTH), ("qwen3moe", STAGES), ("qwen3moe", SPREAD)]
)
@pytest.mark.parametrize("held", ["expand", "keep"])
def test_gguf(name: str, settings: dict[str, int], held: str, others: OtherRanks, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "model.gguf", name, tiny_model(name), "Q8_0")
    check_same(path, others, settings, packed_weights=held)


def check_same(path: Path, others: OtherRanks, settings: dict[str, int], **both: str) -> None:
    with running(path, **both) as one:
        expected = one.run(SHORT, COUNT)
    with running(path, others, **settings, **both) as several:
        assert several.run(SHORT, COUNT) == expected


@pytest.mark.parametrize("ranks", [1, 3])
def test_the_default_model_in_two_stages(ranks: int) -> None:
    """It has nine heads, which two ranks cannot share."""
    settings = {"cpu_compute": "exact", "dtype": "float32", "max_model_len": 512}
    prompts = [f"{start} {number}" for number in range(5) for start in ("Once", "The sum of 2 and", "def", "Dear")]
    greedy = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    texts = []
    for several in ({}, {"pipeline_parallel_size": 2, "tensor_parallel_size": ranks}):
        llm = LLM("smollm2", **several, **settings)
        texts.append([output.outputs[0].token_ids for output in llm.generate(prompts, greedy, use_tqdm=False)])
        llm.close()
    assert len(texts[0]) == 20
    assert texts[0] == texts[1]
