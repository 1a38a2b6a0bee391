"""Blocks arranged as planes mean the same, to the bit."""

import pytest
import torch

from quire.core.ggml_types import PACKED, bytes_in_planes
from quire.ops.reference.expand_matrix import expand_matrix
from quire.ops.reference.gguf import planes
from quire.ops.reference.gguf.dequantize import dequantize


def random_rows(kind: str, rows: int, columns: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    size = PACKED[kind].bytes_of(columns)
    return torch.randint(0, 120, (rows, size), dtype=torch.uint8, generator=generator)  # finite scales


@pytest.mark.parametrize("kind", planes.KINDS)
def test_planes_mean_what_blocks_mean(kind: str) -> None:
    columns = 2 * max(PACKED[kind].block, 96)
    data = random_rows(kind, 5, columns)
    matrix = planes.as_matrix(data, kind)
    assert torch.equal(expand_matrix(matrix, torch.float32), dequantize(data, kind))
    assert matrix.nbytes == bytes_in_planes(kind, 5 * columns)


def test_many_rows_are_arranged_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    data = random_rows("Q5_K", 7, 256)
    expected = planes.as_matrix(data, "Q5_K")
    monkeypatch.setattr(planes, "_ELEMENTS_AT_ONCE", 3 * 256)
    found = planes.as_matrix(data, "Q5_K")
    assert torch.equal(expand_matrix(found, torch.float32), expand_matrix(expected, torch.float32))
