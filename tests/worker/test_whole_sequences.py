"""Packing, heads and token types, and that a decoder's temporary KV is as wide as the batch and no wider than it must
be."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from quire.core.errors import InvalidRequest
from quire.layers.batch import Batch
from quire.models.registry import describe
from quire.spec.model import ModelSpec
from quire.worker.whole_sequences import Packed, WholeSequences

CPU = torch.device("cpu")
_SHAPE: dict[str, Any] = {
    "hidden_size": 8,
    "num_attention_heads": 2,
    "num_hidden_layers": 3,
    "intermediate_size": 8,
    "vocab_size": 50,
    "max_position_embeddings": 64,
}


def spec_of(model_type: str, architecture: str = "") -> ModelSpec:
    return describe({**_SHAPE, "model_type": model_type, "architectures": [architecture]}, "config.json")


class Recorder(nn.Module):
    """Stands for a decoder of three layers."""

    def __init__(self, spec: ModelSpec) -> None:
        super().__init__()
        self.spec = spec
        self.batches: list[Batch] = []

    def forward(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        self.batches.append(batch)
        return torch.stack([input_ids, positions], dim=1).float()


def body(chunk: int, spec: ModelSpec | None = None) -> tuple[WholeSequences, Recorder]:
    model = Recorder(spec or spec_of("llama"))
    return WholeSequences(model, torch.float32, chunk, CPU), model  # type: ignore[arg-type]


def test_packed_sequences_know_their_positions() -> None:
    packed = Packed([[7, 8], [9], [1, 2, 3]], CPU)
    assert packed.input_ids.tolist() == [7, 8, 9, 1, 2, 3]
    assert packed.starts.tolist() == [0, 2, 3, 6]
    assert packed.positions.tolist() == [0, 1, 0, 0, 1, 2]
    assert packed.owners.tolist() == [0, 0, 1, 2, 2, 2]


def test_sequences_that_run_at_once_share_one_layer_of_memory() -> None:
    causal, model = body(chunk=64)
    causal.hidden(Packed([list(range(17)), [1, 2, 3]], CPU))
    [batch] = model.batches
    assert len(batch.kv) == 3
    assert batch.kv[0].keys is batch.kv[2].keys
    assert tuple(batch.kv[0].keys.shape) == (3, 16, 2, 4)
    assert batch.tables[0].tolist() == [[0, 1], [2, 0]]
    assert batch.slots[0].tolist() == [*range(17), 32, 33, 34]
    assert batch.lengths.tolist() == [17, 3]
    assert batch.lengths_for_angles.tolist() == [17] * 17 + [3] * 3


def test_a_sequence_beyond_the_limit_runs_in_parts_that_look_back() -> None:
    causal, model = body(chunk=8)
    hidden = causal.hidden(Packed([list(range(20))], CPU))
    assert hidden[:, 0].tolist() == list(range(20))
    assert [batch.query_starts.tolist() for batch in model.batches] == [[0, 8], [0, 8], [0, 4]]
    assert [batch.lengths.tolist() for batch in model.batches] == [[8], [16], [20]]
    first, last = model.batches[0], model.batches[-1]
    assert first.kv[0].keys is not first.kv[1].keys
    assert first.kv[1].keys is last.kv[1].keys
    assert last.slots[0].tolist() == [16, 17, 18, 19]
    assert last.lengths_for_angles.tolist() == [20] * 4


def test_layers_of_other_sizes_have_caches_of_their_own() -> None:
    """A layer may overwrite what the one before it wrote only where both keep the same."""
    spec = spec_of("llama")
    wide = replace(spec.layers[1], attention=replace(spec.layers[1].attention, num_kv_heads=1, head_dim=16))
    causal, model = body(chunk=64, spec=replace(spec, layers=(spec.layers[0], wide, spec.layers[2])))
    causal.hidden(Packed([[1, 2, 3]], CPU))
    [batch] = model.batches
    assert [tuple(layer.keys.shape[2:]) for layer in batch.kv] == [(2, 4), (1, 16), (2, 4)]
    assert batch.kv[0].keys is batch.kv[2].keys


class Classifier(Recorder):
    """Hidden states are the token ids."""

    def __init__(self) -> None:
        super().__init__(spec_of("bert", "BertForSequenceClassification"))

    def classify(self, hidden: Tensor, starts: Tensor) -> Tensor:
        """The first token of each text, and what is behind its last."""
        return torch.stack([hidden[starts[:-1], 0], starts[1:].float()], dim=1)


def test_an_encoder_sees_everything_at_once_and_keeps_nothing() -> None:
    encoder, model = body(chunk=4, spec=spec_of("bert"))
    encoder.hidden(Packed([[5, 6, 7, 8, 9], [8, 9]], CPU))
    [batch] = model.batches
    assert batch.kv == []
    assert batch.query_starts.tolist() == [0, 5, 7]


def test_types_reach_an_encoder_token_by_token() -> None:
    encoder, model = body(chunk=64, spec=spec_of("bert"))
    encoder.hidden(Packed([[5, 6, 7], [8, 9]], CPU, [[0, 0, 1], [0, 1]]))
    encoder.hidden(Packed([[5, 6, 7], [8, 9]], CPU))
    with_types, without = (batch.types for batch in model.batches)
    assert with_types is not None
    assert with_types.tolist() == [0, 0, 1, 0, 1]
    assert without is None


def test_a_head_gives_scores() -> None:
    whole = WholeSequences(Classifier(), torch.float32, 64, CPU)  # type: ignore[arg-type]
    scores = whole.classify(Packed([[5, 6, 7], [8, 9]], CPU))
    assert (scores.tolist(), scores.dtype) == ([[5, 3], [8, 5]], torch.float32)


@pytest.mark.parametrize("model_type", ["llama", "bert"])
def test_models_without_a_head_say_so(model_type: str) -> None:
    whole, _ = body(chunk=8, spec=spec_of(model_type))
    with pytest.raises(InvalidRequest, match="has no head that classifies"):
        whole.classify(Packed([[5]], CPU))
