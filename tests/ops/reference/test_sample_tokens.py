"""Drawing: greedy rows, ties, tiny temperatures, and the same token however the rows are split up."""

import pytest
import torch

from quire.ops.reference import sample_tokens as module
from quire.ops.reference.sample_tokens import sample_tokens


def draw(logits: torch.Tensor, temperature: list[float], **settings: torch.Tensor) -> list[int]:
    rows = torch.arange(len(logits))
    tokens, _ = sample_tokens(logits, torch.tensor(temperature), rows * 31, rows, rows + 5, **settings)
    found: list[int] = tokens.tolist()
    return found


def test_temperature_zero_takes_the_first_of_the_most_likely() -> None:
    logits = torch.tensor([[0.0, 2.0, 2.0], [7.0, 7.0, 7.0], [-1.0, -2.0, -0.5]])
    assert draw(logits, [0.0, 0.0, 0.0]) == [1, 0, 2]


def test_greedy_rows_beside_random_ones() -> None:
    logits = torch.randn(50, 301, generator=torch.Generator().manual_seed(0))
    temperature = [0.0 if row % 2 else 1.0 for row in range(50)]
    tokens = draw(logits, temperature, top_p=torch.full((50,), 0.8), top_k=torch.full((50,), 9))
    best = logits.argmax(dim=-1).tolist()
    assert tokens[1::2] == best[1::2]
    assert tokens[::2] != best[::2]


@pytest.mark.parametrize("temperature", [1e-4, 1e-12, 1e-38])
def test_tiny_temperatures_take_the_most_likely(temperature: float) -> None:
    logits = torch.randn(20, 301, generator=torch.Generator().manual_seed(1)) * 100
    assert draw(logits, [temperature] * 20) == logits.argmax(dim=-1).tolist()


def test_a_huge_temperature_takes_anything_left() -> None:
    logits = torch.zeros(2000, 5)
    logits[:, 3] = float("-inf")
    assert set(draw(logits, [1e6] * 2000)) == {0, 1, 2, 4}


def test_parts_do_not_change_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = torch.randn(17, 1009, generator=torch.Generator().manual_seed(2))
    whole = draw(logits, [1.0] * 17)
    for at_once in (1, 3 * 1009, 5000):
        monkeypatch.setattr(module, "_NOISE_AT_ONCE", at_once)
        assert draw(logits, [1.0] * 17) == whole


def test_no_rows() -> None:
    assert draw(torch.zeros(0, 10), []) == []
