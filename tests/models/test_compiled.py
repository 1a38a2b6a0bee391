"""torch.compile around attention: the same answers, and nothing is compiled once requests come."""

from pathlib import Path

import pytest
import torch

from quire import LLM, ConfigError, SamplingParams
from quire.models import compiled
from quire.ops.cpu import native
from tests.rarely import rarely
from tests.tiny_model import make_text_model

# torch, on Python 3.13.0 alone; later ones do not have the bug
pytestmark = pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0:RuntimeWarning")

PROMPTS = ["hello there you", "abc", "x" * 40, "pq", "y" * 23]
PARAMS = SamplingParams(temperature=0.0, max_tokens=12, ignore_eos=True)


def start(folder: Path, **settings: object) -> LLM:
    torch_computes = {} if torch.cuda.is_available() else {"cpu_compute": "exact"}
    common = {"dtype": "float32", "block_size": 4, "num_gpu_blocks_override": 512, **torch_computes}
    return LLM(str(folder), **common, max_num_batched_tokens=30, max_num_seqs=4, **settings)


def answers(llm: LLM) -> list[list[list[int]]]:
    """Alone, all together, and with prompts that take several steps."""
    groups = [PROMPTS[:1], PROMPTS, PROMPTS[1:3], ["z" * 90]]
    return [[output.outputs[0].token_ids for output in llm.generate(g, PARAMS, use_tqdm=False)] for g in groups]


def num_compiled() -> int:
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def check(folder: Path, name: str) -> None:
    make_text_model(folder, name)
    plain = start(folder)
    expected = answers(plain)
    plain.close()
    torch._dynamo.reset()
    llm = start(folder, compile=True)
    before = num_compiled()
    assert before > 0
    try:
        assert answers(llm) == expected
        assert num_compiled() == before
    finally:
        llm.close()


@pytest.mark.parametrize("name", rarely(["llama", "qwen3", "gemma2", "gpt2"], every=2))
def test_answers_stay_and_no_step_compiles(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "aot_eager")
    check(tmp_path, name)


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["llama", "qwen3"])
def test_graphs_are_captured_of_what_was_compiled(name: str, tmp_path: Path) -> None:
    """The real compiler on a GPU: sizes of decodes come again and again, so their steps are graphs in the end."""
    check(tmp_path, name)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch, where its own compiler imports it
def test_with_the_real_compiler(tmp_path: Path) -> None:
    check(tmp_path, "llama")


@pytest.mark.skipif(
    native.load() is None or torch.cuda.is_available(), reason="without the native core there is nothing to refuse"
)
def test_settings_that_do_not_go_with_it_are_refused(tmp_path: Path) -> None:
    make_text_model(tmp_path, "llama")
    with pytest.raises(ConfigError, match="--cpu-compute exact"):
        LLM(str(tmp_path), compile=True)
    with pytest.raises(ConfigError, match="raise --max-model-len"):
        start(tmp_path, compile=True, max_model_len=8)
