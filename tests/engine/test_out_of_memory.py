"""Memory that runs out inside a real step: everything is answered as if it had not, and nothing is left behind."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from quire import LLM, SamplingParams
from quire.core.errors import RequestFailed
from quire.kvcache.invariants import check
from quire.models.language_model import LanguageModel
from quire.sampling.sampler import Sampler
from quire.worker.worker import Worker
from tests.tiny_model import make_text_model

PROMPTS = [f"prompt number {place} " * (1 + place % 3) for place in range(12)]
PARAMS = [
    SamplingParams(temperature=0.8 * (place % 2), seed=place, max_tokens=10 + place % 5, ignore_eos=True)
    for place in range(len(PROMPTS))
]
Part = tuple[type, str]


on_a_cpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU's numbers depend on who is in a step")


@pytest.fixture(scope="module", params=["exact", "fast"])
def llm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LLM]:
    tiny = make_text_model(tmp_path_factory.mktemp("memory"))
    llm = LLM(str(tiny.path), cpu_compute=request.param, block_size=4, num_gpu_blocks_override=512)
    yield llm
    llm.close()


def tokens_of(llm: LLM) -> list[list[int]]:
    return [output.outputs[0].token_ids for output in llm.generate(PROMPTS, PARAMS, use_tqdm=False)]


def full(monkeypatch: pytest.MonkeyPatch, part: Part, fits: Callable[..., bool]) -> list[int]:
    """Let a part of every step run out of memory where its inputs do not fit; returns how many did not, by step."""
    owner, name = part
    real = getattr(owner, name)
    sizes: list[int] = []

    def limited(self: object, first: torch.Tensor, *args: object, **kwargs: object) -> object:
        if not fits(first):
            sizes.append(len(first))
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return real(self, first, *args, **kwargs)

    monkeypatch.setattr(owner, name, limited)
    return sizes


@on_a_cpu
@pytest.mark.parametrize("part", [(LanguageModel, "embed"), (Sampler, "sample")], ids=["forward", "sampling"])
def test_steps_that_do_not_fit_change_no_answer(
    llm: LLM, part: Part, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    expected = tokens_of(llm)
    before = llm._engine.loop.num_out_of_memory
    sizes = full(monkeypatch, part, lambda first: len(first) <= 5)
    with caplog.at_level(logging.WARNING, logger="quire.engine.loop"):
        assert tokens_of(llm) == expected
    assert sizes
    assert llm._engine.loop.num_out_of_memory - before == len(sizes)
    assert "ran out of device memory" in caplog.text
    assert "the next steps have at most" in caplog.text
    kv = llm._engine.loop.scheduler.kv
    check(kv)
    assert kv.device.pool.num_used == 0


@on_a_cpu
def test_a_request_that_fits_nowhere_ends_alone(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tokens_of(llm)
    start = Worker.start
    rows: dict[int, int] = {}

    def limited(self: Worker, plan: object) -> object:
        rows.update((admission.row, admission.params.seed) for admission in plan.admitted)
        running = start(self, plan)  # it ran out at its very end
        if 7 in (rows[row] for row in plan.rows):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return running

    monkeypatch.setattr(Worker, "start", limited)
    outputs = [output.outputs[0] for output in llm.generate(PROMPTS, PARAMS, use_tqdm=False)]
    assert [place for place, output in enumerate(outputs) if output.finish_reason == "error"] == [7]
    assert "--gpu-memory-utilization" in outputs[7].error
    others = [place for place in range(len(PROMPTS)) if place != 7]
    assert [outputs[place].token_ids for place in others] == [expected[place] for place in others]
    monkeypatch.undo()
    assert tokens_of(llm) == expected


@on_a_cpu
def test_an_embedding_that_does_not_fit_is_told(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    [expected] = llm.embed("hello")
    full(monkeypatch, (LanguageModel, "embed"), lambda first: False)
    with pytest.raises(RequestFailed, match="--gpu-memory-utilization"):
        llm.embed("hello")
    monkeypatch.undo()
    [again] = llm.embed("hello")
    assert again.outputs.embedding == pytest.approx(expected.outputs.embedding, abs=1e-4)  # its prefix is cached now


@pytest.mark.gpu
def test_a_gpu_that_is_nearly_full(tmp_path: Path) -> None:
    """Torch may take no more than it has, and a little: large steps do not fit, small ones do."""
    make_text_model(tmp_path)
    llm = LLM(str(tmp_path), dtype="float32", num_gpu_blocks_override=4096, enable_prefix_caching=False)
    prompts = ["x" * (150 + place % 50) for place in range(64)]
    params = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)

    def answers() -> list[list[int]]:
        return [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)]

    expected = answers()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        # a tensor above 1 MiB takes a segment of 20, so steps of some thousand tokens do not fit
        torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (12 << 20)) / total)
        found = answers()
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert llm._engine.loop.num_out_of_memory > 0
    assert [len(tokens) for tokens in found] == [8] * len(prompts)
    same = sum(one == other for one, other in zip(found, expected, strict=True))
    assert same >= len(prompts) * 3 // 4  # float32, so only near ties may fall otherwise in steps of another size
    assert llm._engine.loop.scheduler.kv.device.pool.num_used == 0
    llm.close()
