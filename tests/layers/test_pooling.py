"""One vector a sequence, for every pooling."""

import pytest
import torch

from quire.core.pooling import Pooling
from quire.layers.pooling import normalize, pool

HIDDEN = torch.tensor([[1.0, 2.0], [3.0, 6.0], [5.0, 5.0], [0.0, 3.0], [4.0, 1.0]])
STARTS = torch.tensor([0, 2, 3, 5])


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [[2.0, 4.0], [5.0, 5.0], [2.0, 2.0]]),
        ("last", [[3.0, 6.0], [5.0, 5.0], [4.0, 1.0]]),
        ("cls", [[1.0, 2.0], [5.0, 5.0], [0.0, 3.0]]),
    ],
)
def test_each_sequence_has_its_own(pooling: Pooling, expected: list[list[float]]) -> None:
    assert pool(HIDDEN, STARTS, pooling).tolist() == expected


@pytest.mark.parametrize("pooling", ["mean", "last", "cls"])
def test_half_precision_is_pooled_in_float32(pooling: Pooling) -> None:
    assert pool(HIDDEN.bfloat16(), STARTS, pooling).dtype == torch.float32


def test_a_long_mean_does_not_lose_its_small_numbers() -> None:
    hidden = torch.full((4096, 1), 0.1, dtype=torch.bfloat16)
    assert pool(hidden, torch.tensor([0, 4096]), "mean").item() == pytest.approx(hidden[0].item(), rel=1e-5)


def test_normalised_vectors_have_length_one_or_stay_zero() -> None:
    assert normalize(torch.tensor([[3.0, 4.0], [0.0, 0.0]])).tolist() == [
        [pytest.approx(0.6), pytest.approx(0.8)],
        [0, 0],
    ]
