"""Slots of encoded media: shared by equal ones, kept while there is room, given away in the order they were left."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from quire.core.encoder_input import EncoderInput
from quire.core.plan import Admission
from quire.core.sampling_params import SamplingParams
from quire.layers.batch import Batch
from quire.spec.cache import CrossCache
from quire.worker.encoded_media import EncodedMedia


class FakeModel:
    """Keys are the media's own number."""

    def __init__(self) -> None:
        self.spec = SimpleNamespace(cross_caches=(CrossCache(1, 2, 3),) * 2)
        self.encoder = SimpleNamespace(dtype=torch.float32)
        self.encoded: list[list[float]] = []
        self.fails = False

    def encode(self, spectrograms: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        if self.fails:
            raise RuntimeError("no memory")
        self.encoded.append(spectrograms[:, 0, 0].tolist())
        for layer in range(2):
            values = spectrograms[:, :1, :1].view(-1, 1, 1, 1).expand(-1, 3, 1, 2)
            yield values + layer, -values


def source(number: int) -> EncoderInput:
    return EncoderInput(bytes([number]), (1, 1), torch.tensor([float(number)]).numpy().tobytes())


def admission(row: int, number: int) -> Admission:
    return Admission(row, "r", 0, SamplingParams(), [1], 1, 0, [[1]], source=source(number))


def seen(media: EncodedMedia, *rows: int) -> list[float]:
    """What the layers' tokens of these rows look at."""
    starts = torch.arange(len(rows) + 1)
    batch = Batch(query_starts=starts, lengths=starts[1:], lengths_for_angles=starts[1:], tables=[], slots=[], kv=[])
    encoded = media.of_rows(batch, torch.tensor(rows), len(rows)).encoded
    assert encoded is not None
    return encoded.layers[1].keys[encoded.slots, 2, 0, 1].tolist()


def make(rows: int = 2, at_once: int = 8) -> tuple[EncodedMedia, FakeModel]:
    model = FakeModel()
    return EncodedMedia(model, rows + 1, at_once, torch.device("cpu")), model  # type: ignore[arg-type]


def test_equal_media_are_encoded_once() -> None:
    media, model = make(3)
    media.admit([admission(0, 5), admission(2, 5), admission(1, 7)])
    assert model.encoded == [[5.0, 7.0]]
    assert seen(media, 0, 1, 2) == [6.0, 8.0, 6.0]
    assert seen(media, 3) == [0.0]


def test_what_nobody_uses_is_kept_until_its_slot_is_needed() -> None:
    media, model = make(2)
    media.admit([admission(0, 1), admission(1, 2)])
    media.release(0)
    media.release(1)
    media.admit([admission(0, 1)])
    assert model.encoded == [[1.0, 2.0]]
    media.admit([admission(1, 3)])
    assert model.encoded[-1] == [3.0]
    assert seen(media, 0, 1) == [2.0, 4.0]
    media.release(0)
    media.admit([admission(0, 2)])
    assert model.encoded[-1] == [2.0]


def test_few_are_encoded_together() -> None:
    media, model = make(3, at_once=2)
    media.admit([admission(0, 1), admission(1, 2), admission(2, 3)])
    assert model.encoded == [[1.0, 2.0], [3.0]]
    assert seen(media, 0, 1, 2) == [2.0, 3.0, 4.0]


def test_a_row_that_is_admitted_again() -> None:
    media, _ = make(2)
    for number in range(1, 6):
        media.admit([admission(0, number)])
        assert seen(media, 0) == [number + 1.0]


def test_media_that_could_not_be_encoded_are_not_known() -> None:
    media, model = make(1)
    model.fails = True
    with pytest.raises(RuntimeError):
        media.admit([admission(0, 1)])
    model.fails = False
    media.reset()
    media.admit([admission(0, 1)])
    assert model.encoded == [[1.0]]
    assert seen(media, 0) == [2.0]
