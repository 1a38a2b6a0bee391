"""Embeddings against `transformers`: encoders and decoders, every pooling, however the texts are batched."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quire.config.engine import EngineConfig
from quire.config.resolve import resolve
from quire.config.resolve_embedding import resolve_embedding
from quire.core.pooling import POOLINGS, Pooling, Readout, Rows
from quire.core.pooling_params import PoolingParams
from quire.engine.assemble import make_scheduler
from quire.engine.engine import Engine
from quire.engine.loop import EngineLoop
from quire.executor.inline import local_device_facts, start_inline, start_inline_pooling
from quire.models.loading.header import read_model_facts
from tests.parity.tiny import make_tiny
from tests.parity.tiny_encoders import ENCODERS, VOCABULARY, make_encoder
from tests.rarely import rarely

DECODERS = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "phi3-longrope", "llama-rope-dynamic", "gpt2")
LENGTHS = (5, 70, 1, 33, 16, 17, 80)


class Case:
    """A checkpoint on disk and its oracle, without any head. Models that only read compute prompts whole."""

    def __init__(self, name: str, path: Path, *, only_reads: bool = True) -> None:
        self.path = path
        self.only_reads = only_reads
        self.is_encoder = name in ENCODERS
        self._oracle: Any = make_encoder(name, path) if self.is_encoder else make_tiny(name, path).oracle.base_model

    @torch.no_grad()
    def hidden(self, prompt: list[int]) -> torch.Tensor:
        hidden: torch.Tensor = self._oracle(torch.tensor([prompt])).last_hidden_state[0]
        return hidden

    def expected(self, prompt: list[int], pooling: Pooling, *, normalized: bool = True) -> torch.Tensor:
        hidden = self.hidden(prompt)
        vector = {"mean": hidden.mean(0), "last": hidden[-1], "cls": hidden[0]}[pooling]
        return vector / vector.norm() if normalized else vector


class Reader:
    """quire's model of a case, with steps of at most so many tokens."""

    def __init__(self, case: Case, *, seqs: int = 16, tokens: int = 4096) -> None:
        settings: dict[str, object] = {} if case.only_reads else {"num_gpu_blocks_override": 64, "cpu_compute": "exact"}
        asked = EngineConfig.from_flat(model=str(case.path), dtype="float32", **settings)
        facts = read_model_facts(str(case.path))
        decide = resolve_embedding if case.only_reads else resolve
        resolved = decide(asked, facts, local_device_facts())
        limits = replace(resolved.limits, max_num_seqs=seqs, max_num_batched_tokens=tokens)
        resolved = replace(resolved, limits=limits)
        start = start_inline_pooling if case.only_reads else start_inline
        loop = EngineLoop(make_scheduler(resolved), start(case.path, resolved))
        self._usual: Pooling = "mean" if case.is_encoder else "last"
        self._engine = Engine(loop, None, resolved, facts)

    def embed(
        self, prompts: list[list[int]], pooling: Pooling | None = None, *, normalized: bool = True
    ) -> list[list[float]]:
        return [row for [row] in self.read(prompts, "embed", pooling, normalized=normalized)]

    def read(
        self, prompts: list[list[int]], readout: Readout, pooling: Pooling | None = None, *, normalized: bool = True
    ) -> list[Rows]:
        asked = PoolingParams(readout, pooling or self._usual, normalized)
        found = self._engine.pool(prompts, [asked] * len(prompts))
        assert self._engine.loop.scheduler.kv.device.pool.num_used == 0
        return found


@pytest.fixture(scope="module", params=[*ENCODERS, *DECODERS, *(f"{name} that generates" for name in DECODERS)])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, _, generates = request.param.partition(" ")
    return Case(name, tmp_path_factory.mktemp(name), only_reads=not generates)


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in LENGTHS]


def assert_close(found: list[list[float]], expected: list[torch.Tensor]) -> None:
    torch.testing.assert_close(torch.tensor(found), torch.stack(expected), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling(case: Case, pooling: Pooling) -> None:
    expected = [case.expected(prompt, pooling) for prompt in prompts()]
    assert_close(Reader(case).embed(prompts(), pooling), expected)


def test_without_normalisation(case: Case) -> None:
    expected = [case.expected(prompt, "mean", normalized=False) for prompt in prompts()]
    assert_close(Reader(case).embed(prompts(), "mean", normalized=False), expected)


def test_the_usual_pooling(case: Case) -> None:
    usual: Pooling = "mean" if case.is_encoder else "last"
    assert_close(Reader(case).embed(prompts()), [case.expected(prompt, usual) for prompt in prompts()])


@pytest.mark.parametrize("tokens", rarely([20, 1, 64, 90], every=4))
def test_small_batches_give_the_same(case: Case, tokens: int) -> None:
    """Decoders run a sequence beyond the limit in parts."""
    expected = [case.expected(prompt, "mean") for prompt in prompts()]
    assert_close(Reader(case, seqs=3, tokens=tokens).embed(prompts(), "mean"), expected)


@pytest.mark.parametrize("tokens", [20, 4096])
def test_vectors_of_every_token(case: Case, tokens: int) -> None:
    found = Reader(case, seqs=3, tokens=tokens).read(prompts(), "token_embed", normalized=False)
    for prompt, rows in zip(prompts(), found, strict=True):
        assert_close(rows, list(case.hidden(prompt)))


def test_alone_or_in_a_batch(case: Case) -> None:
    model = Reader(case)
    alone = [torch.tensor(model.embed([prompt])[0]) for prompt in prompts()]
    assert_close(model.embed(prompts()), alone)


@pytest.mark.parametrize("name", ["mistral", "gpt2"])
def test_a_checkpoint_saved_without_its_head(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = {
        name.removeprefix("model.").removeprefix("transformer."): tensor.clone()
        for name, tensor in load_file(file).items()
        if name != "lm_head.weight"
    }
    save_file(tensors, file)
    assert_close(Reader(case).embed(prompts()), [case.expected(prompt, "last") for prompt in prompts()])
