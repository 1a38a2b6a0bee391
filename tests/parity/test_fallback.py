"""Models that run through transformers' modules against `transformers` itself, however the work is cut up."""

from pathlib import Path

import pytest
import torch

from quire import LLM, SamplingParams
from quire.core.errors import CheckpointError
from tests.parity.runner import Runner
from tests.parity.test_families import assert_equal, prompt_of
from tests.parity.tiny import Tiny
from tests.parity.tiny_fallback import FEW, MANY, NATIVE, REFUSED, make_tiny_fallback

COUNT = 16


@pytest.fixture(scope="module", params=FEW)
def tiny(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny_fallback(request.param, tmp_path_factory.mktemp(request.param))


def test_a_whole_prompt(tiny: Tiny) -> None:
    runner = Runner(tiny.path)  # the fallback, as there is no family of quire's own
    for length in (1, 23, 70):
        prompt = prompt_of(length, seed=length)
        [found] = runner.run([prompt], COUNT)
        assert_equal(found, tiny.greedy(prompt, COUNT))


def test_chunks_of_seven(tiny: Tiny) -> None:
    prompt = prompt_of(40, seed=1)
    runner = Runner(tiny.path, max_num_seqs=7, max_num_batched_tokens=7)
    [found] = runner.run([prompt], COUNT)
    assert_equal(found, tiny.greedy(prompt, COUNT))


def test_prefix_hits(tiny: Tiny) -> None:
    runner = Runner(tiny.path)
    head = prompt_of(30, seed=2)
    runner.run([head], 4)
    for tail in ([], prompt_of(9, seed=4)):
        [found] = runner.run([head + tail], COUNT)
        assert_equal(found, tiny.greedy(head + tail, COUNT))
    assert runner.scheduler.kv.stats.tokens_saved >= 2 * 29


@pytest.mark.parametrize("mode", ["recompute", "swap"])
def test_after_preemption(tiny: Tiny, mode: str) -> None:
    prompts = [prompt_of(20 + place, seed=10 + place) for place in range(4)]
    groups = len(Runner(tiny.path).scheduler.kv.groups)
    runner = Runner(
        tiny.path,
        num_gpu_blocks_override=28 * groups,
        preemption_mode=mode,
        swap_space=0.01,
        max_model_len=64,
    )
    results = runner.run(prompts, COUNT)
    stats = runner.scheduler.stats
    if all(group.window is None for group in runner.scheduler.kv.groups):
        assert (stats.preempted_swap if mode == "swap" else stats.preempted_recompute) > 0
    for prompt, found in zip(prompts, results, strict=True):
        assert_equal(found, tiny.greedy(prompt, COUNT))


def test_in_a_mixed_batch(tiny: Tiny) -> None:
    check_mixed(tiny)


@pytest.mark.parametrize("model_type", ["llama", "gpt_neox", pytest.param("gemma2", marks=pytest.mark.slow)])
def test_a_family_of_quires_own(tmp_path: Path, model_type: str) -> None:
    check_mixed(make_tiny_fallback(model_type, tmp_path), model_impl="transformers")


def test_16_bits(tmp_path: Path) -> None:
    tiny = make_tiny_fallback("gpt_neox", tmp_path)
    prompt = prompt_of(20, seed=3)
    [(_, logits)] = Runner(tiny.path, dtype="bfloat16").run([prompt], 1)
    _, expected = tiny.greedy(prompt, 1)
    assert torch.cosine_similarity(logits.float(), expected).item() > 0.99


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit.script:DeprecationWarning")  # of importing some of the models
@pytest.mark.parametrize("model_type", [*MANY, *NATIVE])
def test_many(tmp_path: Path, model_type: str) -> None:
    check_mixed(make_tiny_fallback(model_type, tmp_path), model_impl="transformers")


@pytest.mark.parametrize(
    "model_type",
    [
        pytest.param(name, marks=[] if name in ("gpt_oss", "gptj", "nemotron", "doge") else pytest.mark.slow)
        for name in REFUSED
    ],
)
def test_refused(tmp_path: Path, model_type: str) -> None:
    tiny = make_tiny_fallback(model_type, tmp_path)
    with pytest.raises(CheckpointError, match=REFUSED[model_type]):
        Runner(tiny.path, model_impl="transformers")


def test_quires_own_families_only(tmp_path: Path) -> None:
    tiny = make_tiny_fallback("starcoder2", tmp_path)
    with pytest.raises(CheckpointError, match="is of type 'starcoder2'; quire runs llama"):
        Runner(tiny.path, model_impl="quire")


def test_the_engine_chooses_it(tmp_path: Path) -> None:
    tiny = make_tiny_fallback("starcoder2", tmp_path)
    prompt = prompt_of(20, seed=6)
    llm = LLM(str(tiny.path), dtype="float32", skip_tokenizer=True, num_gpu_blocks_override=64)
    params = SamplingParams(max_tokens=8, temperature=0.0, ignore_eos=True)
    [answer] = llm.generate([prompt], params, use_tqdm=False)
    llm.close()
    assert list(answer.outputs[0].token_ids) == tiny.greedy(prompt, 8)[0]


@torch.inference_mode()
def test_hidden_states_for_embeddings(tmp_path: Path) -> None:
    tiny = make_tiny_fallback("olmo3", tmp_path)
    llm = LLM(str(tiny.path), dtype="float32", skip_tokenizer=True, num_gpu_blocks_override=64)
    for text in [prompt_of(length, seed=length) for length in (5, 21)]:
        [found] = llm.encode([text], normalize=False)
        expected = tiny.oracle.base_model(torch.tensor([text]), use_cache=False)[0][0]
        torch.testing.assert_close(torch.tensor(found.outputs.data), expected, atol=1e-4, rtol=0)
    llm.close()


def check_mixed(tiny: Tiny, **settings: str) -> None:
    prompts = [prompt_of(length, seed=20 + length) for length in (2, 45, 9, 31, 17)]
    runner = Runner(tiny.path, max_num_seqs=5, max_num_batched_tokens=19, **settings)
    for prompt, found in zip(prompts, runner.run(prompts, COUNT), strict=True):
        assert_equal(found, tiny.greedy(prompt, COUNT))
