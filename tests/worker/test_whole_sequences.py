"""Packing, heads and token types, and that a decoder's temporary KV is as wide as the batch and no wider than it must
be."""

import pytest
import torch
from torch import Tensor, nn

from quire.core.errors import InvalidRequest
from quire.layers.batch import Batch
from quire.worker.whole_sequences import DecoderBody, EncoderBody, KVScratch, Packed

CPU = torch.device("cpu")


class Recorder(nn.Module):
    """Stands for a decoder of three layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = [0, 1, 2]
        self.batches: list[Batch] = []

    def forward(self, input_ids: Tensor, positions: Tensor, batch: Batch) -> Tensor:
        self.batches.append(batch)
        return torch.stack([input_ids, positions], dim=1).float()


def body(chunk: int) -> tuple[DecoderBody, Recorder]:
    model = Recorder()
    return DecoderBody(model, KVScratch(2, 4, torch.float32), chunk, CPU), model  # type: ignore[arg-type]


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


class RecordingEncoder(nn.Module):
    """Stands for an encoder whose hidden states are the token ids."""

    def __init__(self) -> None:
        super().__init__()
        self.types: Tensor | None = None

    def forward(self, input_ids: Tensor, positions: Tensor, starts: Tensor, types: Tensor | None = None) -> Tensor:
        self.types = types
        return input_ids[:, None].double()


class Classifier(RecordingEncoder):
    def classify(self, hidden: Tensor, starts: Tensor) -> Tensor:
        """The first token of each text, and what is behind its last."""
        return torch.stack([hidden[starts[:-1], 0], starts[1:].double()], dim=1)


def test_types_reach_an_encoder_token_by_token() -> None:
    model = RecordingEncoder()
    encoder = EncoderBody(model, CPU)  # type: ignore[arg-type]
    encoder.hidden(Packed([[5, 6, 7], [8, 9]], CPU, [[0, 0, 1], [0, 1]]))
    assert model.types is not None
    assert model.types.tolist() == [0, 0, 1, 0, 1]
    encoder.hidden(Packed([[5, 6, 7], [8, 9]], CPU))
    assert model.types is None


def test_a_head_gives_scores_in_float32() -> None:
    scores = EncoderBody(Classifier(), CPU).classify(Packed([[5, 6, 7], [8, 9]], CPU))  # type: ignore[arg-type]
    assert (scores.tolist(), scores.dtype) == ([[5, 3], [8, 5]], torch.float32)


def test_models_without_a_head_say_so() -> None:
    encoder = EncoderBody(RecordingEncoder(), CPU)  # type: ignore[arg-type]
    for each in (encoder, body(chunk=8)[0]):
        with pytest.raises(InvalidRequest, match="has no head that classifies"):
            each.classify(Packed([[5]], CPU))
