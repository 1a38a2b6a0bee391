"""Filling models: at once, layer by layer behind a gate, and with weights that stay in host memory."""

from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from quire.core.errors import CheckpointError
from quire.layers.linear import Linear
from quire.layers.policy import WeightPolicy
from quire.layers.stored import StoredTensor
from quire.models.build import build_model
from quire.models.language_model import LanguageModel
from quire.models.load import expected_tensors, load_layer_by_layer, load_weights
from quire.models.loading.checkpoint import Checkpoint, open_checkpoint
from quire.models.offload import OffloadedLayer
from quire.models.random_weights import RandomWeights
from quire.spec.matrix import MatrixSpec, Part
from tests.models.running import logits_of
from tests.parity.tiny import Tiny, make_tiny

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("llama", tmp_path_factory.mktemp("llama"))


def open_model(path: Path, offloaded: frozenset[int] = frozenset()) -> tuple[LanguageModel, Checkpoint]:
    checkpoint = open_checkpoint(path)
    return build_model(checkpoint.spec, WeightPolicy(torch.float32, CPU, offloaded=offloaded)), checkpoint


def oracle(tiny: Tiny, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        logits: torch.Tensor = tiny.oracle(torch.tensor([ids])).logits[0]
    return logits


IDS = [5, 17, 99, 3, 42]


def test_a_model_answers_while_it_is_loaded(tiny: Tiny) -> None:
    model, checkpoint = open_model(tiny.path)
    load = load_layer_by_layer(model, checkpoint)
    asked, answers = Event(), []

    def ask() -> None:
        asked.set()
        answers.append(logits_of(model, IDS))

    thread = Thread(target=ask)
    thread.start()
    asked.wait()
    assert not answers  # it waits at the gate: nothing is loaded yet
    load()
    thread.join()
    torch.testing.assert_close(answers[0], oracle(tiny, IDS), atol=1e-4, rtol=0)


def test_an_error_in_the_background_reaches_whoever_waits(tiny: Tiny) -> None:
    model, checkpoint = open_model(tiny.path)
    load = load_layer_by_layer(model, checkpoint)
    checkpoint.close()  # as if the files had gone
    load()
    with pytest.raises(CheckpointError, match="has no tensor"):
        logits_of(model, IDS)


def test_offloaded_layers_compute_the_same(tiny: Tiny) -> None:
    model, checkpoint = open_model(tiny.path, offloaded=frozenset({1, 3}))
    load_weights(model, checkpoint)
    assert [isinstance(layer, OffloadedLayer) for layer in model.layers] == [False, True, False, True]
    torch.testing.assert_close(logits_of(model, IDS), oracle(tiny, IDS), atol=1e-4, rtol=0)


def test_progress_hears_of_every_byte(tiny: Tiny) -> None:
    model, checkpoint = open_model(tiny.path)
    seen: list[int] = []
    load_weights(model, checkpoint, seen.append)
    assert sum(seen) == checkpoint.num_bytes


@pytest.mark.parametrize("in_background", [False, True])
def test_a_missing_tensor_is_known_before_anything_is_loaded(tiny: Tiny, in_background: bool) -> None:
    model, _ = open_model(tiny.path)
    source = OneTensor("model.norm.weight", torch.zeros(64))
    with pytest.raises(CheckpointError, match=r"there is no tensor lm_head\.weight, nor \d+ others"):
        (load_layer_by_layer if in_background else load_weights)(model, source)


class OneTensor:
    """A checkpoint with a single tensor."""

    def __init__(self, name: str, data: torch.Tensor) -> None:
        self._stored = StoredTensor(name, "float32", tuple(data.shape), data)

    def names(self) -> list[str]:
        return [self._stored.name]

    def stored(self, name: str) -> StoredTensor:
        return self._stored


def test_a_wrong_shape_never_gets_in() -> None:
    """`match` refuses it with a message; whatever else brings tensors is a mistake of ours."""
    layer = Linear(MatrixSpec((Part("c", "out", 4),), 8, "columns"), WeightPolicy(torch.float32, CPU))
    with pytest.raises(AssertionError, match=r"c\.weight has shape \(4, 9\), not \(4, 8\)"):
        load_weights(layer, OneTensor("c.weight", torch.zeros(4, 9)))


def test_random_weights_have_every_shape_that_a_model_asks_for(tiny: Tiny) -> None:
    first, second, other = (tiny_with_random_weights(tiny, seed) for seed in (1, 1, 2))
    hidden = [logits_of(model, IDS) for model in (first, second, other)]
    assert torch.equal(hidden[0], hidden[1])
    assert not torch.equal(hidden[0], hidden[2])
    assert all(states.isfinite().all() for states in hidden)


def tiny_with_random_weights(tiny: Tiny, seed: int) -> LanguageModel:
    model, _ = open_model(tiny.path)
    load_weights(model, RandomWeights(expected_tensors(model), torch.float32, CPU, seed))
    return model
