"""Tensors that come ahead: as when each is asked for, in order, within bounds, and errors where they belong."""

from pathlib import Path
from threading import Lock

import pytest
import torch
from safetensors.torch import save_file

from quire.layers.policy import WeightPolicy
from quire.layers.stored import StoredTensor
from quire.models.build import build_model
from quire.models.load import load_layer_by_layer, load_weights
from quire.models.loading.checkpoint import Checkpoint, Entry, open_checkpoint
from quire.models.loading.mapped_file import MappedFile
from quire.models.loading.match import Found
from quire.models.loading.read_ahead import ReadAhead
from quire.models.loading.safetensors_header import read_safetensors_header
from quire.models.registry import describe
from quire.spec.layout import AS_STORED
from quire.spec.tensor import TensorSpec
from tests.models.loading.files import TINY
from tests.models.running import logits_of
from tests.models.test_load import IDS, open_model
from tests.parity.tiny import make_tiny

CPU = torch.device("cpu")
DEVICE = torch.device("cuda", 0) if torch.cuda.is_available() else CPU


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    torch.manual_seed(0)
    tensors = {
        "large": torch.randn(300, 7),
        "half": torch.randn(65, 3).to(torch.bfloat16),
        "one": torch.tensor([3], dtype=torch.int64),
        "none": torch.empty(0, 4),
        "bytes": torch.arange(77, dtype=torch.uint8),
        **{f"small {place}": torch.full((place + 1,), float(place)) for place in range(40)},
    }
    save_file(tensors, tmp_path / "model.safetensors")
    file = MappedFile(tmp_path / "model.safetensors")
    entries = {
        span.name: Entry(file, Found(TensorSpec(span.name, span.shape, "matrix", "any"), span, AS_STORED))
        for span in read_safetensors_header(tmp_path / "model.safetensors").tensors
    }
    return Checkpoint(describe(TINY, "tiny"), entries, TINY, str(tmp_path))


@pytest.mark.parametrize("piece", [64, 1000, 1 << 20])
@pytest.mark.parametrize("threads", [1, 5])
def test_every_tensor_comes_as_it_is_in_the_order_asked(checkpoint: Checkpoint, piece: int, threads: int) -> None:
    names = sorted(checkpoint.names(), reverse=True)
    found = list(ReadAhead(checkpoint, DEVICE, threads=threads, piece=piece, ahead=4000).read(names))
    assert [stored.name for stored in found] == names
    for stored in found:
        wanted = checkpoint.stored(stored.name)
        assert (stored.kind, stored.shape) == (wanted.kind, wanted.shape)
        assert stored.data.device == DEVICE
        assert torch.equal(stored.data.cpu(), wanted.data)


class Watched(Checkpoint):
    """Counts the bytes that were begun and not laid out yet."""

    def __init__(self, inner: Checkpoint) -> None:
        self._inner = inner
        self._lock = Lock()
        self.begun: list[str] = []
        self.most = self.now = 0

    def raw(self, name: str) -> StoredTensor:
        self.begun.append(name)
        raw = self._inner.raw(name)
        self.now += raw.data.nbytes
        self.most = max(self.most, self.now)
        return raw

    def laid_out(self, raw: StoredTensor) -> StoredTensor:
        self.now -= raw.data.nbytes
        return self._inner.laid_out(raw)


def test_no_more_comes_ahead_than_is_allowed(checkpoint: Checkpoint) -> None:
    watched = Watched(checkpoint)
    names = [name for name in checkpoint.names() if name.startswith("small")]
    for _ in ReadAhead(watched, CPU, ahead=500).read(names):
        pass
    # one more has been opened, and none of its pages read, when it turns out that it must wait
    assert 500 < watched.most <= 500 + 160
    watched = Watched(checkpoint)
    reader = ReadAhead(watched, CPU, ahead=500).read(names)
    next(reader)
    reader.close()
    assert len(watched.begun) < len(names), "nobody wants the rest"


def test_an_error_reaches_whoever_reads(checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = ReadAhead(checkpoint, CPU)

    def broken(source: torch.Tensor, target: torch.Tensor) -> None:
        raise OSError("the disk is gone")

    monkeypatch.setattr(ahead, "_copy", broken)
    with pytest.raises(OSError, match="the disk is gone"):
        list(ahead.read(["large"]))


@pytest.mark.parametrize("in_background", [False, True])
def test_a_model_that_was_read_ahead_is_the_same(in_background: bool, tmp_path: Path) -> None:
    make_tiny("llama", tmp_path)
    plain, opened = open_model(tmp_path)
    load_weights(plain, opened)
    model, _ = open_model(tmp_path)
    read = ReadAhead(opened, CPU, piece=512, ahead=4096).read
    if in_background:
        assert load_layer_by_layer(model, opened, read=read)()
    else:
        load_weights(model, opened, read=read)
    assert torch.equal(logits_of(model, IDS), logits_of(plain, IDS))


@pytest.mark.gpu
def test_weights_on_a_gpu_are_those_of_the_file(tmp_path: Path) -> None:
    make_tiny("llama", tmp_path)
    opened = open_checkpoint(tmp_path)
    models = [build_model(opened.spec, WeightPolicy(torch.float32, DEVICE)) for _ in range(2)]
    load_weights(models[0], opened)
    load_weights(models[1], opened, read=ReadAhead(opened, DEVICE, piece=512, ahead=4096).read)
    torch.cuda.synchronize()
    for (name, wanted), (_, found) in zip(models[0].named_buffers(), models[1].named_buffers(), strict=True):
        assert torch.equal(found, wanted), name
