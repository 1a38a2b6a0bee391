"""The codebooks are those of the format."""

import numpy as np
import pytest
import torch
from gguf import quants

from quire.ops.reference.gguf.codebooks import codebook, even_signs

CPU = torch.device("cpu")


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("IQ1", "IQ1_S"),
        ("IQ1", "IQ1_M"),
        *((name, name) for name in ("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S")),
    ],
)
def test_as_in_the_gguf_package(name: str, oracle: str) -> None:
    table = getattr(quants, oracle)
    table.init_grid()
    assert np.array_equal(codebook(name, CPU).numpy(), table.grid.reshape(table.grid_shape))


def test_signs_as_in_the_gguf_package() -> None:
    assert bytes(even_signs(CPU).tolist()) == quants.IQ2_XXS.ksigns
