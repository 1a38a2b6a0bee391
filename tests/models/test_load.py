"""Filling models: at once, layer by layer behind a gate, and with weights that stay in host memory."""

from pathlib import Path
from threading import Event, Thread

import pytest
import torch

from quire.core.errors import CheckpointError
from quire.layers.batch import Batch, KVLayer
from quire.layers.linear import Linear, Source
from quire.layers.stored import StoredTensor
from quire.layers.weights import WeightPolicy
from quire.models.decoder import Decoder
from quire.models.load import expected_tensors, load_layer_by_layer, load_weights, match_names
from quire.models.loading.checkpoint import Checkpoint
from quire.models.loading.hf_config import read_hf_config
from quire.models.loading.open_checkpoint import open_checkpoint
from quire.models.offload import OffloadedLayer
from quire.models.random_weights import RandomWeights
from quire.models.registry import build_model
from tests.parity.tiny import Tiny, make_tiny

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return make_tiny("llama", tmp_path_factory.mktemp("llama"))


def open_model(path: Path, offloaded: frozenset[int] = frozenset()) -> tuple[Decoder, Checkpoint]:
    checkpoint = open_checkpoint(path)
    shape = read_hf_config(checkpoint.config(), str(path))
    return build_model(shape, WeightPolicy(torch.float32, CPU, offloaded=offloaded)), checkpoint


@torch.inference_mode()
def logits_of(model: Decoder, ids: list[int]) -> torch.Tensor:
    count = len(ids)
    positions = torch.arange(count)
    kv = [KVLayer(torch.zeros(4, 8, 2, 16), torch.zeros(4, 8, 2, 16), 0) for _ in model.layers]
    table = torch.arange(1, 4).unsqueeze(0)
    slots = table[0, positions // 8] * 8 + positions % 8
    lengths = torch.full((count,), count)
    batch = Batch(torch.tensor([0, count]), torch.tensor([count]), lengths, [table], [slots], kv)
    return model.logits(model(torch.tensor(ids), positions, batch))


def oracle(tiny: Tiny, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return tiny.oracle(torch.tensor([ids])).logits[0]


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


def test_a_missing_tensor_is_known_before_anything_is_loaded() -> None:
    with pytest.raises(CheckpointError, match=r"lacks 2 tensors that its config asks for, a\.weight among them"):
        match_names({"a.weight", "b.weight", "c.weight"}, ["c.weight", "other"])


def test_names_without_the_model_in_front_are_found() -> None:
    assert match_names({"model.norm.weight", "transformer.wte.weight"}, ["wte.weight", "norm.weight"]) == {
        "transformer.wte.weight": "wte.weight",
        "model.norm.weight": "norm.weight",
    }


class OneTensor:
    """A checkpoint with a single tensor."""

    def __init__(self, name: str, data: torch.Tensor) -> None:
        self._stored = StoredTensor(name, "float32", tuple(data.shape), data)

    def names(self) -> list[str]:
        return [self._stored.name]

    def stored(self, name: str) -> StoredTensor:
        return self._stored


def test_a_wrong_shape_is_refused_with_both_shapes() -> None:
    layer = Linear([Source("c", 4)], 8, WeightPolicy(torch.float32, torch.device("cpu")))
    with pytest.raises(
        CheckpointError, match=r"tensor c.weight has shape \[4, 9\], and the model's config asks for \[4, 8\]"
    ):
        load_weights(layer, OneTensor("c.weight", torch.zeros(4, 9)))


def test_random_weights_have_every_shape_that_a_model_asks_for(tiny: Tiny) -> None:
    first, second, other = (tiny_with_random_weights(tiny, seed) for seed in (1, 1, 2))
    ids = torch.arange(5)
    hidden = [model.embed(ids, ids) for model in (first, second, other)]
    assert torch.equal(hidden[0], hidden[1])
    assert not torch.equal(hidden[0], hidden[2])
    assert all(states.isfinite().all() for states in hidden)


def tiny_with_random_weights(tiny: Tiny, seed: int) -> Decoder:
    policy = WeightPolicy(torch.float32, torch.device("cpu"))
    model = build_model(read_hf_config(open_checkpoint(tiny.path).config(), "tiny"), policy)
    load_weights(model, RandomWeights(expected_tensors(model), policy.dtype, policy.device, seed))
    return model
