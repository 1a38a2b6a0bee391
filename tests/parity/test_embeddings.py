"""Embeddings against `transformers`: encoders and decoders, every pooling, however the texts are batched."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quire.config.resolve_embedding import ResolvedEmbedding
from quire.core.pooling import POOLINGS, Pooling
from quire.worker.embedder import Embedder
from quire.worker.start_embedder import start_embedder
from tests.parity.tiny import make_tiny
from tests.parity.tiny_encoders import ENCODERS, VOCABULARY, make_encoder

DECODERS = ("llama", "qwen2", "qwen3", "mistral", "gemma2", "phi3-longrope", "llama-rope-dynamic", "gpt2")
LENGTHS = (5, 70, 1, 33, 16, 17, 80)


class Case:
    """A checkpoint on disk and its oracle, without any head."""

    def __init__(self, name: str, path: Path) -> None:
        self.path = path
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


@pytest.fixture(scope="module", params=[*ENCODERS, *DECODERS])
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(request.param, tmp_path_factory.mktemp(request.param))


def embedder(path: Path, *, seqs: int = 16, tokens: int = 4096) -> Embedder:
    resolved = ResolvedEmbedding("float32", seqs, tokens, 96, ())
    return start_embedder(path, resolved, device=torch.device("cpu"))


def prompts() -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(3, VOCABULARY, (length,), generator=generator).tolist() for length in LENGTHS]


def assert_close(found: list[list[float]], expected: list[torch.Tensor]) -> None:
    torch.testing.assert_close(torch.tensor(found), torch.stack(expected), atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_every_pooling(case: Case, pooling: Pooling) -> None:
    expected = [case.expected(prompt, pooling) for prompt in prompts()]
    assert_close(embedder(case.path).embed(prompts(), pooling), expected)


def test_without_normalisation(case: Case) -> None:
    expected = [case.expected(prompt, "mean", normalized=False) for prompt in prompts()]
    assert_close(embedder(case.path).embed(prompts(), "mean", normalized=False), expected)


def test_the_usual_pooling(case: Case) -> None:
    usual: Pooling = "mean" if case.is_encoder else "last"
    assert_close(embedder(case.path).embed(prompts()), [case.expected(prompt, usual) for prompt in prompts()])


@pytest.mark.parametrize("tokens", [1, 20, 64, 90])
def test_small_batches_give_the_same(case: Case, tokens: int) -> None:
    """Decoders run a sequence beyond the limit in parts."""
    expected = [case.expected(prompt, "mean") for prompt in prompts()]
    assert_close(embedder(case.path, seqs=3, tokens=tokens).embed(prompts(), "mean"), expected)


def test_alone_or_in_a_batch(case: Case) -> None:
    model = embedder(case.path)
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
    assert_close(embedder(tmp_path).embed(prompts()), [case.expected(prompt, "last") for prompt in prompts()])
