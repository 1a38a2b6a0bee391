"""Inputs: what calibration keeps of the inputs that a matrix saw."""

import torch
from torch import Tensor


class Inputs:
    """Sums over tokens, in float32."""

    def __init__(self, columns: int, device: torch.device) -> None:
        self.gram = torch.zeros(columns, columns, device=device)
        """xᵀx."""
        self._magnitudes = torch.zeros(columns, device=device)
        self._count = 0

    def add(self, x: Tensor) -> None:
        """x: [tokens, columns]."""
        values = x.detach().float()
        self.gram.addmm_(values.t(), values)
        self._magnitudes += values.abs().sum(0)
        self._count += len(values)

    def mean_magnitudes(self) -> Tensor:
        return self._magnitudes / max(1, self._count)

    def divide(self, factors: Tensor) -> None:
        """As if every input had been divided by these factors [columns]."""
        self.gram /= torch.outer(factors, factors)
        self._magnitudes /= factors
