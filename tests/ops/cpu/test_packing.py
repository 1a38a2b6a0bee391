"""Packing with and without its cache: the same results, and nothing packed the second time."""

from pathlib import Path

import pytest
import torch

from quire.ops.cpu import matrix, native, packing
from quire.ops.cpu.matrix import StoredRows
from quire.ops.cpu.packed_cache import open_packed_cache
from quire.ops.cpu.packing import Packing
from quire.ops.reference.gguf.dequantize import dequantize

core = native.load()
if core is None:
    pytest.skip("the native core is not built here", allow_module_level=True)

COLUMNS = 64


def parts() -> list[StoredRows]:
    """Of the three the first two are alike: two matrices."""
    values = torch.randn(33, COLUMNS, generator=torch.Generator().manual_seed(0))
    blocks = torch.arange(17 * 68).to(torch.int8).view(torch.uint8).view(17, 2, 34)
    blocks[:, :, :2] = torch.tensor([0.01], dtype=torch.float16).view(torch.uint8)  # the scale of a block
    return [
        StoredRows("float32", values[:20], 20),
        StoredRows("float32", values[20:], 13),
        StoredRows("Q8_0", blocks.view(17, 68), 17),
    ]


def expected_matmul() -> torch.Tensor:
    first, second, packed = parts()
    rows = torch.cat([first.data, second.data, dequantize(packed.data, packed.kind, torch.float32)])
    return (rows.sum(1) + torch.arange(50.0)).expand(3, 50)


def matmul(cache_folder: Path | None, model: Path) -> torch.Tensor:
    cache = None if cache_folder is None else open_packed_cache(cache_folder, [model], "kept")
    linear = Packing(core.Machine(1, [], core.variants()[0]), cache).linear("qkv", parts(), COLUMNS, torch.arange(50.0))
    if cache is not None:
        cache.commit()
    return linear.multiply(torch.ones(3, COLUMNS))


def test_results_are_the_same_from_memory_a_new_file_and_a_found_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "model"
    model.write_bytes(b"weights")
    packed = []

    def counted(*given: object) -> None:
        packed.append(given)
        matrix.fill(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(packing, "fill", counted)
    expected = matmul(None, model)
    torch.testing.assert_close(expected, expected_matmul(), rtol=1e-2, atol=1e-2)
    assert torch.equal(matmul(tmp_path / "packed", model), expected)
    assert len(packed) == 4
    assert torch.equal(matmul(tmp_path / "packed", model), expected)
    assert len(packed) == 4
