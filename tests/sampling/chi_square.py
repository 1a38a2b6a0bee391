"""Pearson's test of counts against exact probabilities."""

from collections.abc import Sequence

import torch

SMALLEST_EXPECTED = 5.0


def p_value(counts: Sequence[int], probabilities: Sequence[float]) -> float:
    """How often a true sampler would be as far off; tokens too rare to count alone are counted together."""
    total = sum(counts)
    cells, rare = [], [0.0, 0.0]
    for count, probability in zip(counts, probabilities, strict=True):
        assert probability > 0 or count == 0, "a token without probability was drawn"
        if probability * total >= SMALLEST_EXPECTED:
            cells.append((count, probability * total))
        else:
            rare = [rare[0] + count, rare[1] + probability * total]
    if rare[1] >= SMALLEST_EXPECTED:
        cells.append((rare[0], rare[1]))
    if len(cells) < 2:
        return 1.0
    statistic = sum((count - expected) ** 2 / expected for count, expected in cells)
    half = torch.tensor([len(cells) - 1, statistic], dtype=torch.float64) / 2
    return float(torch.special.gammaincc(half[0], half[1]))
