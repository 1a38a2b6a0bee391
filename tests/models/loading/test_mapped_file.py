"""Tensors from mapped files: no copies, no alignment taken for granted, nothing read outside the file."""

import gc
from pathlib import Path

import pytest
import torch

from quire.core.errors import CheckpointError
from quire.models.loading.mapped_file import MappedFile
from quire.models.loading.spans import TensorSpan


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(bytes(range(64)))
    return path


def test_a_tensor_is_the_files_own_bytes(file: Path) -> None:
    mapped = MappedFile(file)
    first = mapped.tensor(TensorSpan("a", "uint8", (4, 4), 0, 16))
    second = mapped.tensor(TensorSpan("b", "uint8", (16,), 16, 32))
    assert first.tolist()[0] == [0, 1, 2, 3]
    assert second.data_ptr() == first.data_ptr() + 16


def test_writing_changes_no_file(file: Path) -> None:
    mapped = MappedFile(file)
    mapped.tensor(TensorSpan("a", "uint8", (4,), 0, 4)).fill_(7)
    assert file.read_bytes() == bytes(range(64))


def test_tensors_outlive_what_made_them(file: Path) -> None:
    tensor = MappedFile(file).tensor(TensorSpan("a", "uint8", (64,), 0, 64))
    gc.collect()
    assert tensor.sum() == sum(range(64))


@pytest.mark.parametrize("start", [0, 1, 2, 3, 8])
def test_any_alignment(file: Path, start: int) -> None:
    tensor = MappedFile(file).tensor(TensorSpan("a", "float64", (2,), start, start + 16))
    assert tensor.view(torch.uint8).tolist() == list(range(start, start + 16))


@pytest.mark.parametrize(
    ("span", "shape"),
    [
        (TensorSpan("a", "Q4_0", (2, 32), 0, 36), (2, 18)),
        (TensorSpan("a", "Q4_0", (32,), 0, 18), (1, 18)),
        (TensorSpan("a", "Q4_0", (2, 1, 32), 0, 36), (2, 18)),
        (TensorSpan("a", "Q4_0", (0, 32), 5, 5), (0, 0)),
        (TensorSpan("a", "float4_e2m1", (3, 4), 0, 6), (3, 2)),
        (TensorSpan("a", "float32", (), 0, 4), ()),
        (TensorSpan("a", "float32", (0, 5), 4, 4), (0, 5)),
        (TensorSpan("a", "bool", (2,), 0, 2), (2,)),
    ],
)
def test_shapes(file: Path, span: TensorSpan, shape: tuple[int, ...]) -> None:
    assert tuple(MappedFile(file).tensor(span).shape) == shape


@pytest.mark.parametrize(
    ("span", "message"),
    [
        (TensorSpan("a", "uint8", (1,), 64, 65), "no longer inside the file"),
        (TensorSpan("a", "uint8", (1,), -1, 0), "no longer inside the file"),
        (TensorSpan("a", "uint8", (0, 2**62, 2**62), 0, 0), "which no memory could hold"),
        (TensorSpan("a", "Q4_0", (0, 2**63), 0, 0), "which no memory could hold"),
        (TensorSpan("a", "float4_e2m1", (2, 3), 0, 3), "whose rows do not end at whole bytes"),
    ],
)
def test_what_cannot_be_is_refused(file: Path, span: TensorSpan, message: str) -> None:
    with pytest.raises(CheckpointError, match=message):
        MappedFile(file).tensor(span)


def test_files_that_cannot_be_mapped_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        with pytest.raises(CheckpointError, match="cannot map"):
            MappedFile(tmp_path / name)
    with pytest.raises(CheckpointError, match="cannot map"):
        MappedFile(tmp_path)
