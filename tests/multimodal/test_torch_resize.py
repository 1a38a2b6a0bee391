"""Pictures resized without torch beside torch's own kernel for bytes, and the sheets that Llama 4 lays them on."""

import numpy as np
import pytest
import torch

from quire.multimodal.sheets import best_sheet, size_on_sheet
from quire.multimodal.torch_resize import resized_as_torch
from tests.multimodal.tiny_vision import picture

SIZES = [(90, 161), (37, 50), (1, 1), (336, 336), (700, 301), (5, 1000)]


@pytest.mark.parametrize("wanted", [(28, 50), (336, 100), (74, 100), (1, 3), (700, 301)])
@pytest.mark.parametrize("given", SIZES)
def test_every_number_is_torchs(given: tuple[int, int], wanted: tuple[int, int]) -> None:
    pixels = np.array(picture(*given, seed=sum(given)))
    stored = torch.from_numpy(pixels).permute(2, 0, 1)[None]
    other = torch.nn.functional.interpolate(stored, size=wanted, mode="bilinear", antialias=True)
    np.testing.assert_array_equal(resized_as_torch(pixels, wanted), other[0].permute(1, 2, 0).numpy())


@pytest.mark.parametrize(
    ("size", "sheet", "on_it"),
    [
        ((300, 200), (1, 1), (336, 224)),  # grows to one tile
        ((336, 672), (1, 2), (336, 672)),
        ((700, 900), (3, 3), (700, 900)),  # and to no more, on a sheet that holds it
        ((5000, 100), (15, 1), (5000, 100)),
        ((6000, 4500), (4, 3), (1344, 1008)),  # no sheet holds it
        ((1, 1), (1, 1), (336, 336)),
    ],
)
def test_the_sheet_that_changes_a_picture_least(
    size: tuple[int, int], sheet: tuple[int, int], on_it: tuple[int, int]
) -> None:
    assert best_sheet(size, 336, 16, enlarges=False) == sheet
    assert size_on_sheet(size, (sheet[0] * 336, sheet[1] * 336), 336) == on_it


def test_pictures_may_grow_as_far_as_sheets_go() -> None:
    assert best_sheet((300, 200), 336, 16, enlarges=True) == (5, 3)
    assert size_on_sheet((300, 200), (1680, 1008), None) == (1512, 1008)
