"""Weights from .safetensors: shards, order, dtypes, and that damage is always a CheckpointError."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from quire.core.errors import CheckpointError
from quire.models.loading.open_checkpoint import open_checkpoint
from tests.models.loading.files import TINY, header_bytes, safetensors_entries, write_config

TENSORS = {
    "a.weight": torch.arange(6, dtype=torch.float32).view(2, 3),
    "b.weight": torch.arange(6, dtype=torch.bfloat16).view(3, 2),
    "c.scale": torch.tensor(3.0, dtype=torch.float16),
    "d.weight": torch.arange(4).to(torch.float8_e4m3fn),
    "e.weight": torch.arange(5, dtype=torch.int8),
    "f.empty": torch.empty(0, 5),
    "g.mask": torch.tensor([True, False]),
    "h.ids": torch.arange(3, dtype=torch.int64),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two shards and their index, the first tensors in the second one."""
    write_config(tmp_path, TINY)
    names = sorted(TENSORS)
    weight_map: dict[str, str] = {}
    for file, part in {"y.safetensors": names[:4], "x.safetensors": names[4:]}.items():
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
        assert torch.equal(stored.data.view(torch.uint8) if stored.shape else stored.data,
                           expected.view(torch.uint8) if stored.shape else expected)  # fmt: skip
        assert not stored.is_quantized
    assert checkpoint.config() == TINY
    assert checkpoint.num_bytes == sum(tensor.nbytes for tensor in TENSORS.values())


def test_files_are_read_from_front_to_back(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    order = [stored.name for stored in checkpoint.iterate()]
    assert order == checkpoint.names()
    assert {name[0] for name in order[:4]} == set("efgh")  # x.safetensors comes first
    addresses = [stored.data.data_ptr() for stored in checkpoint.iterate() if stored.data.numel()]
    first = len([name for name in order[:4] if name != "f.empty"])
    assert addresses[:first] == sorted(addresses[:first])
    assert addresses[first:] == sorted(addresses[first:])


def test_tensors_outlive_their_checkpoint(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    stored = checkpoint.stored("a.weight")
    checkpoint.close()
    assert torch.equal(stored.data, TENSORS["a.weight"])
    with pytest.raises(CheckpointError, match=r"has no tensor 'a\.weight'"):
        checkpoint.stored("a.weight")


def test_configs_are_not_shared(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    checkpoint.config()["hidden_size"] = 3
    assert checkpoint.config() == TINY


def test_unknown_name(folder: Path) -> None:
    with pytest.raises(CheckpointError, match=r"has no tensor 'a\.weigth'\. Did you mean 'a\.weight'\?"):
        open_checkpoint(folder).stored("a.weigth")


def test_one_file(folder: Path) -> None:
    assert set(open_checkpoint(folder / "y.safetensors").names()) == set(sorted(TENSORS)[:4])


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


SHAPES: dict[str, Any] = {"a": ("BF16", (2, 3)), "b": ("F32", ()), "c": ("I8", (0, 5)), "d": ("F4", (4,))}


@given(data=st.data())
def test_mutated_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    entries, size = safetensors_entries(SHAPES)
    original = bytearray(header_bytes(entries) + bytes(size))
    for _ in range(data.draw(st.integers(0, 4))):
        place = data.draw(st.integers(0, len(original) - 1))
        original[place] = data.draw(st.one_of(st.integers(0, 255), st.sampled_from(b'0123456789"[]{},')))
    cut = data.draw(st.one_of(st.just(len(original)), st.integers(0, len(original))))
    folder = tmp_path_factory.mktemp("fuzz")
    write_config(folder, TINY)
    (folder / "model.safetensors").write_bytes(bytes(original[:cut]))
    try:
        for stored in open_checkpoint(folder).iterate():
            stored.data.clone()
    except CheckpointError:
        pass
