"""Weights from .safetensors: shards, order, dtypes, and that damage is always a CheckpointError."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from quire.core.errors import CheckpointError
from quire.models.loading.checkpoint import open_checkpoint
from tests.models.loading.files import TINY, header_bytes, llama_shapes, safetensors_entries, write_config

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
NORM = "model.norm.weight"


def tensors() -> dict[str, torch.Tensor]:
    """A whole model whose tensors are of all plain types in turn."""
    torch.manual_seed(0)
    shapes = sorted(llama_shapes(TINY).items())
    return {name: torch.randn(*shape).to(DTYPES[place % 4]) for place, (name, (_, shape)) in enumerate(shapes)}


TENSORS = tensors()
HALF = len(TENSORS) // 2


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards and their index, the first tensors in the second one."""
    write_config(tmp_path, TINY)
    names = sorted(TENSORS)
    weight_map: dict[str, str] = {}
    for file, part in {"y.safetensors": names[:HALF], "x.safetensors": names[HALF:]}.items():
        save_file({name: TENSORS[name] for name in part}, tmp_path / file)
        weight_map |= dict.fromkeys(part, file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return tmp_path


def test_everything_is_read(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    assert set(checkpoint.names()) == set(TENSORS)
    for name, expected in TENSORS.items():
        stored = checkpoint.stored(name)
        assert (stored.name, stored.shape) == (name, tuple(expected.shape))
        assert stored.kind == str(expected.dtype).removeprefix("torch.")
        assert stored.data.dtype == expected.dtype
        assert torch.equal(stored.data, expected)
        assert not stored.is_quantized
    assert checkpoint.config() == TINY
    assert checkpoint.num_bytes == sum(tensor.nbytes for tensor in TENSORS.values())


def test_files_are_read_from_front_to_back(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    order = checkpoint.names()
    first = len(TENSORS) - HALF
    assert set(order[:first]) == set(sorted(TENSORS)[HALF:])  # x.safetensors comes first
    addresses = [checkpoint.stored(name).data.data_ptr() for name in order]
    assert addresses[:first] == sorted(addresses[:first])
    assert addresses[first:] == sorted(addresses[first:])


def test_tensors_outlive_their_checkpoint(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    stored = checkpoint.stored(NORM)
    checkpoint.close()
    assert torch.equal(stored.data, TENSORS[NORM])
    with pytest.raises(CheckpointError, match=r"has no tensor 'model\.norm\.weight'"):
        checkpoint.stored(NORM)


def test_configs_are_not_shared(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    checkpoint.config()["hidden_size"] = 3
    assert checkpoint.config() == TINY


def test_unknown_name(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tensor 'model\.norm\.weigth'\. Did you mean 'model\.norm\.weight'\?"):
        open_checkpoint(folder).stored("model.norm.weigth")


def test_one_file(tmp_path: Path) -> None:
    write_config(tmp_path, TINY)
    save_file(TENSORS, tmp_path / "all.safetensors")
    assert set(open_checkpoint(tmp_path / "all.safetensors").names()) == set(TENSORS)


def test_one_file_of_several_is_no_whole_model(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"lacks \d+ tensors that its config asks for"):
        open_checkpoint(folder / "y.safetensors")


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no file or folder"):
        open_checkpoint(tmp_path / "none")
    with pytest.raises(CheckpointError, match=r"holds no config\.json and no \.gguf file"):
        open_checkpoint(tmp_path)
    write_config(tmp_path, TINY)
    with pytest.raises(CheckpointError, match="but no weights"):
        open_checkpoint(tmp_path)
    with pytest.raises(CheckpointError, match="is not a model"):
        open_checkpoint(tmp_path / "config.json")


def test_same_tensor_in_two_shards_is_refused(tmp_path: Path) -> None:
    write_config(tmp_path, TINY)
    for name in ("a", "b"):
        save_file({"t": torch.zeros(1)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(CheckpointError, match="is in both"):
        open_checkpoint(tmp_path)


SMALL = TINY | {"num_hidden_layers": 1, "vocab_size": 3, "intermediate_size": 4}


@given(data=st.data())
def test_mutated_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    entries, size = safetensors_entries(llama_shapes(SMALL))
    original = bytearray(header_bytes(entries) + bytes(size))
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(original) - 1))
        original[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b'0123456789"[]{},')))
    cut = data.draw(st.one_of(st.just(len(original)), st.integers(0, len(original))))
    folder = tmp_path_factory.mktemp("fuzz")
    write_config(folder, SMALL)
    (folder / "model.safetensors").write_bytes(bytes(original[:cut]))
    try:
        checkpoint = open_checkpoint(folder)
        for name in checkpoint.names():
            checkpoint.stored(name).data.clone()
    except CheckpointError:
        pass
